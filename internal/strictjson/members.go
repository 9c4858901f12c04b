package strictjson

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrNotObject is returned by [Members] for a valid value of another type.
var ErrNotObject = errors.New("the JSON value isn't an object")

// Member is one key of an object with its value.
type Member struct {
	// Name is the key with its escapes decoded.
	Name string

	// Value is the value exactly as written, with the white space inside it and
	// without the white space around it. It shares memory with the text that it
	// was read from; its capacity ends with it, so appending never overwrites
	// what follows.
	Value []byte
}

// Members returns the members of the object that data holds, in the order in
// which they are written. Data must pass [Check], else its error is returned;
// [ErrNotObject] if it holds something else than an object.
func Members(data []byte) ([]Member, error) {
	if err := Check(data); err != nil {
		return nil, err
	}
	decoder := newDecoder(data)
	if decoder.PeekKind() != jsontext.KindBeginObject {
		return nil, ErrNotObject
	}
	if _, err := decoder.ReadToken(); err != nil {
		return nil, syntaxError(data, err)
	}
	var members []Member
	for decoder.PeekKind() != jsontext.KindEndObject {
		name, err := decoder.ReadToken()
		if err != nil {
			return nil, syntaxError(data, err)
		}
		member := Member{Name: name.String()}
		value, err := decoder.ReadValue()
		if err != nil {
			return nil, syntaxError(data, err)
		}
		end := int(decoder.InputOffset())
		member.Value = data[end-len(value) : end : end]
		members = append(members, member)
	}
	return members, nil
}

// ArrayLength is how many elements one array of a payload has.
type ArrayLength struct {
	// Whole is true where the array is the whole text; Name is then empty.
	Whole bool

	// Name is the decoded key under which the array stands in the object that
	// the text holds.
	Name string

	// Length is the number of elements.
	Length int
}

// ArrayLengths returns the length of each array that stands where an action
// lists what it acts on: the text itself, or a member of the object that the
// text holds, in the order in which they are written. Arrays further inside
// aren't counted, and for a text without such arrays the result is empty.
//
// Data must pass [Check], else its error is returned.
func ArrayLengths(data []byte) ([]ArrayLength, error) {
	if err := Check(data); err != nil {
		return nil, err
	}
	if newDecoder(data).PeekKind() == jsontext.KindBeginArray {
		length, err := arrayLength(data)
		if err != nil {
			return nil, err
		}
		return []ArrayLength{{Whole: true, Length: length}}, nil
	}
	members, err := Members(data)
	if errors.Is(err, ErrNotObject) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var lengths []ArrayLength
	for _, member := range members {
		if member.Value[0] != '[' {
			continue
		}
		length, err := arrayLength(member.Value)
		if err != nil {
			return nil, fmt.Errorf("counting the elements of %s: %w", quote(member.Name, maxKeyShown), err)
		}
		lengths = append(lengths, ArrayLength{Name: member.Name, Length: length})
	}
	return lengths, nil
}

// arrayLength counts the elements of the array that data holds.
func arrayLength(data []byte) (int, error) {
	decoder := newDecoder(data)
	if _, err := decoder.ReadToken(); err != nil {
		return 0, syntaxError(data, err)
	}
	length := 0
	for ; decoder.PeekKind() != jsontext.KindEndArray; length++ {
		if err := decoder.SkipValue(); err != nil {
			return 0, syntaxError(data, err)
		}
	}
	return length, nil
}
