package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/policy"
	"github.com/countersign/countersign/web"
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
	rules := checkPolicy(conf.Policy, say)
	tools := checkDatabase(ctx, conf, rules, say)
	keys, err := readSecrets(conf, p.environment)
	if err != nil {
		say(false, "secrets: %v", err)
		return errUnwell
	}
	say(true, "secrets: all that the configuration needs are set")
	checkSignIn(ctx, conf, keys, rules, say)
	checkAuthorization(ctx, conf, rules, say)
	checkDownstream(ctx, conf.Gateway.servers(keys.Downstream), rules, tools, say)
	if rules == nil {
		return errUnwell // whom to look for in Slack is in the policy
	}
	for _, finding := range bot.Check(ctx, botOptions(conf, keys, nil), rules) {
		say(finding.OK, "%s: %s", finding.Subject, finding.Text)
	}
	if !well {
		return errUnwell
	}
	return nil
}

// checkPolicy reads the policy and looks at what its author should know; nil if
// a server would refuse it.
func checkPolicy(path string, say func(bool, string, ...any)) *policy.Policy {
	rules, err := readPolicy(path)
	if err != nil {
		say(false, "policy: %v", err)
		return nil
	}
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode()&0o002 != 0 {
		say(false, "policy: everybody on this machine may write %s, and so decide what runs: chmod o-w %s", path, path)
	}
	if findings := rules.Check(); len(findings) > 0 {
		say(false, "policy: %s", strings.Join(placed(path, findings), "\n"))
		return rules
	}
	say(true, "policy: %s: %s", path, rules.Summary())
	return rules
}

// checkSignIn asks those whom people sign in with, and looks for people who could
// sign in for nothing.
func checkSignIn(ctx context.Context, conf config, keys secrets, rules *policy.Policy, say func(bool, string, ...any)) {
	signIn := conf.signIn(keys)
	if signIn == nil {
		return
	}
	for _, finding := range web.CheckSignIn(ctx, *signIn, strings.TrimRight(conf.URL, "/")) {
		say(finding.OK, "sign in with %s: %s", finding.Provider, finding.Text)
	}
	if address, err := url.Parse(conf.URL); err == nil && !web.TakesPasskeys(address) {
		say(true, "passkeys: browsers give none to %s, so what tier 5 asks is approved in Slack; an https address with a host name, or localhost, takes them", conf.URL)
	}
	if rules == nil {
		return
	}
	held := make(map[string]bool)
	for _, role := range rules.Roles() {
		if len(role.Groups) > 0 {
			return // whom a group has is Slack's to say
		}
		for _, user := range role.Users {
			held[user] = true
		}
	}
	for _, one := range conf.SignIn.Providers {
		for _, subject := range slices.Sorted(maps.Keys(one.People)) {
			if user := one.People[subject]; !held[user] {
				say(false, "sign in with %s: %s, who is %q there, holds no role, so nothing would be shown to them", one.Name, user, subject)
			}
		}
	}
}

// checkDatabase opens the database as the server would, beside a server that
// runs, and follows the audit log's chain. It returns the tools that were seen.
func checkDatabase(ctx context.Context, conf config, rules *policy.Policy, say func(bool, string, ...any)) []approval.Tool {
	if _, err := os.Stat(conf.Data); errors.Is(err, os.ErrNotExist) {
		say(true, "database: none yet; the server makes it in %s", conf.Data)
		return nil
	}
	store, err := db.Open(ctx, conf.Data, db.Options{})
	if err != nil {
		say(false, "database: %v", err)
		return nil
	}
	defer store.Close()
	say(true, "database: opens, and syncs each change to disk")
	count, last, err := audit.Verify(store.Events(ctx))
	if err != nil {
		say(false, "audit log: %v", err)
		return nil
	}
	say(true, "audit log: %d events, each follows the one before; the last hash is %s", count, last)
	checkReceiptKeys(conf, say)
	tools, err := store.Tools(ctx)
	if err != nil {
		say(false, "tools: %v", err)
	}
	if rules != nil {
		checkTokens(ctx, store, rules, say)
	}
	return tools
}

// checkReceiptKeys reads the keys of receipts, without which nothing can be decided.
func checkReceiptKeys(conf config, say func(bool, string, ...any)) {
	keys, err := db.OpenReceiptKeys(conf.Data, time.Now())
	if err != nil {
		say(false, "receipts: %v", err)
		return
	}
	set, err := publicKeys(keys)
	if err != nil {
		say(false, "receipts: %v", err)
		return
	}
	say(true, "receipts: signed by the key %s", set.Keys[len(set.Keys)-1].ID)
}

// checkTokens looks for agents whose requests nobody could approve.
func checkTokens(ctx context.Context, store *db.DB, rules *policy.Policy, say func(bool, string, ...any)) {
	tokens, err := store.Tokens(ctx)
	if err != nil {
		say(false, "tokens: %v", err)
		return
	}
	for _, stuck := range withoutApprovers(tokens, rules) {
		say(false, "token of %s (%s): %v", stuck.token.Agent, stuck.token.ID, stuck.err)
	}
}
