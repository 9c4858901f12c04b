package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/countersign/countersign/internal/visible"
)

// Explanation is how the policy came to a ruling, step by step. Its JSON is
// stable: members may be added. Apart from the count and the amount, which are
// numbers that the policy's expressions give, it holds no value of the payload
// that the policy redacts.
type Explanation struct {
	Ruling Ruling `json:"ruling"`
	Agent  string `json:"agent"`
	Action string `json:"action"`
	// Stated is the environment as the agent states it, empty if it doesn't.
	Stated string `json:"stated_environment,omitempty"`
	// EnvironmentKnown is false if the policy doesn't know what the agent
	// states, so that the environment is production.
	EnvironmentKnown bool `json:"environment_known"`

	// Unpinned means that the tool's definition isn't the one that was accepted.
	Unpinned bool `json:"unpinned,omitempty"`

	Class ExplainedClass `json:"class"`
	Mode  ExplainedMode  `json:"mode"`
	// Count and Amount say how each was worked out, in order.
	Count  []string `json:"count,omitempty"`
	Amount []string `json:"amount,omitempty"`
	// Target says how what the call acts on was worked out.
	Target []string `json:"target,omitempty"`
	// Rules are the rules that are about the action, by id, also those that
	// didn't fire.
	Rules []ExplainedRule `json:"rules,omitempty"`
}

// ExplainedClass is how the policy classifies the action.
type ExplainedClass struct {
	ID   string `json:"id"`
	Tier Tier   `json:"tier"`
}

// ExplainedMode is what the mode does with the tier that the rules came to.
type ExplainedMode struct {
	Name string `json:"name"`
	// Of says whose mode it is: "the policy", or an environment, an integration,
	// or both: "production", "crm", "crm in production".
	Of     string `json:"of"`
	Tier   Tier   `json:"tier"`
	Effect Effect `json:"effect"`
}

// ExplainedRule is what one rule made of the call.
type ExplainedRule struct {
	ID    string `json:"id"`
	Does  string `json:"does"` // "denies", "raises to tier 4", "lowers to tier 3"
	Fired bool   `json:"fired"`
	// Because says why it fired although its condition failed, or why it didn't
	// fire; empty if it simply fired.
	Because string `json:"because,omitempty"`
	// When is the rule's condition; nil if it has none or didn't come to it.
	When *ExplainedResult `json:"when,omitempty"`
}

// ExplainedResult is a condition, or a part of one, with its value.
type ExplainedResult struct {
	Expression string `json:"expression"` // on one line
	// Value is for people: true, 3, "text" (its beginning if it is long, and
	// hidden characters as escapes), "a list of 3", "an object with 2 members",
	// "redacted", "can't be worked out" or "not worked out".
	Value string `json:"value"`
	// Error says why a condition can't be worked out, unless that would give
	// away what is redacted.
	Error string `json:"error,omitempty"`
	// Joins says how the parts make the value: all of them ("and"), any of them
	// ("or"), the contrary of the one ("not"), or the second if the first is
	// true and else the third ("if"). Empty means in another way, which the
	// expression says.
	Joins string            `json:"joins,omitempty"`
	Parts []ExplainedResult `json:"parts,omitempty"`
}

// The ways in which parts make a value.
const (
	joinsAnd = "and"
	joinsOr  = "or"
	joinsNot = "not"
	joinsIf  = "if"
)

// Values that aren't one.
const (
	valueFailed   = "can't be worked out"
	valueSkipped  = "not worked out"
	valueRedacted = "redacted"
)

// Explain answers for one call as Rule does, and says how it came to that.
func (p *Policy) Explain(c Call) Explanation {
	x := Explanation{Agent: c.Agent, Action: c.Action, Stated: c.Environment, Unpinned: c.Unpinned}
	x.Ruling = p.evaluate(c, &x)
	_, x.EnvironmentKnown = p.named[strings.ToLower(c.Environment)]
	x.Mode.Of = p.modeOwner(x.Ruling.Integration, x.Ruling.Environment, x.Mode.Name)
	slices.SortFunc(x.Rules, func(a, b ExplainedRule) int { return strings.Compare(a.ID, b.ID) })
	return x
}

// modeOwner says whose mode the one of that name is, which counted for a call.
func (p *Policy) modeOwner(integration, environment, name string) string {
	within := p.integrations[integration]
	is := func(m *mode) bool { return m != nil && m.name == name }
	switch {
	case within != nil && is(within.environments[environment]):
		return integration + " in " + environment
	case within != nil && is(within.mode):
		return integration
	case is(p.environments[environment].mode):
		return environment
	case name != p.mode.name:
		return "another spelling of " + integration
	default:
		return "the policy"
	}
}

// The methods that record a step do nothing for nil, which is how a ruling is
// made that nobody asks about.

func (x *Explanation) classified(c class) {
	if x != nil {
		x.Class = ExplainedClass{ID: c.id, Tier: c.tier}
	}
}

func (x *Explanation) sorted(tier Tier, m mode, effect Effect) {
	if x != nil {
		x.Mode = ExplainedMode{Name: m.name, Tier: tier, Effect: effect}
	}
}

func (x *Explanation) listed(length int, found bool, err error) {
	switch {
	case x == nil:
	case err != nil:
		x.Count = append(x.Count, "the arguments can't be read")
	case found:
		x.Count = append(x.Count, fmt.Sprintf("the longest list in the arguments has %s", grouped(float64(length))))
	}
}

func (x *Explanation) quantity(what string, from *expression, q Quantity) {
	if x == nil {
		return
	}
	text := fmt.Sprintf("%s gives %s", onOneLine(from.source), q)
	if q.Unbounded {
		text = fmt.Sprintf("%s %s", onOneLine(from.source), valueFailed)
	}
	if what == "count" {
		x.Count = append(x.Count, text)
	} else {
		x.Amount = append(x.Amount, text)
	}
}

// aimed notes what an expression gives as a target, or why it gives none.
func (x *Explanation) aimed(from *expression, text, why string) {
	switch {
	case x == nil:
	case why == valueRedacted:
		x.Target = append(x.Target, fmt.Sprintf("%s reads what is redacted", onOneLine(from.source)))
	case why != "":
		x.Target = append(x.Target, fmt.Sprintf("%s %s", onOneLine(from.source), why))
	case text == "":
		x.Target = append(x.Target, fmt.Sprintf("%s gives an empty text", onOneLine(from.source)))
	default:
		x.Target = append(x.Target, fmt.Sprintf("%s gives %s", onOneLine(from.source), visible.Line(text)))
	}
}

func (x *Explanation) stated(count *int64) {
	if x != nil && count != nil {
		x.Count = append(x.Count, "the agent states "+grouped(float64(*count)))
	}
}

func (x *Explanation) considered(r *rule, fired bool, why string, err error, e *evaluation) {
	if x == nil {
		return
	}
	step := ExplainedRule{ID: r.id, Fired: fired, Because: why}
	switch r.kind {
	case blocks:
		step.Does = "denies"
	case raises:
		step.Does = fmt.Sprintf("raises to tier %d", r.tier)
	case lowers:
		step.Does = fmt.Sprintf("lowers to tier %d", r.tier)
	}
	if err != nil && fired {
		step.Because = "its condition can't be worked out, which counts as met"
	}
	if r.when != nil && (fired || err != nil || why == conditionNotMet) {
		when := r.when.explain(e, fired, err)
		step.When = &when
	}
	x.Rules = append(x.Rules, step)
}

// tracingEnvironment is that of conditions, and keeps what macros such as
// exists are written as.
var tracingEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	return env.Extend(cel.EnableMacroCallTracking())
})

// explain says what became of a condition, given what the ruling made of it:
// whether it is met, or why it failed. The parts are worked out again, all of
// them, also those that the answer doesn't depend on.
func (e *expression) explain(call *evaluation, met bool, failure error) ExplainedResult {
	result := ExplainedResult{Expression: onOneLine(e.source), Value: strconv.FormatBool(met)}
	p, err := e.parts(call)
	if err == nil {
		result.Joins, result.Parts = p.of(p.checked.NativeRep().Expr())
	}
	if failure != nil {
		result.Value = valueFailed
		result.Error = p.describe(failure)
	}
	return result
}

// parts are the values of an expression's parts.
type parts struct {
	checked *cel.Ast
	details *cel.EvalDetails
	// hidden are JSON Pointers to what is redacted. unreadable means that the
	// payload can't be read, so that nothing says what is.
	hidden     []string
	unreadable bool
}

func (e *expression) parts(call *evaluation) (p parts, err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = fmt.Errorf("evaluating: %v", recovered)
		}
	}()
	payload := call.facts.payload()
	p.unreadable = types.IsError(payload)
	if !p.unreadable {
		p.hidden = call.redactions().hidden(payload.Value())
	}
	env, err := tracingEnvironment()
	if err != nil {
		return p, err
	}
	checked, issues := env.Compile(e.source)
	if err := issues.Err(); err != nil {
		return p, err
	}
	p.checked = checked
	program, err := env.Program(checked, cel.EvalOptions(cel.OptExhaustiveEval), cel.CostLimit(costLimit), cel.CustomDecoratorV2(guardComparison))
	if err != nil {
		return p, err
	}
	// That it fails is no error here: what was worked out until then counts.
	_, p.details, _ = program.Eval(&call.facts)
	return p, nil
}

// of explains what an expression consists of, and how.
func (p parts) of(expr ast.Expr) (joins string, found []ExplainedResult) {
	switch expr.Kind() {
	case ast.CallKind:
		return p.ofCall(expr)
	case ast.SelectKind:
		return "", p.looked(expr.AsSelect().Operand())
	case ast.ComprehensionKind:
		return "", p.looked(expr.AsComprehension().IterRange())
	case ast.ListKind:
		for _, element := range expr.AsList().Elements() {
			found = append(found, p.looked(element)...)
		}
	case ast.MapKind:
		for _, entry := range expr.AsMap().Entries() {
			found = append(found, p.looked(entry.AsMapEntry().Key())...)
			found = append(found, p.looked(entry.AsMapEntry().Value())...)
		}
	}
	return "", found
}

func (p parts) ofCall(expr ast.Expr) (joins string, found []ExplainedResult) {
	call := expr.AsCall()
	switch function := call.FunctionName(); function {
	case operators.LogicalAnd, operators.LogicalOr:
		joins = joinsAnd
		if function == operators.LogicalOr {
			joins = joinsOr
		}
		for _, side := range sides(expr, function) {
			found = append(found, p.part(side))
		}
		return joins, found
	case operators.LogicalNot:
		return joinsNot, []ExplainedResult{p.part(call.Args()[0])}
	case operators.Conditional:
		for _, one := range call.Args() {
			found = append(found, p.part(one))
		}
		// A branch that is only looked up has no value of its own.
		for branch, condition := range map[int]string{1: "true", 2: "false"} {
			if found[branch].Value == valueSkipped && found[0].Value == condition {
				found[branch].Value = p.value(expr)
			}
		}
		return joinsIf, found
	}
	if call.IsMemberFunction() {
		found = p.looked(call.Target())
	}
	for _, argument := range call.Args() {
		found = append(found, p.looked(argument)...)
	}
	return "", found
}

// sides are what a chain of the same and, or of the same or, joins.
func sides(expr ast.Expr, function string) []ast.Expr {
	if expr.Kind() != ast.CallKind || expr.AsCall().FunctionName() != function {
		return []ast.Expr{expr}
	}
	var all []ast.Expr
	for _, side := range expr.AsCall().Args() {
		all = append(all, sides(side, function)...)
	}
	return all
}

// looked explains what a part looks at, as far as its value says something: a
// literal's doesn't, nor does the whole payload's.
func (p parts) looked(expr ast.Expr) []ExplainedResult {
	switch expr.Kind() {
	case ast.LiteralKind:
		return nil
	case ast.IdentKind:
		if expr.AsIdent() == "args" {
			return nil
		}
	case ast.ListKind, ast.MapKind:
		_, found := p.of(expr)
		return found
	}
	return []ExplainedResult{p.part(expr)}
}

// part explains one part with what it consists of.
func (p parts) part(expr ast.Expr) ExplainedResult {
	text, err := cel.ExprToString(expr, p.checked.NativeRep().SourceInfo())
	if err != nil {
		text = "a part"
	}
	result := ExplainedResult{Expression: onOneLine(text), Value: p.value(expr)}
	if _, isPath := payloadPath(expr); !isPath {
		result.Joins, result.Parts = p.of(expr)
	}
	return result
}

// value is the value of a part for people. One that might give away what is
// redacted isn't shown. Whether a comparison with it holds is: the ruling may
// say that much.
func (p parts) value(expr ast.Expr) string {
	value, ok := p.details.State().Value(expr.ID())
	switch {
	case !ok || value == nil || types.IsUnknown(value):
		return valueSkipped
	case types.IsError(value):
		return valueFailed
	case value.Type() == types.BoolType && compares(expr):
		return shown(value)
	case p.reveals(expr):
		return valueRedacted
	default:
		return shown(value)
	}
}

// compares reports whether a part's value is the outcome of looking at other
// values, and not one of them as it is, or its contrary.
func compares(expr ast.Expr) bool {
	switch expr.Kind() {
	case ast.IdentKind: // what exists or all have found so far
		return strings.HasPrefix(expr.AsIdent(), "@")
	case ast.ComprehensionKind:
		return compares(expr.AsComprehension().LoopStep())
	case ast.SelectKind:
		return expr.AsSelect().IsTestOnly()
	case ast.CallKind:
	default:
		return false
	}
	switch call := expr.AsCall(); call.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional:
		return !slices.ContainsFunc(call.Args(), func(side ast.Expr) bool { return !compares(side) })
	case operators.Index, overloads.TypeConvertDyn, overloads.TypeConvertBool:
		return false
	default:
		return true
	}
}

// reveals reports whether the part reads something of the payload that is
// redacted, or reads it in a way that isn't certain not to.
func (p parts) reveals(expr ast.Expr) bool {
	if len(p.hidden) == 0 {
		return false
	}
	return slices.ContainsFunc(payloadReads(p.checked, expr), func(path []string) bool { return p.touches(pointerTo(path)) })
}

// payloadReads are the paths at which an expression reads the payload: as far
// as it names them, what it does with what is there isn't looked at.
func payloadReads(checked *cel.Ast, expr ast.Expr) [][]string {
	var paths [][]string
	for _, inner := range ast.MatchDescendants(ast.NavigateExpr(checked.NativeRep(), expr), ast.AllMatcher()) {
		if inner.Kind() != ast.IdentKind || inner.AsIdent() != "args" {
			continue
		}
		read := inner
		for {
			parent, ok := read.Parent()
			if !ok {
				break
			}
			if _, isPath := payloadPath(parent); !isPath {
				break
			}
			read = parent
		}
		path, _ := payloadPath(read)
		if parent, ok := read.Parent(); ok && parent.Kind() == ast.SelectKind {
			path = append(path, parent.AsSelect().FieldName()) // as has does
		}
		paths = append(paths, path)
	}
	return paths
}

// touches reports whether what stands at a pointer is part of what is redacted
// or has a part that is.
func (p parts) touches(pointer string) bool {
	within := func(inner, outer string) bool { return inner == outer || strings.HasPrefix(inner, outer+"/") }
	return slices.ContainsFunc(p.hidden, func(hidden string) bool {
		return within(hidden, pointer) || within(pointer, hidden)
	})
}

// payloadPath is the path in the payload whose value an expression such as
// args.customer["card"] is.
func payloadPath(expr ast.Expr) ([]string, bool) {
	switch expr.Kind() {
	case ast.IdentKind:
		return nil, expr.AsIdent() == "args"
	case ast.SelectKind:
		if expr.AsSelect().IsTestOnly() {
			return nil, false
		}
		path, ok := payloadPath(expr.AsSelect().Operand())
		return append(path, expr.AsSelect().FieldName()), ok
	case ast.CallKind:
		call := expr.AsCall()
		if call.FunctionName() != operators.Index || len(call.Args()) != 2 || call.Args()[1].Kind() != ast.LiteralKind {
			return nil, false
		}
		var segment string
		switch literal := call.Args()[1].AsLiteral().(type) {
		case types.String:
			segment = string(literal)
		case types.Int:
			segment = strconv.FormatInt(int64(literal), 10)
		default: // there are several ways to write a double
			return nil, false
		}
		path, ok := payloadPath(call.Args()[0])
		return append(path, segment), ok
	}
	return nil, false
}

// describe says for people why a condition failed. The words of the CEL library
// may hold values of the payload, so they are only used if none is redacted.
func (p parts) describe(failure error) string {
	text := failure.Error()
	switch {
	case p.unreadable:
		return "the arguments can't be read"
	case strings.Contains(text, "no such overload"):
		return "a value is of another type than it expects"
	case strings.Contains(text, "index out of bounds"):
		return "a list is shorter than it expects"
	case strings.Contains(text, "cost limit"):
		return "it takes too much work"
	case p.checked == nil && len(p.hidden) > 0, p.checked != nil && p.reveals(p.checked.NativeRep().Expr()):
		return ""
	}
	if _, key, found := strings.Cut(text, "no such key: "); found {
		return "there is no " + quoted(key)
	}
	return short(text)
}

// maxShown is how many characters of a value an explanation shows.
const maxShown = 80

// short is a text as people can read it, and its beginning if it is long.
func short(text string) string { return shortened(visible.Line(text), maxShown) }

// shortened is the beginning of a visible text, with a mark if it isn't all.
func shortened(text string, characters int) string {
	cut, leftOut := visible.Cut(text, characters)
	if leftOut {
		cut += "…"
	}
	return cut
}

// quoted is short in quotation marks that the text can't end.
func quoted(text string) string { return `"` + short(strings.ReplaceAll(text, `"`, `\"`)) + `"` }

// onOneLine writes an expression that may stand on several lines on one.
func onOneLine(source string) string {
	lines := strings.FieldsFunc(source, func(r rune) bool { return r == '\n' || r == '\r' })
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return visible.Line(strings.TrimSpace(strings.Join(lines, " ")))
}

// shown writes a value for people: short, with nothing that hides or disguises
// text.
func shown(value ref.Val) string {
	switch value := value.(type) {
	case types.String:
		return quoted(string(value))
	case traits.Mapper:
		return fmt.Sprintf("an object with %s", things(value.Size(), "member"))
	case traits.Lister:
		return fmt.Sprintf("a list of %s", grouped(float64(value.Size().(types.Int))))
	case types.Double:
		if math.Abs(float64(value)) < 1e15 {
			return strconv.FormatFloat(float64(value), 'f', -1, 64)
		}
		return fmt.Sprint(float64(value))
	case types.Bool, types.Int, types.Uint:
		return fmt.Sprint(value.Value())
	case types.Null:
		return "null"
	case types.Timestamp:
		return value.UTC().Format(time.RFC3339)
	case types.Duration:
		return value.String()
	default:
		return "a " + value.Type().TypeName()
	}
}

func things(size ref.Val, what string) string {
	number, _ := size.(types.Int)
	if number != 1 {
		what += "s"
	}
	return grouped(float64(number)) + " " + what
}
