// Package loopback says which hosts are this machine, so that what is sent to
// them in the clear stays here.
package loopback

import "net/netip"

// Is reports whether a host, without brackets and port, is this machine and can
// be nothing else: localhost, or an address of the loopback.
func Is(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}
