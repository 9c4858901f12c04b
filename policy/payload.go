package policy

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign/countersign/internal/strictjson"
)

// decode reads a payload as conditions see it: objects, lists, strings, bools,
// nil, integers as int64 and other numbers as float64. A number that neither
// holds is an error in its place, and flawed says that there is one.
//
// It accepts what [strictjson.Check] accepts.
func decode(payload []byte) (value any, flawed bool, err error) {
	d := payloadDecoder{Decoder: decoders.Get().(*jsontext.Decoder)}
	defer decoders.Put(d.Decoder)
	d.Reset(bytes.NewBuffer(payload))
	value, err = d.value()
	if err == nil && len(bytes.TrimLeft(payload[d.InputOffset():], " \t\r\n")) == 0 {
		return value, d.flawed, nil
	}
	if why := strictjson.Check(payload); why != nil {
		err = why
	}
	return nil, true, fmt.Errorf("reading the payload: %w", err)
}

var (
	errNumber = errors.New("the number is too large for a condition")
	errDeep   = errors.New("it is nested too deep")
)

// decoders are kept for the next payload: much of the time for a small one would
// go into making them.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

type payloadDecoder struct {
	*jsontext.Decoder
	flawed bool
}

func (d *payloadDecoder) value() (any, error) {
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	if d.StackDepth() > strictjson.MaxDepth {
		return nil, errDeep
	}
	switch token.Kind() {
	case jsontext.KindBeginObject:
		return d.object()
	case jsontext.KindBeginArray:
		return d.list()
	case jsontext.KindString:
		return token.String(), nil
	case jsontext.KindNumber:
		return d.number(token.String()), nil
	case jsontext.KindTrue:
		return true, nil
	case jsontext.KindFalse:
		return false, nil
	default:
		return nil, nil
	}
}

func (d *payloadDecoder) object() (map[string]any, error) {
	object := make(map[string]any)
	for d.PeekKind() != jsontext.KindEndObject {
		key, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		name := key.String()
		if object[name], err = d.value(); err != nil {
			return nil, err
		}
	}
	_, err := d.ReadToken()
	return object, err
}

func (d *payloadDecoder) list() ([]any, error) {
	list := []any{}
	for d.PeekKind() != jsontext.KindEndArray {
		element, err := d.value()
		if err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	_, err := d.ReadToken()
	return list, err
}

// number is a number as CEL holds it, or an error for one that it can't hold.
func (d *payloadDecoder) number(literal string) any {
	if whole, err := strconv.ParseInt(literal, 10, 64); err == nil {
		return whole
	}
	broken, err := strconv.ParseFloat(literal, 64)
	if err != nil || !strings.ContainsAny(literal, ".eE") {
		d.flawed = true
		return types.WrapErr(errNumber)
	}
	return broken
}

// args is a payload as the variable of conditions. A number that CEL can't hold
// is an error to whoever touches it, and so is a payload that can't be read.
// flawed means that there is an error in it.
func args(payload []byte) (value ref.Val, flawed bool) {
	decoded, flawed, err := decode(payload)
	if err != nil {
		return types.WrapErr(err), true
	}
	return inOrder{types.DefaultTypeAdapter}.NativeToValue(decoded), flawed
}

// inOrder gives conditions values whose objects are walked in the order of their
// keys: one call has one ruling, and the order of Go's maps is another each time.
type inOrder struct{ types.Adapter }

// NativeToValue makes a CEL value of a decoded one.
func (o inOrder) NativeToValue(value any) ref.Val {
	switch value := value.(type) {
	case map[string]any:
		return object{types.NewStringInterfaceMap(o, value), value}
	case []any:
		return types.NewDynamicList(o, value)
	default:
		return o.Adapter.NativeToValue(value)
	}
}

type object struct {
	traits.Mapper
	members map[string]any
}

// Iterator walks the keys.
func (o object) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, slices.Sorted(maps.Keys(o.members))).Iterator()
}

// longestList is the length of the longest list at the top of a payload, where
// actions list what they act on; false if there is none.
func longestList(payload ref.Val) (int, bool, error) {
	if failure, ok := payload.(*types.Err); ok {
		return 0, false, failure
	}
	longest, found := 0, false
	see := func(value any) {
		if list, ok := value.([]any); ok {
			longest, found = max(longest, len(list)), true
		}
	}
	see(payload.Value())
	if object, ok := payload.Value().(map[string]any); ok {
		for _, member := range object {
			see(member)
		}
	}
	return longest, found, nil
}
