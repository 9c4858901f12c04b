package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/policy"
)

// recordedFlags say which recorded calls are meant.
type recordedFlags struct {
	Data  string `placeholder:"FOLDER" help:"The data folder that calls are recorded in (default: the configuration's)."`
	Limit int    `default:"1000" placeholder:"N" help:"At most so many of them, the last ones (default: ${default})."`
}

func (f recordedFlags) check() error {
	if f.Limit < 1 {
		return fmt.Errorf("--limit is %d; it is at least 1", f.Limit)
	}
	return nil
}

func (f recordedFlags) folder(conf configFlag) (string, error) {
	if f.Data != "" {
		return f.Data, nil
	}
	read, err := readUncheckedConfig(conf.Config)
	return read.Data, err
}

// recorded reads calls that were ruled before, the last one first. It may do so
// while a server runs.
func (f recordedFlags) recorded(ctx context.Context, folder string) ([]policy.RecordedCall, error) {
	requests, err := db.Recorded(ctx, folder, f.Limit)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s: there is no database", errNothingRecorded, folder)
	}
	if err != nil {
		return nil, err
	}
	calls := make([]policy.RecordedCall, len(requests))
	for i, r := range requests {
		calls[i] = recordedCall(r)
	}
	return calls, nil
}

var errNothingRecorded = errors.New("nothing is recorded")

// recordedCall is a request as it was ruled.
func recordedCall(r *approval.Request) policy.RecordedCall {
	call := r.Call(r.CreatedAt)
	call.FirstUse = r.Ruling.FirstUse
	return policy.RecordedCall{ID: string(r.ID), Call: call, Then: r.Ruling}
}
