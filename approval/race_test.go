//go:build race

package approval_test

import "flag"

// Properties that run in one goroutine have no races to be found, and take many times
// as long while they are looked for. Without the race detector all checks are made.
func init() {
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
}
