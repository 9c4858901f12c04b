package db_test

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

// queries are the named queries that were run, by name.
type queries struct {
	mu    sync.Mutex
	texts map[string]string
}

var (
	queryName = regexp.MustCompile(`^-- name: (\w+) `)
	parameter = regexp.MustCompile(`\$(\d+)`)
)

func (q *queries) note(statement string) {
	if found := queryName.FindStringSubmatch(statement); found != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.texts[found[1]] = statement
	}
}

// checkPlans shows that no query gets slower with every request that was ever
// made: none reads a table from one end to the other or sorts what it finds.
func checkPlans(t *testing.T, q *queries) {
	folder := newFolder(t)
	dbtest.OpenIn(t, folder, db.Options{})
	raw := rawOpen(t, folder)
	fine := map[string]string{
		"ListTokens: SCAN tokens":                                                "it lists them all",
		"ListTools: SCAN tools USING INDEX sqlite_autoindex_tools_1":             "it lists them all",
		"RunnableRequests: SCAN requests USING COVERING INDEX requests_runnable": "it reads only what waits to be run",
		"UnfinishedRequests: SCAN executions USING INDEX executions_unfinished":  "it reads only what runs",
		"ListTokens: USE TEMP B-TREE FOR ORDER BY":                               "it lists them all",
		"LastEvent: SCAN events":                                                 "it reads one row, from the end",
		"RecentRequests: SCAN requests USING INDEX sqlite_autoindex_requests_1":  "it reads as many rows as it is asked for, from the end",
		"NextNotice: USE TEMP B-TREE FOR ORDER BY":                               "it sorts only what is due",
		"NextPersonalNotice: USE TEMP B-TREE FOR ORDER BY":                       "it sorts only what is due",
	}
	// Indexes of few rows, where others would do and get slower.
	indexes := map[string]string{
		"CountPending":       "requests_pending",
		"PendingTwins":       "requests_pending",
		"LastRejection":      "requests_rejected",
		"DueRequests":        "requests_due",
		"RunnableRequests":   "requests_runnable",
		"OpenRuns":           "requests_open_runs",
		"OpenTwins":          "requests_asked_runs",
		"UnfinishedRequests": "executions_unfinished",
		"Grants":             "grants_in_force",
		"GrantsFor":          "grants_in_force",
		"LoadRequest":        "requests_granted",

		"LeasePersonalNotice": "personal_notices_due",
		"NextPersonalNotice":  "personal_notices_due",
		"WaitingRequests":     "requests_waiting",
		"AskedOfPeople":       "requests_for_people",
		"DecisionsOf":         "decisions_of_people",
		"EventsOfRequest":     "events_of_requests",
	}
	for name, text := range q.texts {
		last := 0
		for _, found := range parameter.FindAllStringSubmatch(text, -1) {
			number, err := strconv.Atoi(found[1])
			if err != nil {
				t.Fatal(err)
			}
			last = max(last, number)
		}
		rows, err := raw.Query("EXPLAIN QUERY PLAN "+text, make([]any, last)...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for rows.Next() {
			var id, parent, unused int
			var step string
			if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
				t.Fatal(err)
			}
			slow := strings.HasPrefix(step, "SCAN") || strings.Contains(step, "TEMP B-TREE")
			if step = name + ": " + step; slow && fine[step] == "" {
				t.Error(step)
			}
			delete(fine, step)
			if index := indexes[name]; strings.Contains(step, " USING ") && strings.Contains(step+" ", " "+index+" ") {
				delete(indexes, name)
			}
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, index := range indexes {
		t.Errorf("%s doesn't use the index %s", name, index)
	}
	for step, why := range fine {
		t.Errorf("%s is no step of a query any more, although %s", step, why)
	}
}
