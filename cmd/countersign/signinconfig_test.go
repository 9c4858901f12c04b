package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// provider is a provider in a configuration, with one key in place of the right
// one.
func provider(different string) string {
	text := "providers:\n    - "
	name, _, _ := strings.Cut(different, ":")
	for _, line := range []string{"name: Example", "issuer: https://id.example.com", "client_id: countersign", "people: {a: U024BE7LH}"} {
		if strings.HasPrefix(line, name+":") {
			line = different
		}
		text += line + "\n      "
	}
	return strings.TrimRight(text, " \n")
}

// Whom a provider names is taken as it is written, also if YAML would make a number
// of it.
func TestProviderInConfig(t *testing.T) {
	t.Parallel()
	text := strings.Replace(exampleConfig, "providers: []", provider("people: {108234567890123456789: U0A, 0012: U0B, 1e3: U0C, 0x1F: U0D, 'a|b: c': U0E, true: U0F}"), 1)
	got, err := parseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := got.check(); err != nil {
		t.Error(err)
	}
	want := peopleTable{"108234567890123456789": "U0A", "0012": "U0B", "1e3": "U0C", "0x1F": "U0D", "a|b: c": "U0E", "true": "U0F"}
	if diff := cmp.Diff(want, got.SignIn.Providers[0].People); diff != "" {
		t.Errorf("got (-want +got):\n%s", diff)
	}
}

// The doctor asks each provider, and the server offers it.
func TestDoctorOnSignIn(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	issuer := p.slack.URL // what Slack's simulation does, any provider does
	p.appendTo(t, "countersign.yaml", `
sign_in:
  providers:
    - {name: Example-ID, issuer: "`+issuer+`", client_id: c, people: {a: U0ADA, b: U0GRACE}}
`)
	p.environment = append(p.environment, "COUNTERSIGN_EXAMPLE_ID_CLIENT_SECRET=hush")
	well := p.output(t, "doctor")
	if want := "ok    passkeys: browsers give none to http://127.0.0.1:" + p.port; !strings.Contains(well, want) {
		t.Errorf("the doctor doesn't say %q:\n%s", want, well)
	}
	if want := "ok    sign in with Example-ID: 2 in its table; it must send people back to http://127.0.0.1:" + p.port + "/sign-in/callback/Example-ID"; !strings.Contains(well, want) {
		t.Errorf("the doctor doesn't say %q:\n%s", want, well)
	}
	t.Log("\n" + well)
	p.serve(t)
	response, err := http.Get("http://127.0.0.1:" + p.port + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(page); !strings.Contains(text, "Sign in with Example-ID") || strings.Contains(text, "Sign in with Slack") {
		t.Errorf("the page offers\n%s", text)
	}
	conf, err := os.ReadFile(filepath.Join(p.folder, "countersign.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "countersign.yaml", strings.Replace(string(conf), `"`+issuer+`"`, `"`+issuer+`/"`, 1)+`    - {name: Other, issuer: "`+issuer+`", client_id: c, people: {a: U0ADA, b: U0SAM}}
`)
	p.environment = append(p.environment, "COUNTERSIGN_OTHER_CLIENT_SECRET=hush")
	ill, err := p.command(t, nil, "doctor").Output()
	for _, want := range []string{
		"FAIL  sign in with Example-ID: asking " + issuer + "/ how people sign in",
		"ok    sign in with Other: 2 in its table",
		`FAIL  sign in with Other: U0SAM, who is "b" there, holds no role`,
	} {
		if err == nil || !strings.Contains(string(ill), want) {
			t.Errorf("%v, and the doctor doesn't say %q:\n%s", err, want, ill)
		}
	}
	if strings.Contains(string(ill), "U0ADA, who is") {
		t.Errorf("the doctor finds too much:\n%s", ill)
	}
	t.Log("\n" + string(ill))
	if strings.Contains(well+string(ill), "hush") {
		t.Error("the doctor shows a secret")
	}
}
