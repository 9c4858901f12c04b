package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/countersign/countersign/policy"
)

// pollPolicy is how often the policy file is looked at. What is new in it is
// taken when it is the same twice, so that an editor that is in the middle of
// writing isn't believed: the beginning of a policy may be a policy too, without
// the rules at its end.
const pollPolicy = time.Second

// policyWatch keeps what rules in step with the policy file. A file that isn't
// accepted changes nothing.
type policyWatch struct {
	path    string
	loaded  *policy.Policy // that rules now
	accepts policyCheck
	set     func(context.Context, *policy.Policy) error
	logger  *slog.Logger

	seen       reading // by the last poll
	considered reading // taken or refused last
	failed     string  // why what was accepted couldn't be set
	refused    atomic.Bool
}

// policyCheck says why a policy that is right in itself can't rule here. A nil
// one accepts all.
type policyCheck func(*policy.Policy) error

// reading is what the policy file was like at one time.
type reading struct {
	source  string
	problem string // why it couldn't be read
}

// run follows the file until ctx ends. A hangup is somebody who says that the
// file is as it should be: it is taken at once, and what is wrong with it is
// said again.
func (w *policyWatch) run(ctx context.Context, hangup <-chan os.Signal) {
	ticker := time.NewTicker(pollPolicy)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			w.consider(ctx, w.read(), true)
		case <-ticker.C:
			w.poll(ctx)
		}
	}
}

func (w *policyWatch) poll(ctx context.Context) {
	now := w.read()
	settled := now == w.seen
	w.seen = now
	if settled && now != w.considered {
		w.consider(ctx, now, false)
	}
}

func (w *policyWatch) read() reading {
	source, err := readPolicySource(w.path)
	if err != nil {
		return reading{problem: err.Error()}
	}
	return reading{source: string(source)}
}

// consider takes or refuses what the file says. asked means that somebody waits
// to be told.
func (w *policyWatch) consider(ctx context.Context, now reading, asked bool) {
	w.considered = now
	if now.problem != "" {
		w.refuse(now.problem)
		return
	}
	rules, err := policy.Parse([]byte(now.source))
	if err != nil {
		w.refuse(placed(w.path, err)...)
		return
	}
	if rules.Revision() == w.loaded.Revision() {
		if w.refused.Swap(false) || asked {
			w.logger.Info("the policy file is as it was loaded", "file", w.path, "revision", shortRevision(rules))
		}
		return
	}
	if w.accepts != nil {
		if err := w.accepts(rules); err != nil {
			w.refuse(err.Error())
			return
		}
	}
	if err := w.set(ctx, rules); err != nil {
		if w.failed != err.Error() || asked {
			w.logger.Error("the policy file can't be loaded now; the policy that was loaded before stays in force", "file", w.path, "err", err)
		}
		w.failed = err.Error()
		w.considered = reading{} // the next poll tries again
		return
	}
	w.loaded, w.failed = rules, ""
	w.refused.Store(false)
	w.logger.Info("policy loaded", policyAttributes(w.path, rules)...)
}

func (w *policyWatch) refuse(findings ...string) {
	w.refused.Store(true)
	w.logger.Error("THE POLICY FILE IS NOT ACCEPTED; the policy that was loaded before stays in force",
		"file", w.path, "revision_in_force", shortRevision(w.loaded), "findings", findings)
}

// hangups is a channel on which SIGHUP comes until stop is called.
func hangups() (received <-chan os.Signal, stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}
