package main

import (
	"fmt"

	"github.com/countersign/countersign/bot"
)

type manifestCommand struct {
	URL            string `placeholder:"URL" help:"Have Slack call the server at this https address. Without it, the server connects to Slack (Socket Mode)."`
	PrivateChannel bool   `help:"The channel for cards is a private one."`
	UserGroups     bool   `help:"A role in the configuration names Slack user groups."`
}

func (c *manifestCommand) Run(p *process) error {
	manifest, err := bot.Manifest(bot.ManifestOptions{URL: c.URL, PrivateChannel: c.PrivateChannel, UserGroups: c.UserGroups})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, manifest)
	return err
}
