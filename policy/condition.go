package policy

import (
	"errors"
	"fmt"
	"math"
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
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"
)

// costLimit bounds the work of one condition, in CEL's units: about a
// comparison each. One that reaches it fails.
const costLimit = 100_000

// maxCondition is how long a condition may be, in bytes.
const maxCondition = 4096

// environment declares what conditions may use. The count, the amount and the
// hints aren't there on purpose: what may only ever make a ruling stricter has
// keys of its own, so that no condition can turn it around.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(maxCondition),
		cel.ParserRecursionLimit(64),
		ext.Strings(),
		cel.Variable("args", cel.DynType),
		cel.Variable("action", cel.StringType),
		cel.Variable("integration", cel.StringType),
		cel.Variable("tool", cel.StringType),
		cel.Variable("target", cel.StringType),
		cel.Variable("environment", cel.StringType),
		cel.Variable("agent", cel.StringType),
		cel.Variable("owner", cel.StringType),
		cel.Variable("tier", cel.IntType),
		cel.Variable("irreversible", cel.BoolType),
		cel.Variable("first_use_of_tool", cel.BoolType),
		cel.Variable("first_use_of_integration", cel.BoolType),
		cel.Variable("first_use_of_agent", cel.BoolType),
		cel.Variable("in_hours", cel.BoolType),
		cel.Variable("weekday", cel.StringType),
		cel.Variable("hour", cel.IntType),
	)
})

// expression is a compiled CEL expression.
type expression struct {
	source  string
	checked *cel.Ast
	program cel.Program
}

// compile type-checks an expression whose result is of one of the types. A dyn
// result is accepted, and checked when it is there.
func compile(source string, want ...*cel.Type) (*expression, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("preparing conditions: %w", err)
	}
	if len(source) > maxCondition {
		return nil, fmt.Errorf("has %d bytes; at most %d are accepted", len(source), maxCondition)
	}
	checked, issues := env.Compile(source)
	if err := issues.Err(); err != nil {
		return nil, errors.New(problems(issues))
	}
	fits := checked.OutputType().IsExactType(cel.DynType)
	var names []string
	for _, wanted := range want {
		fits = fits || checked.OutputType().IsExactType(wanted)
		names = append(names, wanted.String())
	}
	if !fits {
		return nil, fmt.Errorf("gives %s; %s is needed", checked.OutputType(), strings.Join(names, " or "))
	}
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize), cel.CustomDecoratorV2(guardComparison)}
	if !isCheap(checked) {
		options = append(options, cel.CostLimit(costLimit))
	}
	program, err := env.Program(checked, options...)
	if err != nil {
		return nil, fmt.Errorf("can't be planned: %w", err)
	}
	return &expression{source: source, checked: checked, program: program}, nil
}

// cheapFunctions take next to no time, or no more than it takes to read the
// payload.
var cheapFunctions = map[string]bool{
	operators.LogicalAnd: true, operators.LogicalOr: true, operators.LogicalNot: true, operators.Conditional: true,
	operators.Equals: true, operators.NotEquals: true,
	operators.Less: true, operators.LessEquals: true, operators.Greater: true, operators.GreaterEquals: true,
	operators.Negate: true, operators.Subtract: true, operators.Multiply: true, operators.Divide: true, operators.Modulo: true,
	operators.Index: true, overloads.Size: true, overloads.StartsWith: true, overloads.EndsWith: true,
	overloads.TypeConvertInt: true, overloads.TypeConvertUint: true, overloads.TypeConvertDouble: true,
}

// isCheap reports whether an expression can't come to the cost limit, so that
// the cost need not be kept: it calls only cheap functions and has no loops.
func isCheap(checked *cel.Ast) bool {
	cheap := true
	ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(part ast.Expr) {
		switch part.Kind() {
		case ast.ComprehensionKind:
			cheap = false
		case ast.CallKind:
			cheap = cheap && cheapFunctions[part.AsCall().FunctionName()]
		}
	}))
	return cheap
}

// problems lists what is wrong with an expression, each with its place in it.
func problems(issues *cel.Issues) string {
	var texts []string
	for _, issue := range issues.Errors() {
		texts = append(texts, fmt.Sprintf("%s (at character %d)", issue.Message, issue.Location.Column()+1))
	}
	return strings.Join(texts, "; ")
}

// uses reports whether the expression reads a variable.
func (e *expression) uses(variable string) bool {
	for _, reference := range e.checked.NativeRep().ReferenceMap() {
		if reference.Name == variable {
			return true
		}
	}
	return false
}

// condition works the expression out as a condition.
func (e *expression) condition(facts interpreter.Activation) (bool, error) {
	value, err := e.value(facts)
	if err != nil {
		return false, err
	}
	result, ok := value.(types.Bool)
	if !ok {
		return false, fmt.Errorf("gives %s; a bool is needed", value.Type())
	}
	return bool(result), nil
}

// quantity works the expression out as a number of things or a worth. What
// isn't a finite number of at least zero is unbounded.
func (e *expression) quantity(facts interpreter.Activation) Quantity {
	value, err := e.value(facts)
	if err != nil {
		return Quantity{Unbounded: true}
	}
	var number float64
	switch value := value.(type) {
	case types.Int:
		number = float64(value)
	case types.Uint:
		number = float64(value)
	case types.Double:
		number = float64(value)
	default:
		number = math.NaN()
	}
	if math.IsNaN(number) || math.IsInf(number, 0) || number < 0 {
		return Quantity{Unbounded: true}
	}
	if number == 0 {
		number = 0 // and not -0, whose sign people would see
	}
	return Quantity{Value: number, Known: true}
}

// value works the expression out. A panic of a library is an error here, since
// an error has a safe meaning wherever conditions are used.
func (e *expression) value(facts interpreter.Activation) (value ref.Val, err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			value, err = nil, fmt.Errorf("evaluating: %v", recovered)
		}
	}()
	value, _, err = e.program.Eval(facts)
	return value, err
}

// comparison is a comparison that fails if what it compares holds an error. CEL
// by itself takes a list or an object with an error in it as equal to another.
type comparison struct {
	interpreter.InterpretableCall
	left, right interpreter.InterpretableV2
}

// guardComparison makes each comparison of an expression a guarded one.
func guardComparison(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := node.(interpreter.InterpretableCall)
	if !ok {
		return node, nil
	}
	switch call.Function() {
	case operators.Equals, operators.NotEquals, operators.In:
		return comparison{call, call.Args()[0], call.Args()[1]}, nil
	default:
		return node, nil
	}
}

// Exec compares.
func (c comparison) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if flawed, _ := frame.ResolveName(argsFlawed); flawed != true {
		return c.InterpretableCall.Exec(frame)
	}
	left, right := c.left.Exec(frame), c.right.Exec(frame)
	result := compared(c.Function(), left, right)
	if costs := frame.CostTracker(); costs != nil {
		costs.EvalBinary(frame, c.ID(), c.InterpretableCall, left, right, result)
	}
	return result
}

// Eval compares.
func (c comparison) Eval(facts interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(facts, c.Exec)
}

// compared is what a comparison comes to, or an error that is in what it
// compares.
func compared(function string, left, right ref.Val) ref.Val {
	if failure := failureIn(left); failure != nil {
		return failure
	}
	if _, isObject := right.(traits.Mapper); function != operators.In || !isObject { // of an object, only keys are compared with "in"
		if failure := failureIn(right); failure != nil {
			return failure
		}
	}
	switch function {
	case operators.Equals:
		return types.Equal(left, right)
	case operators.NotEquals:
		return types.Bool(types.Equal(left, right) != types.True)
	default:
		container, ok := right.(traits.Container)
		if !ok {
			return types.MaybeNoSuchOverloadErr(right)
		}
		return container.Contains(left)
	}
}

// failureIn is why a value of arguments with an error in them can't be compared;
// nil if it can. Looking for the error in every list and object, at every
// comparison, would let an agent make a ruling as slow as it likes.
func failureIn(value ref.Val) ref.Val {
	if types.IsError(value) {
		return value
	}
	_, isObject := value.(traits.Mapper)
	_, isList := value.(traits.Lister)
	if isObject || isList {
		return types.WrapErr(errFlawed)
	}
	return nil
}

var errFlawed = errors.New("lists and objects can't be compared, since there is a number in the arguments that is too large for a condition")

// facts are what conditions may know of one call.
type facts struct {
	call        Call
	integration string
	tool        string
	environment string
	owner       string
	tier        Tier
	clock       clock
	noTarget    bool    // the policy's target can't be told
	args        ref.Val // the decoded payload or an error; nil until somebody asks
	flawed      bool    // there are errors in it
}

var errTarget = errors.New("what the call acts on can't be told")

// argsFlawed is a variable that no expression can name.
const argsFlawed = "args!"

// payload is the decoded payload or an error.
func (f *facts) payload() ref.Val {
	if f.args == nil {
		f.args, f.flawed = args(f.call.Payload)
	}
	return f.args
}

// Parent is nil: there is nothing else to know.
func (*facts) Parent() interpreter.Activation { return nil }

// ResolveName gives the value of a variable.
func (f *facts) ResolveName(name string) (any, bool) {
	switch name {
	case "args":
		return f.payload(), true
	case argsFlawed:
		f.payload()
		return f.flawed, true
	case "action":
		return f.call.Action, true
	case "integration":
		return f.integration, true
	case "tool":
		return f.tool, true
	case "target":
		if f.noTarget {
			return types.WrapErr(errTarget), true
		}
		return f.call.Target, true
	case "environment":
		return f.environment, true
	case "agent":
		return f.call.Agent, true
	case "owner":
		return f.owner, true
	case "tier":
		return int64(f.tier), true
	case "irreversible":
		return isFalse(f.call.Reversible), true
	case "first_use_of_tool":
		return f.call.FirstUse.Tool, true
	case "first_use_of_integration":
		return f.call.FirstUse.Integration, true
	case "first_use_of_agent":
		return f.call.FirstUse.Agent, true
	case "in_hours":
		return f.clock.inHours(f.call.At), true
	case "weekday":
		return weekdays[f.clock.local(f.call.At).Weekday()], true
	case "hour":
		return int64(f.clock.local(f.call.At).Hour()), true
	}
	return nil, false
}

// clock are the hours in which people are at work.
type clock struct {
	zone     *time.Location // nil means UTC
	days     [7]bool        // by time.Weekday
	from, to int            // minutes after midnight; from is before to
}

var weekdays = [7]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

func (c clock) local(at time.Time) time.Time {
	if c.zone == nil {
		return at.UTC()
	}
	return at.In(c.zone)
}

func (c clock) inHours(at time.Time) bool {
	local := c.local(at)
	minute := local.Hour()*60 + local.Minute()
	return c.days[local.Weekday()] && minute >= c.from && minute < c.to
}
