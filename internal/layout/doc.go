// Package layout holds the test of which folder may import which, and no code.
package layout
