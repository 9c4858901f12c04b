package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/db"
)

type doctorCommand struct{ configFlag }

// errUnwell ends "doctor" with exit code 1 after the findings were printed.
var errUnwell = errors.New("not everything is well; what to do is said above")

func (c *doctorCommand) Run(ctx context.Context, p *process) error {
	well := true
	say := func(good bool, format string, values ...any) {
		mark := "ok  "
		if !good {
			mark, well = "FAIL", false
		}
		text := strings.ReplaceAll(fmt.Sprintf(format, values...), "\n", "\n      ")
		fmt.Fprintf(p.stdout, "%s  %s\n", mark, text)
	}
	conf, err := readConfig(c.Config)
	if err != nil {
		say(false, "configuration: %v", err)
		return errUnwell
	}
	say(true, "configuration: %s", c.Config)
	checkDatabase(ctx, conf, say)
	keys, err := readSecrets(conf, p.environment)
	if err != nil {
		say(false, "secrets: %v", err)
		return errUnwell
	}
	say(true, "secrets: all that the configuration needs are set")
	for _, finding := range bot.Check(ctx, botOptions(conf, keys, nil), conf.policy()) {
		say(finding.OK, "%s: %s", finding.Subject, finding.Text)
	}
	if !well {
		return errUnwell
	}
	return nil
}

// checkDatabase opens the database as the server would, beside a server that
// runs, and follows the audit log's chain.
func checkDatabase(ctx context.Context, conf config, say func(bool, string, ...any)) {
	if _, err := os.Stat(conf.Data); errors.Is(err, os.ErrNotExist) {
		say(true, "database: none yet; the server makes it in %s", conf.Data)
		return
	}
	store, err := db.Open(ctx, conf.Data, db.Options{})
	if err != nil {
		say(false, "database: %v", err)
		return
	}
	defer store.Close()
	say(true, "database: opens, and syncs each change to disk")
	count, last, err := audit.Verify(store.Events(ctx))
	if err != nil {
		say(false, "audit log: %v", err)
		return
	}
	say(true, "audit log: %d events, each follows the one before; the last hash is %s", count, last)
}
