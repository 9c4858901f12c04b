package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/gate"
)

// api calls the HTTP API and reads its answer.
func (w *world) api(t *testing.T, token, method, path, body string, answer any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, w.options.config.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d %s (%v)", method, path, response.StatusCode, data, err)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

// verifyAt runs "receipt verify" against the server, which nobody signs in to.
func (w *world) verifyAt(t *testing.T, signed string, flags ...string) (code int, out, problems string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(context.WithoutCancel(t.Context()), append([]string{"receipt", "verify", "--server", w.options.config.URL}, flags...), &process{
		stdin:       io.NopCloser(strings.NewReader(signed + "\n")),
		stdout:      closer{&stdout},
		stderr:      &stderr,
		environment: func(string) string { return "" },
	})
	return code, stdout.String(), stderr.String()
}

// A person clicks in Slack; the job that asked gets the receipt, and anybody can
// verify it with the keys that the server shows, also after those were rotated while
// it ran.
func TestReceiptOfAClick(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token(t, "nightly-job")
	decide := func(table, action string) (id, signed string) {
		t.Helper()
		var asked struct {
			ID       string
			Receipts []string
		}
		w.api(t, token, http.MethodPost, "/api/v1/requests", `{"purpose":"Tidy `+table+`","action":"crm.delete_records","payload":{"table":"`+table+`"}}`, &asked)
		if len(asked.Receipts) != 0 {
			t.Errorf("nobody decided, and there is the receipt %v", asked.Receipts)
		}
		posted := w.card(t, func(m slacksim.Message) bool {
			return strings.Contains(m.Text, "Approval needed") && strings.Contains(string(m.Blocks), "Tidy "+table)
		})
		if reply := w.click(t, "U0ADA", posted.TS, action); !reply.OK() {
			t.Fatalf("the click: %+v", reply)
		}
		w.api(t, token, http.MethodGet, "/api/v1/requests/"+asked.ID+"?wait=30", "", &asked)
		if len(asked.Receipts) != 1 {
			t.Fatalf("got the receipts %v", asked.Receipts)
		}
		return asked.ID, asked.Receipts[0]
	}
	id, first := decide("customers", "approve")
	code, out, problems := w.verifyAt(t, first, "--expect", "approve")
	for _, want := range []string{"Valid. Approved by slack:" + demoWorkspace + "/U0ADA, in Slack, on ", id + ", version 1", "oncall"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d without %q:\n%s%s", code, want, out, problems)
		}
	}

	// Another process rotates the keys of the data folder.
	keys, err := db.OpenReceiptKeys(w.options.config.Data, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	newest, err := keys.Rotate(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, second := decide("orders", "approve")
	code, out, problems = w.verifyAt(t, second, "--json")
	var answer struct {
		Valid   bool
		Receipt gate.Receipt
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 || !answer.Valid || answer.Receipt.KeyID != newest || !answer.Receipt.Person {
		t.Errorf("exit %d, %+v (%v) %s", code, answer, err, problems)
	}
	if code, _, problems = w.verifyAt(t, first); code != 0 {
		t.Errorf("what the key before signed: exit %d %s", code, problems)
	}
	if code, out, _ = w.verifyAt(t, first[:len(first)-4]+"AAAA"); code != exitNotValid || out != "" {
		t.Errorf("what was changed: exit %d %s", code, out)
	}
}

// The keys are for anybody, and have nothing secret.
func TestReceiptKeysAreShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	call := func(method string) (*http.Response, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, w.options.config.URL+"/.well-known/countersign/receipts", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response, string(data)
	}
	response, data := call(http.MethodGet)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/jwk-set+json" || response.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got %d %v", response.StatusCode, response.Header)
	}
	if _, err := gate.ParseReceiptKeys([]byte(data)); err != nil || strings.Contains(data, `"d"`) {
		t.Errorf("got %s (%v)", data, err)
	}
	if response, data := call(http.MethodPost); response.StatusCode != http.StatusMethodNotAllowed || strings.Contains(data, "kty") {
		t.Errorf("POST: got %d %s", response.StatusCode, data)
	}
	// A file that others may read shows nothing, not even its path.
	path := filepath.Join(w.options.config.Data, "receipts.keys")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if response, data := call(http.MethodGet); runtime.GOOS != "windows" && (response.StatusCode != http.StatusServiceUnavailable || strings.Contains(data, "receipts.keys")) {
		t.Errorf("with a file that others may read: got %d %s", response.StatusCode, data)
	}
}
