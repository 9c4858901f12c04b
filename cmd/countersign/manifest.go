package main

import (
	"fmt"

	"github.com/countersign/countersign/bot"
)

type manifestCommand struct {
	URL string `placeholder:"URL" help:"Have Slack call the server at this https address. Without it, the server connects to Slack (Socket Mode)."`
}

func (c *manifestCommand) Run(p *process) error {
	manifest, err := bot.Manifest(c.URL)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, manifest)
	return err
}
