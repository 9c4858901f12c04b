package mcp_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnvironment) != "" {
		os.Exit(serveChild())
	}
	goleak.VerifyTestMain(m)
}
