package gatewaytest

import (
	"bufio"
	_ "embed"
	"encoding/base64"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

//go:embed loopback.mjs
var loopback []byte

// startLimit is how long a server may take to start.
const startLimit = 30 * time.Second

// EverythingHTTP starts the everything server on streamable HTTP and returns its
// address, on the loopback interface. It runs until the test ends or stop is
// called; stopping it twice is fine.
func EverythingHTTP(t testing.TB) (address string, stop func()) {
	t.Helper()
	p := program(t, "everything", "streamableHttp")
	p.Command = slices.Insert(p.Command, 1, "--import", "data:text/javascript;base64,"+base64.StdEncoding.EncodeToString(loopback))
	command := p.command()
	// A pipe of ours: with one of the command's, waiting for it could lose its last
	// lines. It logs each request to standard output, which is dropped.
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = writer
	if _, err := command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	port, read := make(chan string, 1), make(chan struct{})
	var log strings.Builder // to be read when read is closed
	go func() {
		defer close(read)
		defer reader.Close()
		for lines := bufio.NewScanner(io.TeeReader(reader, &log)); lines.Scan(); {
			if text, found := strings.CutPrefix(lines.Text(), "gatewaytest: port "); found {
				port <- text
			}
		}
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = command.Process.Kill() // it keeps nothing
			_ = command.Wait()
			<-read
		}
	}
	t.Cleanup(stop)
	select {
	case text := <-port:
		return "http://127.0.0.1:" + text + "/mcp", stop
	case <-read:
	case <-time.After(startLimit):
	}
	stop()
	t.Fatalf("the everything server didn't start:\n%s", log.String())
	panic("unreachable")
}
