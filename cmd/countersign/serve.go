package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/gateway"
	"github.com/countersign/countersign/mcp"
	"github.com/countersign/countersign/policy"
	"github.com/countersign/countersign/web"
)

type serveCommand struct{ configFlag }

func (c *serveCommand) Run(ctx context.Context, p *process) error {
	given, err := c.read(p)
	if err != nil {
		return err
	}
	hangup, stop := hangups()
	defer stop()
	s, err := openServer(ctx, serverOptions{
		config:     given.config,
		policy:     given.policy,
		secrets:    given.secrets,
		command:    "serve",
		channelURL: given.config.channelURL(),
		hangup:     hangup,
		logger:     p.logger(),
	})
	if err != nil {
		return err
	}
	return s.run(ctx, nil)
}

// stopLimit is how long a stopping server waits for all that is in flight: with
// closing the store, the process is gone within ten seconds.
const stopLimit = 8 * time.Second

// Where agents find the tools to ask with, and those of downstream servers.
const (
	flowPath    = "/mcp"
	gatewayPath = "/mcp/gateway"
	gatePath    = "/mcp/gate"
)

// serverOptions are what a server is made of.
type serverOptions struct {
	config     config
	policy     *policy.Policy // as the configured file says
	secrets    secrets
	command    string           // what others are told who find the data folder taken
	channelURL string           // where people read the channel
	accepts    policyCheck      // what else a policy must be like; may be nil
	hangup     <-chan os.Signal // asks for the policy file to be read again; may be nil
	now        func() time.Time // the clock; nil means time.Now
	logger     *slog.Logger
}

// server is everything that serves, wired together over one data folder.
type server struct {
	serverOptions
	lock      *db.Lock
	store     *db.DB
	receipts  *db.ReceiptKeys
	service   *approval.Service
	watch     *policyWatch
	bot       *bot.Bot
	gateway   *gateway.Gateway // nil if there is nothing behind it
	flow      *mcp.Local
	agents    []*mcp.Handler
	directory *bot.Directory
	api       *web.API
	listener  net.Listener
	handler   http.Handler
}

// openServer takes the data folder, opens what is in it and listens. The caller
// must call run or close.
func openServer(ctx context.Context, options serverOptions) (*server, error) {
	s := &server{serverOptions: options}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) open(ctx context.Context) (err error) {
	conf := s.config
	if s.lock, err = db.LockFolder(conf.Data, s.command); err != nil {
		return err
	}
	if s.store, err = db.Open(ctx, conf.Data, db.Options{}); err != nil {
		return err
	}
	now := s.now
	if now == nil {
		now = time.Now
	}
	if s.receipts, err = db.OpenReceiptKeys(conf.Data, now()); err != nil {
		return err
	}
	slackOptions := botOptions(conf, s.secrets, s.logger)
	slackOptions.Now = s.now
	if conf.signIn(s.secrets) != nil {
		slackOptions.ReviewURL = func(id approval.ID) string { return s.config.reviewURL(id) }
	}
	if s.directory, err = bot.NewDirectory(slackOptions); err != nil {
		return err
	}
	s.service, err = approval.New(s.store, s.directory, approval.Options{
		Policy:       s.policy,
		Destinations: []string{bot.Destination(conf.Slack.Channel)},
		PayloadLimit: conf.Requests.PayloadLimit,
		Now:          s.now,
		Signer:       s.receipts,
		Logger:       s.logger,
	})
	if err != nil {
		return err
	}
	// The audit log names each policy that ruled, also the one of a start.
	if err = s.rule(ctx, s.policy); err != nil {
		return err
	}
	s.watch = &policyWatch{path: conf.Policy, loaded: s.policy, accepts: s.accepts, set: s.rule, logger: s.logger}
	if s.bot, err = bot.New(slackOptions, s.service, s.store); err != nil {
		return err
	}
	if s.listener, err = net.Listen("tcp", conf.Listen); err != nil {
		return fmt.Errorf("listening on %s: %w", conf.Listen, err)
	}
	if s.config.URL == "" {
		// Browsers give passkeys to names only, not to 127.0.0.1.
		s.config.URL = fmt.Sprintf("http://localhost:%d", s.listener.Addr().(*net.TCPAddr).Port)
	}
	s.flow, err = mcp.NewLocal(s.service, mcp.LocalOptions{
		ReviewURL:     s.config.reviewURL,
		ReviewDecides: s.config.signIn(s.secrets) != nil,
		AwaitBound:    conf.MCP.AwaitBound,
		Now:           s.now,
	})
	if err != nil {
		return err
	}
	if err = s.openGateway(); err != nil {
		return err
	}
	s.handler, err = s.routes()
	return err
}

// openGateway makes the gateway, if there are servers to put it in front of.
func (s *server) openGateway() error {
	conf := s.config.Gateway
	if len(conf.Servers) == 0 {
		return nil
	}
	key, err := db.Key(s.config.Data)
	if err != nil {
		return err
	}
	options := s.config.gatewayOptions()
	options.Version = version()
	options.ReviewURL = s.config.reviewURL
	options.ReviewDecides = s.config.signIn(s.secrets) != nil
	options.Load = s.store.Request
	options.StateKey = key
	options.Now = s.now
	options.Logger = s.logger
	s.gateway, err = gateway.New(s.service, conf.servers(s.secrets.Downstream), options)
	return err
}

// rule has a policy rule from now on, and warns of agents whom it leaves without
// anybody who could approve.
func (s *server) rule(ctx context.Context, rules *policy.Policy) error {
	if err := s.service.SetPolicy(ctx, rules); err != nil {
		return err
	}
	tokens, err := s.service.Tokens(ctx)
	if err != nil {
		s.logger.Error("looking for agents that nobody could approve for", "err", err)
	}
	for _, stuck := range withoutApprovers(tokens, rules) {
		s.logger.Warn("an agent asks in vain", "agent", stuck.token.Agent, "token", stuck.token.ID, "err", stuck.err)
	}
	for _, stuck := range s.config.Authorization.withoutApprovers(rules) {
		s.logger.Warn("an agent asks in vain", "agent", stuck.agent, "issuer", stuck.issuer, "owner", stuck.user, "err", stuck.err)
	}
	return nil
}

// botOptions are what the bot has to know to talk to Slack.
func botOptions(conf config, keys secrets, logger *slog.Logger) bot.Options {
	return bot.Options{
		Token:              string(keys.BotToken),
		AppToken:           string(keys.AppToken),
		SigningSecrets:     keys.signingSecrets(),
		APIURL:             conf.Slack.APIURL,
		Workspace:          conf.Slack.Workspace,
		Channel:            conf.Slack.Channel,
		AllowSharedChannel: conf.Slack.AllowSharedChannel,
		Logger:             logger,
	}
}

func (s *server) routes() (http.Handler, error) {
	public, err := url.Parse(s.config.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the url: %w", err)
	}
	pages, err := web.Handler(s.service, web.Options{
		URL:      strings.TrimRight(s.config.URL, "/"),
		SlackURL: s.channelURL,
		SignIn:   s.config.signIn(s.secrets),
		Now:      s.now,
		Name:     s.directory.Name,
		Logger:   s.logger,
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	mux.Handle(web.ReceiptKeysPath, web.ReceiptKeys(s.receipts.Public, s.logger))
	authorization := s.config.authorization(s.now, s.logger)
	serve := func(path string, options mcp.Options) {
		var resource *mcp.Resource
		if authorization != nil {
			resource = authorization.Resource(public, path)
			mux.HandleFunc(resource.MetadataPath(), resource.ServeMetadata)
		}
		agents := mcp.NewHandler(s.flow, mcp.HandlerOptions{
			Options:      options,
			PayloadLimit: s.config.Requests.PayloadLimit,
			Hosts:        []string{public.Hostname()},
			Resource:     resource,
		})
		s.agents = append(s.agents, agents)
		mux.Handle(path, agents)
	}
	serve(flowPath, s.toolOptions())
	if s.gateway != nil {
		serve(gatewayPath, s.gatewayOptions())
	}
	if s.config.Gate.Serve {
		options, err := s.gateOptions()
		if err != nil {
			return nil, err
		}
		serve(gatePath, options)
	}
	s.api, err = web.NewAPI(s.service, web.APIOptions{
		ReviewURL:    s.config.reviewURL,
		PayloadLimit: s.config.Requests.PayloadLimit,
		Logger:       s.logger,
	})
	if err != nil {
		return nil, err
	}
	mux.Handle("/api/v1/", s.api)
	if s.config.Slack.Interactions == overHTTP {
		mux.Handle("/slack/interactions", s.bot.Interactions())
	}
	// Probes come by the machine's address, and there is nothing to guard.
	open := http.NewServeMux()
	open.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
		if s.watch.refused.Load() {
			fmt.Fprintln(w, "the policy file is not accepted, so the policy before stays in force; the log says what is wrong")
		}
	})
	open.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.bot.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
		if s.watch.refused.Load() {
			fmt.Fprintln(w, "the policy file is not accepted, so the policy before stays in force; the log says what is wrong")
		}
	})
	open.Handle("/", web.Guard(mux, public, s.logger))
	return open, nil
}

func (s *server) toolOptions() mcp.Options {
	return mcp.Options{Version: version(), Now: s.now, Logger: s.logger}
}

// gatewayOptions are for the gateway's tools in place of those to ask with. There
// must be a gateway.
func (s *server) gatewayOptions() mcp.Options {
	options := s.toolOptions()
	options.Gateway = s.gateway
	return options
}

// gateOptions are for the gate's tools in place of those that ask and return.
func (s *server) gateOptions() (mcp.Options, error) {
	gate, err := mcp.NewGate(s.service, mcp.GateOptions{
		Timeout:       s.config.Gate.Timeout,
		WithoutView:   s.config.Gate.WithoutView,
		ReviewURL:     s.config.reviewURL,
		ReviewDecides: s.config.signIn(s.secrets) != nil,
		Name:          s.directory.Name,
		Now:           s.now,
		Logger:        s.logger,
	})
	options := s.toolOptions()
	options.Gate = gate
	return options, err
}

// run serves until ctx ends or something that can't be done without fails.
// beside, if there is one, serves a host of its own meanwhile, and the server
// ends with it. At the end waiting calls end as pending, and what is in flight
// finishes, all of it at the same time and within stopLimit: what the gateway
// runs may end too, or is recorded as unknown, before the downstream servers that
// it started are ended. The store is closed when nobody needs it any more.
func (s *server) run(ctx context.Context, beside func(context.Context) error) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 3)
	var work sync.WaitGroup
	work.Go(func() { s.service.Sweep(background) })
	work.Go(func() { s.watch.run(background, s.hangup) })
	work.Go(func() {
		if err := s.bot.Run(background); err != nil && background.Err() == nil {
			failed <- fmt.Errorf("talking to Slack: %w", err)
		}
	})
	if s.gateway != nil {
		work.Go(func() { s.gateway.Run(background) })
	}
	web := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
	}
	work.Go(func() {
		if err := web.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serving HTTP: %w", err)
		}
	})
	if beside != nil {
		work.Go(func() {
			defer end()
			if err := beside(ctx); err != nil {
				failed <- err
			}
		})
	}
	s.logger.Info("ruling by policy", policyAttributes(s.config.Policy, s.policy)...)
	s.logger.Info("serving", "listen", s.listener.Addr().String(), "url", s.config.URL, "version", version())

	var err error
	select {
	case <-ctx.Done():
		s.logger.Info("stopping")
	case err = <-failed:
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	s.api.Close() // whoever is told that it is pending comes back at once
	s.service.Drain()
	end()
	stop()
	// The agents' event streams last as long as their sessions, so those end
	// before the server is shut down.
	var closing sync.WaitGroup
	for _, agents := range s.agents {
		closing.Go(agents.Close)
	}
	closing.Wait()
	if err := web.Shutdown(limit); err != nil {
		s.logger.Warn("cutting off calls that took too long", "err", err)
		_ = web.Close()
	}
	work.Wait()
	if err == nil && len(failed) > 0 {
		err = <-failed
	}
	return errors.Join(err, s.close())
}

// close gives back what open took, also if it took only a part.
func (s *server) close() error {
	var problems []error
	if s.listener != nil {
		if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			problems = append(problems, err)
		}
	}
	if s.store != nil {
		problems = append(problems, s.store.Close())
	}
	if s.lock != nil {
		problems = append(problems, s.lock.Unlock())
	}
	return errors.Join(problems...)
}

// channelURL leads to the channel in which requests are decided.
func (c config) channelURL() string {
	return "https://app.slack.com/client/" + c.Slack.Workspace + "/" + c.Slack.Channel
}

// reviewURL leads to a request. It is a locator, not a capability.
func (c config) reviewURL(id approval.ID) string {
	return c.URL + "/review?elicitationId=" + url.QueryEscape(string(id))
}
