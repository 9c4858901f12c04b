package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/gate"
	"github.com/countersign/countersign/internal/jsoninput"
	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/internal/visible"
)

type runCommand struct {
	Server       string  `placeholder:"URL" help:"The server to ask (default: what COUNTERSIGN_SERVER says, else http://127.0.0.1:8080)."`
	Purpose      string  `placeholder:"TEXT" help:"What this is for, for the people who decide (default: the command line)."`
	Action       string  `default:"shell.run" placeholder:"NAME" help:"The name by which the policy knows it (default: ${default})."`
	Target       string  `placeholder:"TEXT" help:"What it acts on (default: this machine's name)."`
	Environment  string  `placeholder:"NAME" help:"Where it acts; without it, that is production."`
	Irreversible bool    `help:"Say that it can't be undone."`
	Command      []exact `arg:"" passthrough:"" help:"-- and then the command with its arguments."`
}

// exact is an argument as it was given. Into a plain string kong would write it
// anew, with other bytes in place of those that aren't UTF-8.
type exact string

// Decode implements kong.MapperValue.
func (e *exact) Decode(ctx *kong.DecodeContext) error {
	given, ok := ctx.Scan.Pop().Value.(string)
	if !ok {
		return errors.New("an argument is no text")
	}
	*e = exact(given)
	return nil
}

// The exit codes of run beside those of the command itself, as env, timeout and
// container tools have them.
const (
	exitNotUnderstood = 2
	exitNotApproved   = 125
	exitNotRun        = 126
	exitNoCommand     = 127
	exitSignal        = 128 // and the signal's number is added
)

const (
	serverVariable = "COUNTERSIGN_SERVER"
	defaultServer  = "http://127.0.0.1:8080"
)

// Help is what kong shows below the command's own line.
func (c *runCommand) Help() string {
	return `Asks whether a command may run, waits for the decision, and runs exactly what
was approved: these arguments, in this directory, without a shell.

  export COUNTERSIGN_TOKEN_FILE=~/.countersign-token
  countersign run --purpose "Ship 1.4.2" -- git push origin v1.4.2

People see the arguments, the directory, the program's path and its SHA-256. If
the program has changed by the time they approve, it doesn't run. Files that the
program reads, such as a script, are not looked at, nor is the environment, of
which the command gets everything but the token.

The exit code is the command's; 128 and the signal's number if a signal ended it.
125: not run, because a person, the policy or the deadline said no.
126: not run for another reason, which standard error says.
127: there is no such command; nobody was asked.
2: the options were not understood; nobody was asked.

Ctrl-C while it waits stops waiting, and nothing runs.`
}

func (c *runCommand) Run(ctx context.Context, p *process) error {
	var argv []string
	for _, argument := range c.Command {
		argv = append(argv, string(argument))
	}
	if len(argv) < 2 || argv[0] != "--" {
		if len(argv) == 1 && argv[0] == "--" {
			return &codedError{exitNotUnderstood, errors.New("run: no command comes after \"--\", as in: countersign run -- git push")}
		}
		// Also for an option that doesn't exist, which would look like a command.
		return &codedError{exitNotUnderstood, fmt.Errorf("run: after the options come \"--\" and the command, as in: countersign run -- git push; here comes %s", visible.Line(strings.Join(argv, " ")))}
	}
	argv = argv[1:]
	line, code, err := freeze(argv)
	if err != nil {
		return &codedError{code, err}
	}
	action, err := c.action(line)
	if err != nil {
		return &codedError{exitNotRun, err}
	}
	g, err := c.gate(p)
	if err != nil {
		return &codedError{exitNotRun, err}
	}
	var ended ending
	err = g.Do(ctx, action, func(ctx context.Context, payload json.RawMessage) (string, error) {
		ended = runApproved(ctx, payload, p)
		return ended.report, ended.failure()
	})
	var notRun *gate.NotRunError
	switch {
	case !errors.As(err, &notRun):
		// That the server couldn't be told is in the log.
		return ended.result()
	case errors.Is(err, gate.ErrRejected), errors.Is(err, gate.ErrSuperseded), errors.Is(err, gate.ErrExpired), errors.Is(err, gate.ErrDenied):
		return &codedError{exitNotApproved, err}
	case errors.Is(err, gate.ErrStopped) && notRun.RequestID != "":
		return &codedError{exitNotRun, fmt.Errorf("%w; the request may still wait for people, and as long as it does, the same command finds it again", err)}
	default:
		return &codedError{exitNotRun, err}
	}
}

// gate is how to ask the server, as the agent whose token the environment has.
func (c *runCommand) gate(p *process) (*gate.Gate, error) {
	token, err := readSecret(agentTokenVariable, p.environment)
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, fmt.Errorf("%s (or %s_FILE) is not set: \"countersign token create\", on the server, makes a token", agentTokenVariable, agentTokenVariable)
	}
	return gate.New(cmp.Or(c.Server, p.environment(serverVariable), defaultServer), string(token), gate.Options{
		Waiting: func(r gate.Request) {
			fmt.Fprintf(p.stderr, "countersign: waiting for %s, until %s: %s\n", visible.Line(r.WaitingFor), r.ExpiresAt.Local().Format("15:04 MST"), visible.Line(r.ReviewURL))
		},
		Logger: slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})),
	})
}

// action is what is asked for a command line.
func (c *runCommand) action(line commandLine) (gate.Action, error) {
	var payload bytes.Buffer
	encoder := json.NewEncoder(&payload)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(map[string]commandLine{commandMember: line}); err != nil {
		return gate.Action{}, err
	}
	action := gate.Action{
		Purpose:     c.Purpose,
		Payload:     payload.Bytes(),
		Name:        c.Action,
		Target:      c.Target,
		Environment: c.Environment,
	}
	if action.Purpose == "" {
		action.Purpose = cutTo("Run "+line.String(), approval.MaxPurpose)
	}
	if action.Target == "" {
		if host, err := os.Hostname(); err == nil {
			action.Target = host
		}
	}
	if c.Irreversible {
		action.Reversible = new(false)
	}
	return action, nil
}

func cutTo(text string, characters int) string {
	if utf8.RuneCountInString(text) <= characters {
		return text
	}
	return string([]rune(text)[:characters-1]) + "…"
}

// commandMember holds the command line in the payload. Its arguments aren't in the
// payload itself, where a list is taken for what an action acts on, and counted.
const commandMember = "command"

// commandLine is what people approve of a command.
type commandLine struct {
	Argv       []string `json:"argv"`
	Directory  string   `json:"directory"`
	Executable string   `json:"executable"`
	SHA256     string   `json:"sha256"` // of the executable
}

// freeze looks up all that a command line stands for now. With the error comes the
// exit code that goes with it.
func freeze(argv []string) (commandLine, int, error) {
	for i, argument := range argv {
		if !utf8.ValidString(argument) {
			return commandLine{}, exitNotRun, fmt.Errorf("argument %d is not UTF-8, so nobody could be shown it exactly", i)
		}
	}
	executable, err := exec.LookPath(argv[0])
	if err == nil {
		executable, err = filepath.Abs(executable)
	}
	if err != nil {
		switch {
		case errors.Is(err, exec.ErrDot):
			return commandLine{}, exitNoCommand, fmt.Errorf("%w; write ./%s if that is meant", err, argv[0])
		case errors.Is(err, fs.ErrPermission):
			return commandLine{}, exitNotRun, err
		}
		return commandLine{}, exitNoCommand, err
	}
	directory, err := os.Getwd()
	if err != nil {
		return commandLine{}, exitNotRun, fmt.Errorf("finding out the directory: %w", err)
	}
	if !utf8.ValidString(executable) || !utf8.ValidString(directory) {
		return commandLine{}, exitNotRun, errors.New("the path of the directory or of the program is not UTF-8, so nobody could be shown it exactly")
	}
	sum, err := sha256Of(executable)
	if err != nil {
		return commandLine{}, exitNotRun, fmt.Errorf("reading the program, to tell if it changes: %w", err)
	}
	return commandLine{argv, directory, executable, sum}, 0, nil
}

func sha256Of(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

var plainArgument = regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+$`)

// String is the command line as somebody would type it.
func (l commandLine) String() string {
	words := make([]string, len(l.Argv))
	for i, argument := range l.Argv {
		words[i] = argument
		if !plainArgument.MatchString(argument) {
			words[i] = "'" + strings.ReplaceAll(argument, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// parseCommandLine reads what was approved. Nothing may be missing, and nothing
// may be there that nobody would heed.
func parseCommandLine(payload []byte) (commandLine, error) {
	outer, err := strictjson.Members(payload)
	if err != nil {
		return commandLine{}, err
	}
	if len(outer) != 1 || outer[0].Name != commandMember {
		return commandLine{}, fmt.Errorf("it has something else than %q", commandMember)
	}
	members, err := strictjson.Members(outer[0].Value)
	if err != nil {
		return commandLine{}, err
	}
	var line commandLine
	texts := map[string]*string{"directory": &line.Directory, "executable": &line.Executable, "sha256": &line.SHA256}
	for _, member := range members {
		text, known := texts[member.Name]
		switch {
		case member.Name == "argv":
			line.Argv, err = textsOf(member.Value)
		case known:
			*text, err = jsoninput.Text(member.Name, member.Value, len(member.Value))
		default:
			err = fmt.Errorf("%s is unknown", visible.Line(member.Name))
		}
		if err != nil {
			return commandLine{}, err
		}
	}
	if len(line.Argv) == 0 || !filepath.IsAbs(line.Directory) || !filepath.IsAbs(line.Executable) || line.SHA256 == "" {
		return commandLine{}, errors.New("something is missing")
	}
	return line, nil
}

// textsOf reads an array of strings.
func textsOf(value []byte) ([]string, error) {
	var elements []json.RawMessage
	if err := json.Unmarshal(value, &elements); err != nil {
		return nil, err
	}
	texts := make([]string, len(elements))
	for i, element := range elements {
		text, err := jsoninput.Text("argv", element, len(element))
		if err != nil {
			return nil, err
		}
		texts[i] = text
	}
	return texts, nil
}

// ending is what came of running what was approved.
type ending struct {
	code    int
	report  string // for the server and the people who decided
	problem error  // for standard error; nil if the command itself said what there is to say
}

// failure is an error if it didn't succeed, for the report.
func (e ending) failure() error {
	if e.code == 0 {
		return nil
	}
	return errors.New(e.report)
}

// result is how the program ends.
func (e ending) result() error {
	if e.code == 0 {
		return nil
	}
	return &codedError{e.code, e.problem}
}

func didNotStart(report string, err error) ending {
	return ending{exitNotRun, "Not run: " + report, fmt.Errorf("not run: %w", err)}
}

// runApproved runs the command line in a payload, and nothing else, to its end. It
// gets this process's input and outputs, and the signals that this process gets.
// If ctx ends while it runs, that was one of the signals.
func runApproved(ctx context.Context, payload []byte, p *process) ending {
	line, err := parseCommandLine(payload)
	if err != nil {
		return didNotStart("what was approved is no command line.", fmt.Errorf("what was approved is no command line: %w", err))
	}
	sum, err := sha256Of(line.Executable)
	if err != nil {
		return didNotStart("the program can't be read.", err)
	}
	if sum != line.SHA256 {
		return didNotStart("the program has changed since it was asked.", fmt.Errorf("%s has changed since it was asked; ask again", visible.Line(line.Executable)))
	}
	command := &exec.Cmd{
		Path:   line.Executable,
		Args:   line.Argv,
		Dir:    line.Directory,
		Env:    append(slices.DeleteFunc(os.Environ(), isToken), "PWD="+line.Directory),
		Stdin:  p.stdin,
		Stdout: p.stdout,
		Stderr: p.stderr,
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	if ctx.Err() != nil {
		// A signal came before there was a command that could get it.
		return didNotStart("it was stopped before it began.", context.Cause(ctx))
	}
	if err := command.Start(); err != nil {
		return didNotStart("it could not be started.", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	for {
		select {
		case sent := <-signals:
			if !sentByTerminal(sent) {
				_ = command.Process.Signal(sent) // it has ended
			}
		case err := <-ended:
			return endingOf(command.ProcessState, err)
		}
	}
}

// isToken reports whether a variable of the environment has the agent's token,
// which is none of the command's business.
func isToken(variable string) bool {
	return strings.HasPrefix(variable, agentTokenVariable+"=") || strings.HasPrefix(variable, agentTokenVariable+"_FILE=")
}

// endingOf reads how a command ended. state is nil if that can't be found out.
func endingOf(state *os.ProcessState, err error) ending {
	if state == nil {
		return ending{exitNotRun, "It was started, and it isn't known how it ended.", fmt.Errorf("finding out how the command ended: %w", err)}
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return ending{code: exitSignal + int(status.Signal()), report: fmt.Sprintf("Ended by a signal: %s.", status.Signal())}
	}
	return ending{code: state.ExitCode(), report: fmt.Sprintf("Exit code %d.", state.ExitCode())}
}
