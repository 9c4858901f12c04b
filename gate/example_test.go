package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/countersign/countersign/gate"
)

func Example() {
	g, err := gate.New("https://approvals.example.com", os.Getenv("COUNTERSIGN_TOKEN"), gate.Options{
		Waiting: func(r gate.Request) { log.Printf("waiting for %s: %s", r.WaitingFor, r.ReviewURL) },
	})
	if err != nil {
		log.Fatal(err)
	}
	err = g.Do(context.Background(), gate.Action{
		Name:       "crm.delete_records",
		Purpose:    "Delete the customers who were not seen for two years",
		Target:     "customers",
		Count:      new(int64(214)),
		Reversible: new(false),
		Payload:    json.RawMessage(`{"table":"customers","where":{"last_seen_before":"2024-12-01"}}`),
	}, func(ctx context.Context, payload json.RawMessage) (string, error) {
		deleted, err := deleteRecords(ctx, payload) // what was approved, and nothing else
		return fmt.Sprintf("%d deleted", deleted), err
	})
	switch {
	case errors.Is(err, gate.ErrRejected), errors.Is(err, gate.ErrDenied):
		log.Printf("it stays: %v", err)
	case err != nil:
		log.Fatal(err)
	}
}

func deleteRecords(context.Context, json.RawMessage) (int, error) { return 214, nil }
