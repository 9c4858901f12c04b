package main

import (
	"fmt"
	"runtime/debug"
)

type versionCommand struct{}

func (versionCommand) Run(p *process) error {
	fmt.Fprintf(p.stdout, "countersign %s\n", version())
	return nil
}

// version is the module's version, or the commit that an unreleased build was
// made of.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := "", ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision" && len(setting.Value) >= 12:
			revision = setting.Value[:12]
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = ", modified"
		}
	}
	if revision == "" {
		return "development"
	}
	return "development, commit " + revision + modified
}

type configCommand struct{}

func (configCommand) Run(p *process) error {
	_, err := fmt.Fprint(p.stdout, exampleConfig)
	return err
}
