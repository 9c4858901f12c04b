package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/mcp"
	"github.com/countersign/countersign/web"
)

type serveCommand struct{ configFlag }

func (c *serveCommand) Run(ctx context.Context, p *process) error {
	conf, err := readConfig(c.Config)
	if err != nil {
		return err
	}
	keys, err := readSecrets(conf, p.environment)
	if err != nil {
		return err
	}
	s, err := openServer(ctx, conf, keys, "serve", conf.channelURL(), p.logger())
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// How long a stopping server waits for calls in flight. Waiting calls end at
// once; the rest are short. With the grace after it, the process is gone within
// ten seconds.
const (
	drainLimit = 5 * time.Second
)

// server is everything that serves, wired together over one data folder.
type server struct {
	conf       config
	channelURL string
	logger     *slog.Logger
	lock       *db.Lock
	store      *db.DB
	service    *approval.Service
	bot        *bot.Bot
	flow       *mcp.Local
	agents     *mcp.Handler
	listener   net.Listener
	handler    http.Handler
}

// openServer takes the data folder, opens what is in it and listens. command is
// what others are told who find the folder taken; channelURL is where people
// read the channel. The caller must call run or close.
func openServer(ctx context.Context, conf config, keys secrets, command, channelURL string, logger *slog.Logger) (*server, error) {
	s := &server{conf: conf, channelURL: channelURL, logger: logger}
	if err := s.open(ctx, keys, command); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) open(ctx context.Context, keys secrets, command string) (err error) {
	conf := s.conf
	if s.lock, err = db.LockFolder(conf.Data, command); err != nil {
		return err
	}
	if s.store, err = db.Open(ctx, conf.Data, db.Options{}); err != nil {
		return err
	}
	slackOptions := bot.Options{
		Token:              string(keys.BotToken),
		AppToken:           string(keys.AppToken),
		SigningSecrets:     keys.signingSecrets(),
		APIURL:             conf.Slack.APIURL,
		Workspace:          conf.Slack.Workspace,
		Channel:            conf.Slack.Channel,
		AllowSharedChannel: conf.Slack.AllowSharedChannel,
		Logger:             s.logger,
	}
	directory, err := bot.NewDirectory(slackOptions)
	if err != nil {
		return err
	}
	s.service, err = approval.New(s.store, directory, approval.Options{
		Policy:       conf.policy(),
		Destinations: []string{bot.Destination(conf.Slack.Channel)},
		PayloadLimit: conf.Requests.PayloadLimit,
		ApplyWithin:  conf.Requests.ApplyWithin,
		Logger:       s.logger,
	})
	if err != nil {
		return err
	}
	if s.bot, err = bot.New(slackOptions, s.service, s.store); err != nil {
		return err
	}
	if s.listener, err = net.Listen("tcp", conf.Listen); err != nil {
		return fmt.Errorf("listening on %s: %w", conf.Listen, err)
	}
	if s.conf.URL == "" {
		s.conf.URL = "http://" + s.listener.Addr().String()
	}
	s.flow, err = mcp.NewLocal(s.service, mcp.LocalOptions{ReviewURL: s.conf.reviewURL, AwaitBound: conf.MCP.AwaitBound})
	if err != nil {
		return err
	}
	s.handler, err = s.routes()
	return err
}

func (s *server) routes() (http.Handler, error) {
	public, err := url.Parse(s.conf.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the url: %w", err)
	}
	pages, err := web.Handler(web.Options{SlackURL: s.channelURL})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	s.agents = mcp.NewHandler(s.flow, mcp.HandlerOptions{
		Options:      s.toolOptions(),
		PayloadLimit: s.conf.Requests.PayloadLimit,
		Hosts:        []string{public.Hostname()},
	})
	mux.Handle("/mcp", s.agents)
	if s.conf.Slack.Interactions == overHTTP {
		mux.Handle("/slack/interactions", s.bot.Interactions())
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.bot.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return web.Guard(mux, []string{public.Hostname()}, s.logger), nil
}

func (s *server) toolOptions() mcp.Options {
	return mcp.Options{Version: version(), Logger: s.logger}
}

// run serves until ctx ends or something that can't be done without fails. Then
// waiting calls end as pending, calls in flight finish, and the store is
// closed.
func (s *server) run(ctx context.Context) error {
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 2)
	var work sync.WaitGroup
	work.Go(func() { s.service.Sweep(inner) })
	work.Go(func() {
		if err := s.bot.Run(inner); err != nil && inner.Err() == nil {
			failed <- fmt.Errorf("talking to Slack: %w", err)
		}
	})
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
	s.logger.Info("serving", "listen", s.listener.Addr().String(), "url", s.conf.URL, "version", version())

	var err error
	select {
	case <-ctx.Done():
		s.logger.Info("stopping")
	case err = <-failed:
	}
	s.service.Drain()
	s.agents.Close()
	grace, cancel := context.WithTimeout(inner, drainLimit)
	defer cancel()
	if err := web.Shutdown(grace); err != nil {
		s.logger.Warn("cutting off calls that took too long", "err", err)
		_ = web.Close()
	}
	stop()
	work.Wait()
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
