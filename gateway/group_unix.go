//go:build unix

package gateway

import (
	"os/exec"
	"syscall"
	"time"
)

// groupPause is how often it is looked whether a group has ended: nothing tells.
const groupPause = 10 * time.Millisecond

// ownGroup has a command start a group of processes, which its own children are
// in too.
func ownGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// endGroup ends what is left of the group of a command that has ended: it is
// asked to, and killed after terminateWait.
func endGroup(command *exec.Cmd) {
	if command.Process == nil {
		return
	}
	group := -command.Process.Pid
	if syscall.Kill(group, syscall.SIGTERM) != nil {
		return // there is nothing left
	}
	for end := time.Now().Add(terminateWait); time.Now().Before(end); time.Sleep(groupPause) {
		if syscall.Kill(group, 0) != nil {
			return
		}
	}
	_ = syscall.Kill(group, syscall.SIGKILL) // it has ended meanwhile, or does now
}
