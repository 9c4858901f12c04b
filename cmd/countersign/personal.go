package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/mcp"
	"github.com/countersign/countersign/policy"
)

// personalNotice is what one person on their own machine is told at the start and
// in each view.
const personalNotice = "Personal mode: every tier is decided here, in this host. Nobody signs in, so no decision is a verified person's."

// personalFolder is where the requests of personal mode are, if no folder is given.
func personalFolder() (string, error) {
	folder, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("finding a folder for the data: %w; --data names one", err)
	}
	return filepath.Join(folder, "countersign", "personal"), nil
}

// nobody is a directory of people where nobody signs in.
type nobody struct{}

// Standing implements approval.Directory.
func (nobody) Standing(context.Context, approval.Approver, []policy.Role) (approval.Standing, error) {
	return approval.Standing{}, approval.ErrIneligible
}

// personal serves one host of one person on their own machine, without Slack and
// without a configuration: whoever sits in front of the host decides in its view.
func (c *mcpCommand) personal(ctx context.Context, p *process) (err error) {
	conf := defaultGateConfig()
	if err := conf.readTimeout(p.environment); err != nil {
		return err
	}
	folder := c.Data
	if folder == "" {
		if folder, err = personalFolder(); err != nil {
			return err
		}
	}
	source, _ := policy.Starter("personal")
	rules, err := policy.Parse(source)
	if err != nil {
		return fmt.Errorf("reading the personal policy: %w", err)
	}
	lock, err := db.LockFolder(folder, "mcp")
	if held := (*db.HeldError)(nil); errors.As(err, &held) {
		return fmt.Errorf("%w\nEach host that is open at the same time takes a folder of its own: --data FOLDER", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	store, err := db.Open(ctx, folder, db.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	receipts, err := db.OpenReceiptKeys(folder, time.Now())
	if err != nil {
		return err
	}
	logger := p.logger()
	service, err := approval.New(store, nobody{}, approval.Options{Policy: rules, Signer: receipts, Logger: logger})
	if err != nil {
		return err
	}
	if err := service.SetPolicy(ctx, rules); err != nil {
		return err
	}
	gate, err := mcp.NewGate(service, mcp.GateOptions{Timeout: conf.Timeout, Notice: personalNotice, Logger: logger})
	if err != nil {
		return err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { service.Sweep(background) })
	defer work.Wait()
	defer stop()
	logger.Warn(personalNotice)
	logger.Info("serving", "data", folder, "version", version())
	defer context.AfterFunc(ctx, service.Drain)()
	return mcp.ServeStdio(ctx, nil, approval.Agent{Name: c.Agent}, p.stdin, p.stdout, mcp.Options{Version: version(), Gate: gate, Logger: logger})
}
