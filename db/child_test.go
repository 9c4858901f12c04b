package db_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
	"github.com/countersign/countersign/policy"
)

// What this program does when a test runs it as a child: the test's name for it
// and the data folder are in the environment.
const (
	childVariable  = "COUNTERSIGN_DB_TEST_CHILD"
	folderVariable = "COUNTERSIGN_DB_TEST_FOLDER"
)

var children = map[string]func(folder string) error{
	"work":   work,
	"step":   step,
	"run":    runAll,
	"append": appendTokens,
	"lock":   lockAndWait,
	"full":   fillDisk,
	"click":  clickOnFullDisk,
}

// child is this program running as another process. It is killed when the test
// ends, if it still runs.
type child struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	err *strings.Builder
}

// newChild prepares a child without starting it.
func newChild(t *testing.T, name, folder string) *child {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: exec.Command(program), err: new(strings.Builder)}
	c.Env = append(os.Environ(), childVariable+"="+name, folderVariable+"="+folder)
	c.Stderr = c.err
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	t.Cleanup(func() {
		if c.Process != nil && c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c
}

func startChild(t *testing.T, name, folder string) *child {
	t.Helper()
	c := newChild(t, name, folder)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// anyone is a directory in which each person holds every role.
type anyone struct{}

func (anyone) Standing(_ context.Context, _ approval.Approver, roles []policy.Role) (approval.Standing, error) {
	var standing approval.Standing
	for _, role := range roles {
		standing.Roles = append(standing.Roles, approval.Membership{Role: role.Name, Via: "user"})
	}
	return standing, nil
}

func newService(store approval.Store) (*approval.Service, error) {
	rules, err := dbtest.Policy()
	if err != nil {
		return nil, err
	}
	return approval.New(store, anyone{}, approval.Options{
		Policy:       rules,
		Destinations: []string{"slack:C1"},
	})
}

var (
	agent  = approval.Agent{Name: "deployer"}
	person = approval.Approver{Workspace: "T0TEST", User: "U0ANN"}
)

// patiently calls until the file isn't locked by another process.
func patiently(call func() error) error {
	end := time.Now().Add(time.Minute)
	for {
		err := call()
		if !errors.Is(err, db.ErrLocked) || time.Now().After(end) {
			return err
		}
	}
}

// appendTokens appends events, one at a time, to a file that others write too.
func appendTokens(folder string) error {
	d, err := db.Open(context.Background(), folder, db.Options{})
	if err != nil {
		return err
	}
	service, err := newService(d)
	if err != nil {
		return err
	}
	for range appended {
		if err := patiently(func() error {
			_, _, err := service.CreateToken(context.Background(), approval.Operator{Name: "root"}, "ci", approval.Approver{})
			return err
		}); err != nil {
			return err
		}
	}
	return d.Close()
}

const appended = 60

// lockAndWait locks the folder, says so, and holds it until it is killed.
func lockAndWait(folder string) error {
	if _, err := db.LockFolder(folder, "serve"); err != nil {
		return err
	}
	fmt.Println("locked")
	select {}
}
