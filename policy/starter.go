package policy

import (
	"embed"
	"path"
)

// Policies to start from, one a folder. Their tests lie beside them.
//
//go:embed starters/*/policy.yaml
var starters embed.FS

// Starters are the names of the policies to start from, sorted.
func Starters() []string {
	folders, err := starters.ReadDir("starters")
	if err != nil {
		return nil
	}
	names := make([]string, len(folders))
	for i, folder := range folders {
		names[i] = folder.Name()
	}
	return names
}

// Starter returns the source of a policy to start from. It names people that
// don't exist, for its user to replace. It is false if there is none of that
// name.
func Starter(name string) ([]byte, bool) {
	source, err := starters.ReadFile(path.Join("starters", name, "policy.yaml"))
	return source, err == nil
}
