package main

import (
	"fmt"
	"strings"

	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/web"
)

type manifestCommand struct {
	URL            string `placeholder:"URL" help:"Have Slack call the server at this https address. Without it, the server connects to Slack (Socket Mode)."`
	SignIn         string `placeholder:"URL" help:"People sign in to the review page of the server at this https address."`
	PrivateChannel bool   `help:"The channel for cards is a private one."`
	UserGroups     bool   `help:"A role in the configuration names Slack user groups."`
}

func (c *manifestCommand) Run(p *process) error {
	options := bot.ManifestOptions{URL: c.URL, PrivateChannel: c.PrivateChannel, UserGroups: c.UserGroups}
	if c.SignIn != "" {
		options.SignInURL = strings.TrimRight(c.SignIn, "/") + web.CallbackPath
	}
	manifest, err := bot.Manifest(options)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, manifest)
	return err
}
