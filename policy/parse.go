package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // time zones are the same on every machine

	"cel.dev/cel-go/cel"
)

// The bounds within which a policy is accepted.
const (
	minWithin  = time.Minute
	maxWithin  = 24 * time.Hour
	maxScope   = 8 * time.Hour
	maxPending = 1_000_000
	maxOver    = 1e15 // below it, floating point tells whole numbers apart
)

// What holds unless the policy says otherwise.
const (
	defaultDecideWithin   = 24 * time.Hour // the agent's own wish counts below it
	defaultApplyWithin    = 15 * time.Minute
	defaultFirstUseWithin = 30 * 24 * time.Hour
	defaultPending        = 10
	defaultPerMinute      = 30
	defaultCooldown       = time.Hour
)

var (
	plainName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)
	slackUser = regexp.MustCompile(`^[UW][A-Z0-9]{2,30}$`)
	userGroup = regexp.MustCompile(`^S[A-Z0-9]{2,30}$`)
	agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// IsUserID reports whether id has the form of a Slack user id.
func IsUserID(id string) bool { return slackUser.MatchString(id) }

// Parse reads and checks a policy file. The error lists everything that is
// wrong with it, each with its line and column. A policy under which nobody
// could approve what it leaves to people is wrong.
func Parse(source []byte) (*Policy, error) {
	written, file, err := read(source)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(source)
	p := &Policy{
		revision:     hex.EncodeToString(sum[:]),
		file:         file,
		source:       written,
		environments: make(map[string]environmentRules),
		named:        make(map[string]string),
		integrations: make(map[string]*integrationRules),
		exact:        make(map[string]*toolRules),
		folded:       foldedTools{exact: make(map[string][]*toolRules), patterns: make(map[string][]*toolRules)},
		owners:       make(map[string]string),
	}
	b := builder{Policy: p, modes: make(map[string]*mode), roleAt: make(map[string]Role)}
	b.build()
	if len(b.problems) > 0 {
		slices.SortFunc(b.problems, Finding.compare)
		return nil, slices.Compact(b.problems)
	}
	return p, nil
}

// builder makes a policy of what is written and collects what is wrong.
type builder struct {
	*Policy
	problems Findings
	modes    map[string]*mode
	roleAt   map[string]Role
	ids      []string
}

func (b *builder) problem(at place, format string, args ...any) {
	b.problems = append(b.problems, finding(b.file, at, format, args...))
}

func (b *builder) build() {
	d := b.source
	if d.Version != 1 {
		b.problem(place{"version"}, "is %d; this countersign reads version 1", d.Version)
	}
	b.buildModes()
	b.buildEnvironments()
	b.buildRoles()
	b.buildAgents()
	b.buildApprovals()
	b.buildHours()
	b.unclassified = d.Unclassified
	switch d.Unclassified {
	case "":
		b.unclassified = RequireApproval
	case RequireApproval, Deny:
	default:
		b.problem(place{"unclassified"}, "is %q; require_approval and deny are accepted", d.Unclassified)
	}
	b.bulk = b.thresholds(place{"bulk"}, d.Bulk, TierInternalWrite)
	b.buildFirstUse()
	b.inBand = b.buildUnverified(&clientAnswers, d.InBand)
	b.inView = b.buildUnverified(&viewDecisions, d.InView)
	for _, name := range slices.Sorted(maps.Keys(d.Integrations)) {
		b.buildIntegration(name, d.Integrations[name])
	}
	for i, written := range d.Block {
		b.buildRule(place{"block", i}, written, true)
	}
	for i, written := range d.Rules {
		b.buildRule(place{"rules", i}, written, false)
	}
	b.redactions = Redactions{Keys: b.keys(d.Redact.Keys), Paths: b.pointers(place{"redact", "paths"}, d.Redact.Paths)}
	b.buildLimits()
	if len(b.problems) == 0 {
		b.checkApprovals()
		b.checkUnverified(b.inBand)
		b.checkUnverified(b.inView)
	}
}

func (b *builder) buildModes() {
	for _, m := range builtInModes {
		b.modes[m.name] = &m
	}
	for _, name := range slices.Sorted(maps.Keys(b.source.Modes)) {
		at := place{"modes", name}
		if _, taken := b.modes[name]; taken {
			b.problem(at, "is a mode that every policy has; choose another name")
			continue
		}
		b.checkName(at, name)
		m := &mode{name: name}
		before := Allow
		for tier := TierRead; tier <= TierIrreversible; tier++ {
			effect, ok := b.source.Modes[name][tier]
			switch {
			case !ok:
				b.problem(at, "doesn't say what tier %d does; name all five", tier)
			case effect != Allow && effect != RequireApproval && effect != Deny:
				b.problem(at.of(tier), "is %q; allow, require_approval and deny are accepted", effect)
			case effect.strictness() < before.strictness():
				b.problem(at.of(tier), "%s is weaker than %s of the tier below", effect, before)
			}
			m.effects[tier], before = effect, effect
		}
		b.modes[name] = m
	}
	if b.source.Mode == "" {
		b.problem(nil, "mode is missing; open, cautious, strict, readonly or one of your own")
	} else if m := b.modeNamed(place{"mode"}, b.source.Mode); m != nil {
		b.mode = *m
	}
}

// modeNamed finds a mode; nil for no name, and for one that isn't known, which
// is a problem.
func (b *builder) modeNamed(at place, name string) *mode {
	if name == "" {
		return nil
	}
	m, ok := b.modes[name]
	if !ok {
		b.problem(at, "mode %q isn't known; there are %s", name, strings.Join(slices.Sorted(maps.Keys(b.modes)), ", "))
		return nil
	}
	return m
}

func (b *builder) checkName(at place, name string) {
	if !plainName.MatchString(name) {
		b.problem(at, "a name is 1 to 64 lower-case letters, digits, - and _, starting with a letter")
	}
}

func (b *builder) buildEnvironments() {
	b.environments[production] = environmentRules{}
	b.named[production] = production
	for _, name := range slices.Sorted(maps.Keys(b.source.Environments)) {
		b.checkName(place{"environments", name}, name)
		b.named[name] = name
	}
	for _, name := range slices.Sorted(maps.Keys(b.source.Environments)) {
		written := b.source.Environments[name]
		at := place{"environments", name}
		b.environments[name] = environmentRules{mode: b.modeNamed(at.of("mode"), written.Mode)}
		for i, other := range written.Names {
			folded := strings.ToLower(other)
			switch taken, ok := b.named[folded]; {
			case strings.TrimSpace(other) == "":
				b.problem(at.of("names", i), "is empty; what isn't stated is production")
			case ok && taken != name:
				b.problem(at.of("names", i), "%q already means %s", other, taken)
			}
			b.named[folded] = name
		}
	}
}

func (b *builder) buildRoles() {
	if len(b.source.Roles) == 0 {
		b.problem(nil, "roles is missing; name who may approve")
	}
	for _, name := range slices.Sorted(maps.Keys(b.source.Roles)) {
		written := b.source.Roles[name]
		at := place{"roles", name}
		b.checkName(at, name)
		for i, user := range written.Users {
			if !slackUser.MatchString(user) {
				b.problem(at.of("users", i), "%q is not a Slack user id (like U024BE7LH)", user)
			}
		}
		for i, group := range written.Groups {
			if !userGroup.MatchString(group) {
				b.problem(at.of("groups", i), "%q is not a Slack user group id (like S0614TZR7)", group)
			}
		}
		if len(written.Users) == 0 && len(written.Groups) == 0 {
			b.problem(at, "has no users and no groups, so nobody can approve for it")
		}
		role := Role{Name: name, Users: distinct(written.Users), Groups: distinct(written.Groups), SelfApproval: written.SelfApproval}
		b.roleAt[name] = role
		b.roles = append(b.roles, role)
	}
}

func (b *builder) buildAgents() {
	for _, name := range slices.Sorted(maps.Keys(b.source.Agents)) {
		owner := b.source.Agents[name].Owner
		if !slackUser.MatchString(owner) {
			b.problem(place{"agents", name, "owner"}, "%q is not a Slack user id (like U024BE7LH)", owner)
		}
		b.checkAgent(place{"agents", name}, name)
		b.owners[name] = owner
	}
}

func (b *builder) buildHours() {
	written := b.source.Hours
	if written == nil {
		return
	}
	at := place{"hours"}
	zone, err := time.LoadLocation(written.Zone)
	if err != nil || written.Zone == "" || written.Zone == "Local" {
		b.problem(at.of("zone"), "%q is not a time zone (like Europe/Paris)", written.Zone)
		zone = time.UTC
	}
	b.clock.zone = zone
	if len(written.Days) == 0 {
		b.problem(at, "days is missing; name some of mon, tue, wed, thu, fri, sat, sun")
	}
	for i, day := range written.Days {
		weekday := slices.Index(weekdays[:], day)
		if weekday < 0 {
			b.problem(at.of("days", i), "%q is no day; mon, tue, wed, thu, fri, sat and sun are", day)
			continue
		}
		b.clock.days[weekday] = true
	}
	b.clock.from = b.minutes(at.of("from"), written.From)
	b.clock.to = b.minutes(at.of("to"), written.To)
	if b.clock.from >= b.clock.to {
		b.problem(at.of("to"), "%q isn't after from, %q", written.To, written.From)
	}
}

// minutes reads a time of day, up to "24:00", as minutes after midnight.
func (b *builder) minutes(at place, text string) int {
	if text == "24:00" {
		return 24 * 60
	}
	clock, err := time.Parse("15:04", text)
	if err != nil {
		b.problem(at, "%q is not a time of day (like \"07:00\")", text)
	}
	return clock.Hour()*60 + clock.Minute()
}

func (b *builder) buildFirstUse() {
	written := b.source.FirstUse
	if written == nil {
		return
	}
	at := place{"first_use"}
	rules := &firstUseRules{raiseTo: written.RaiseTo, within: written.Within}
	for i, of := range written.Of {
		switch of {
		case "tool":
			rules.of.Tool = true
		case "integration":
			rules.of.Integration = true
		case "agent":
			rules.of.Agent = true
		default:
			b.problem(at.of("of", i), "%q; tool, integration and agent are accepted", of)
		}
	}
	if len(written.Of) == 0 {
		b.problem(at, "of is missing; name some of tool, integration and agent")
	}
	rules.environments = b.environmentSet(at.of("environments"), written.Environments)
	if written.Environments == nil {
		rules.environments = map[string]bool{production: true}
	}
	if written.RaiseTo == 0 {
		rules.raiseTo = TierDestructive
	} else if !written.RaiseTo.valid() {
		b.problem(at.of("raise_to"), "is %d; tiers are 1 to 5", written.RaiseTo)
	}
	if written.Within == 0 {
		rules.within = defaultFirstUseWithin
	} else if written.Within < time.Hour {
		b.problem(at.of("within"), "is %s; at least 1h is accepted", written.Within)
	}
	b.firstUse = rules
}

// environmentSet is a set of environments by name; nil for none named, which
// means all.
func (b *builder) environmentSet(at place, names []string) map[string]bool {
	if len(names) == 0 {
		b.checkNotEmpty(at, names)
		return nil
	}
	set := make(map[string]bool, len(names))
	for i, name := range names {
		if _, ok := b.environments[name]; !ok {
			b.problem(at.of(i), "environment %q isn't defined; there are %s", name, strings.Join(slices.Sorted(maps.Keys(b.environments)), ", "))
		}
		set[name] = true
	}
	return set
}

// checkNotEmpty refuses a list of nothing: it might mean all, as a list that is
// left out does, or none.
func (b *builder) checkNotEmpty(at place, list []string) {
	if list != nil && len(list) == 0 {
		b.problem(at, "is an empty list; name some, or leave it out for all")
	}
}

func (b *builder) checkAgent(at place, name string) {
	if !agentName.MatchString(name) {
		b.problem(at, "an agent's name is 1 to 64 letters, digits, ., _ and -, starting with a letter or a digit")
	}
}

func (b *builder) thresholds(at place, written []thresholdDocument, above Tier) []threshold {
	var all []threshold
	for i, t := range written {
		here := at.of(i)
		switch {
		case t.Over == nil:
			b.problem(here, "over is missing; name the number")
			continue
		case !(*t.Over >= 0 && *t.Over <= maxOver):
			b.problem(here.of("over"), "is %v; 0 to 1e15 are accepted", *t.Over)
		case !t.RaiseTo.valid() || t.RaiseTo <= above:
			b.problem(here, "raise_to is %d; a tier above %d is accepted", t.RaiseTo, above)
		}
		all = append(all, threshold{over: *t.Over, raiseTo: t.RaiseTo})
	}
	return all
}

// notOfTargets are the variables that no target is worked out from: what an agent
// only says, and what is otherwise for the same call at another time.
var notOfTargets = []string{
	"target", "irreversible", "tier", "first_use_of_tool", "first_use_of_integration", "first_use_of_agent", "in_hours", "weekday", "hour",
}

var argumentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

var integrationName = regexp.MustCompile(`^[A-Za-z0-9_\-/]{1,100}$`)

func (b *builder) buildIntegration(name string, written integrationDocument) {
	at := place{"integrations", name}
	if !integrationName.MatchString(name) {
		b.problem(at, "a name is letters, digits, _, - and /; an action is INTEGRATION.TOOL")
	}
	rules := &integrationRules{
		mode:         b.modeNamed(at.of("mode"), written.Mode),
		environments: make(map[string]*mode),
	}
	for _, environment := range slices.Sorted(maps.Keys(written.Environments)) {
		if _, ok := b.environments[environment]; !ok {
			b.problem(at.of("environments", environment), "the environment isn't defined; there are %s", strings.Join(slices.Sorted(maps.Keys(b.environments)), ", "))
		}
		chosen := written.Environments[environment]
		if chosen == "" {
			b.problem(at.of("environments", environment), "names no mode")
		}
		rules.environments[environment] = b.modeNamed(at.of("environments", environment), chosen)
	}
	for _, tool := range slices.Sorted(maps.Keys(written.Tools)) {
		made := b.buildTool(at.of("tools", tool), name, tool, written.Tools[tool])
		if made.pattern.isExact() {
			b.exact[made.id] = made
			folded := strings.ToLower(made.id)
			b.folded.exact[folded] = append(b.folded.exact[folded], made)
		} else {
			rules.patterns = append(rules.patterns, made)
			folded := strings.ToLower(name)
			b.folded.patterns[folded] = append(b.folded.patterns[folded], made)
		}
	}
	b.integrations[name] = rules
}

func (b *builder) buildTool(at place, integration, name string, written toolDocument) *toolRules {
	if !patternName.MatchString(name) {
		b.problem(at, "a tool is letters, digits, _, -, ., / and * for any characters")
	}
	if !written.Tier.valid() {
		b.problem(at, "tier is %d; tiers are 1 to 5", written.Tier)
	}
	tool := &toolRules{
		id:        integration + "." + name,
		pattern:   pattern(name),
		tier:      written.Tier,
		bulk:      b.thresholds(at.of("bulk"), written.Bulk, written.Tier),
		highValue: b.thresholds(at.of("high_value"), written.HighValue, written.Tier),
		redact:    b.pointers(at.of("redact"), written.Redact),
	}
	tool.count = b.expression(at.of("count"), written.Count, cel.IntType, cel.UintType, cel.DoubleType)
	tool.amount = b.expression(at.of("amount"), written.Amount, cel.IntType, cel.UintType, cel.DoubleType)
	tool.target = b.expression(at.of("target"), written.Target, cel.StringType)
	if tool.target != nil {
		tool.targetReads = payloadReads(tool.target.checked, tool.target.checked.NativeRep().Expr())
		for _, other := range notOfTargets {
			if tool.target.uses(other) {
				b.problem(at.of("target"), "reads %s; what a call acts on is worked out from args, action, integration, tool, environment, agent and owner", other)
			}
		}
	}
	tool.idempotency = written.Idempotency
	if has(b.file, at.of("idempotency")) && !argumentName.MatchString(written.Idempotency) {
		b.problem(at.of("idempotency"), "%q is not an argument's name (like idempotency_key)", written.Idempotency)
	}
	if len(written.HighValue) > 0 && written.Amount == "" {
		b.problem(at.of("high_value"), "needs amount, an expression that says what a call is worth")
	}
	return tool
}

// expression compiles what is written; nil for nothing.
func (b *builder) expression(at place, source string, want ...*cel.Type) *expression {
	if strings.TrimSpace(source) == "" {
		if has(b.file, at) {
			b.problem(at, "is empty; write an expression, or leave it out")
		}
		return nil
	}
	made, err := compile(source, want...)
	if err != nil {
		b.problem(at, "%v", err)
		return nil
	}
	return made
}

func (b *builder) keys(written []string) []string {
	folded := make([]string, 0, len(written))
	for i, key := range written {
		if key == "" {
			b.problem(place{"redact", "keys", i}, "is empty; name a key")
		}
		folded = append(folded, strings.ToLower(key))
	}
	return union(nil, folded)
}

var jsonPointer = regexp.MustCompile(`^(/([^~/]|~0|~1)*)+$`)

func (b *builder) pointers(at place, written []string) []string {
	for i, pointer := range written {
		if !jsonPointer.MatchString(pointer) {
			b.problem(at.of(i), "%q is not a JSON Pointer (like /customer/card)", pointer)
		}
	}
	return union(nil, written)
}

func (b *builder) buildLimits() {
	written := b.source.Limits
	at := place{"limits"}
	b.limits = Limits{Pending: defaultPending, PerMinute: defaultPerMinute, Cooldown: defaultCooldown}
	if written.Pending != nil {
		b.limits.Pending = *written.Pending
		if *written.Pending < 1 || *written.Pending > maxPending {
			b.problem(at.of("pending"), "is %d; 1 to %d are accepted", *written.Pending, maxPending)
		}
	}
	if written.PerMinute != nil {
		b.limits.PerMinute = *written.PerMinute
		if *written.PerMinute < 1 || *written.PerMinute > 1_000_000 {
			b.problem(at.of("per_minute"), "is %d; 1 to 1000000 are accepted", *written.PerMinute)
		}
	}
	if written.Cooldown != nil {
		b.limits.Cooldown = *written.Cooldown
		if *written.Cooldown < 0 || *written.Cooldown > 7*24*time.Hour {
			b.problem(at.of("cooldown"), "is %s; 0s to 168h are accepted", *written.Cooldown)
		}
	}
}

func distinct(values []string) []string {
	var kept []string
	for _, value := range values {
		if !slices.Contains(kept, value) {
			kept = append(kept, value)
		}
	}
	return kept
}
