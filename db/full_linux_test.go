package db_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestFullDisk fills a real file system.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	runOnSmallDisk(t, "full")
}

// TestClicksOnFullDisk clicks while there is no room for what a click changes.
func TestClicksOnFullDisk(t *testing.T) {
	t.Parallel()
	runOnSmallDisk(t, "click")
}

// runOnSmallDisk runs a child that mounts a disk of its own. It has it in a
// mount namespace of its own, so that nothing is left of it.
func runOnSmallDisk(t *testing.T, name string) {
	c := newChild(t, name, t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := c.Start(); err != nil {
		t.Skipf("no mount namespace can be had here: %v", err)
	}
	for c.out.Scan() {
		t.Log(c.out.Text())
	}
	if err := c.Wait(); err != nil {
		if strings.HasPrefix(c.err.String(), errNoMount.Error()) {
			t.Skip(strings.TrimSpace(c.err.String()))
		}
		t.Errorf("%v: %s", err, c.err)
	}
}

func mountSmall(folder string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	return syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=4m,mode=0700")
}
