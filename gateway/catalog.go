package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/policy"
)

// The kinds of lists that servers have.
const (
	kindTools     = "tools"
	kindResources = "resources" // resources and their templates
	kindPrompts   = "prompts"
)

// tool is a downstream server's tool.
type tool struct {
	server string
	name   string // as the server calls it
	// exposed is what agents call it.
	exposed string
	// definition is the server's, as written.
	definition json.RawMessage
	// shown is the definition with the name that agents use.
	shown   json.RawMessage
	pin     string
	hints   policy.Hints
	headers []paramHeader
}

// action is what policy calls the tool.
func (t *tool) action() string { return t.server + "." + t.name }

// item is a downstream server's resource, template or prompt.
type item struct {
	server  string
	key     string // its URI, URI template or name, as the server has it
	exposed string // what agents know it by: the same, but for a prompt whose name clashes
	shown   json.RawMessage
}

// lists are what one server offers.
type lists struct {
	tools     []tool
	resources []item
	templates []item
	prompts   []item
}

// catalog is what all servers offer together. It doesn't change.
type catalog struct {
	tools     []tool
	resources []item
	templates []item
	prompts   []item
	byName    map[string]*tool // by what agents call it
	byAction  map[string]*tool
}

// maxToolName is how long a tool's name may be in MCP.
const maxToolName = 128

// prefixed is the name of what is offered under the same name by others too.
func prefixed(server, name string) string { return server + "__" + name }

// newCatalog puts the lists of servers together, in their order. taken are names
// of tools that are the gateway's own. What can't be offered is left out, and
// said.
func newCatalog(servers []string, of map[string]lists, taken []string, logger *slog.Logger) *catalog {
	c := &catalog{byName: make(map[string]*tool), byAction: make(map[string]*tool)}
	tools, prompts := make(map[string]int), make(map[string]int)
	for _, name := range taken {
		tools[name]++
	}
	for _, server := range servers {
		for _, t := range of[server].tools {
			tools[t.name]++
		}
		for _, p := range of[server].prompts {
			prompts[p.key]++
		}
	}
	// No two prefixed names are alike: names of servers have no underscore.
	for _, server := range servers {
		for _, t := range of[server].tools {
			t.exposed, t.shown = t.name, t.definition
			if tools[t.name] > 1 {
				t.exposed = prefixed(server, t.name)
				t.shown = renamed(t.definition, t.exposed)
			}
			// A prefixed name may be another tool's own.
			if len(t.exposed) > maxToolName || tools[t.exposed] > 0 && t.exposed != t.name {
				logger.Warn("leaving out a tool: there is no name for it", "server", server, "tool", t.name)
				continue
			}
			c.tools = append(c.tools, t)
		}
	}
	for _, server := range servers {
		for _, p := range of[server].prompts {
			p.exposed = p.key
			if prompts[p.key] > 1 {
				p.exposed = prefixed(server, p.key)
				p.shown = renamed(p.shown, p.exposed)
			}
			if prompts[p.exposed] > 0 && p.exposed != p.key {
				logger.Warn("leaving out a prompt: there is no name for it", "server", server, "prompt", p.key)
				continue
			}
			c.prompts = append(c.prompts, p)
		}
	}
	// An address can't be prefixed.
	resources, templates := make(map[string]bool), make(map[string]bool)
	for _, server := range servers {
		c.resources = appendNew(c.resources, of[server].resources, resources, logger)
		c.templates = appendNew(c.templates, of[server].templates, templates, logger)
	}
	for i := range c.tools {
		t := &c.tools[i]
		c.byName[t.exposed], c.byAction[t.action()] = t, t
	}
	return c
}

// appendNew leaves out what another server offers under the same address.
func appendNew(all, more []item, known map[string]bool, logger *slog.Logger) []item {
	for _, one := range more {
		if known[one.key] {
			logger.Warn("leaving out a resource: another server has its address", "server", one.server, "uri", one.key)
			continue
		}
		known[one.key] = true
		all = append(all, one)
	}
	return all
}

// tool returns the tool that agents call name; nil if there is none.
func (c *catalog) tool(name string) *tool { return c.byName[name] }

// prompt returns the prompt that agents call name; nil if there is none. The
// server knows it by its key.
func (c *catalog) prompt(name string) *item {
	at := slices.IndexFunc(c.prompts, func(p item) bool { return p.exposed == name })
	if at < 0 {
		return nil
	}
	return &c.prompts[at]
}

// resourceServer returns the server that has a resource: the one that lists its
// address, or else the one whose template starts most like it. Empty if there is
// none.
func (c *catalog) resourceServer(uri string) string {
	for _, r := range c.resources {
		if r.key == uri {
			return r.server
		}
	}
	server, longest := "", -1
	for _, t := range c.templates {
		start, _, _ := strings.Cut(t.key, "{")
		if len(start) > longest && strings.HasPrefix(uri, start) {
			server, longest = t.server, len(start)
		}
	}
	return server
}

// renamed is a definition with another name.
func renamed(definition json.RawMessage, name string) json.RawMessage {
	members, err := strictjson.Members(definition)
	if err != nil {
		return definition // it was read before
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return definition
	}
	return with(members, "name", quoted)
}

// changes are the kinds of lists in which two catalogs differ.
func (c *catalog) changes(before *catalog) []string {
	var kinds []string
	if !slices.EqualFunc(c.tools, before.tools, func(a, b tool) bool {
		return a.server == b.server && a.exposed == b.exposed && bytes.Equal(a.shown, b.shown)
	}) {
		kinds = append(kinds, kindTools)
	}
	same := func(a, b item) bool {
		return a.server == b.server && a.exposed == b.exposed && bytes.Equal(a.shown, b.shown)
	}
	if !slices.EqualFunc(c.resources, before.resources, same) || !slices.EqualFunc(c.templates, before.templates, same) {
		kinds = append(kinds, kindResources)
	}
	if !slices.EqualFunc(c.prompts, before.prompts, same) {
		kinds = append(kinds, kindPrompts)
	}
	return kinds
}

// toolsOf reads the definitions of a server's tools. One that can't be used is
// left out, and said.
func toolsOf(server Server, definitions []json.RawMessage, logger *slog.Logger) []tool {
	var tools []tool
	known := make(map[string]bool, len(definitions))
	for _, definition := range definitions {
		members, err := strictjson.Members(definition)
		name := text(members, "name")
		leave := func(why any) { logger.Warn("leaving out a tool", "tool", name, "err", why) }
		if err != nil || name == "" {
			leave(fmt.Errorf("its definition can't be read: %w", cmp.Or(err, errNoName)))
			continue
		}
		if known[name] {
			leave("the server lists its name twice")
			continue
		}
		pin, err := pinOf(members)
		if err != nil {
			leave(err)
			continue
		}
		headers, err := paramHeaders(value(members, "inputSchema"))
		if err != nil && server.URL != "" {
			leave(err) // on standard input and output there are no headers
			continue
		}
		known[name] = true
		tools = append(tools, tool{
			server:     server.Name,
			name:       name,
			definition: definition,
			pin:        pin,
			hints:      hintsOf(members),
			headers:    headers,
		})
	}
	return tools
}

var errNoName = errors.New("it has no name")

// itemsOf reads what a server lists, each known by one member.
func itemsOf(server, key string, listed []json.RawMessage, logger *slog.Logger) []item {
	if len(listed) > maxListed {
		logger.Warn("leaving out the end of a list that is too long", "member", key, "kept", maxListed)
		listed = listed[:maxListed]
	}
	var items []item
	seen := make(map[string]bool, len(listed))
	for _, one := range listed {
		members, err := strictjson.Members(one)
		known := text(members, key)
		if err != nil || known == "" || seen[known] {
			logger.Warn("leaving out what can't be read of a list, or is there twice", "member", key, "value", known, "err", err)
			continue
		}
		seen[known] = true
		items = append(items, item{server: server, key: known, exposed: known, shown: one})
	}
	return items
}
