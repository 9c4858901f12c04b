package loopback_test

import (
	"testing"

	"github.com/countersign/countersign/internal/loopback"
)

func TestIs(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.1.2.3": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "[::1]": false, "127.0.0.1:80": false,
		"localhost.example.com": false, "127.0.0.1.example.com": false, "0x7f.1": false, "2130706433": false,
	} {
		if got := loopback.Is(host); got != want {
			t.Errorf("%q: got %v", host, got)
		}
	}
}
