package approval

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/strictjson"
)

// DefaultPayloadLimit is the largest payload in bytes unless configured
// otherwise: 256 KiB.
const DefaultPayloadLimit = 256 << 10

// Payload is the exact JSON text that will run. It is stored and returned byte
// for byte and never decoded and encoded again, so 9007199254740993, 1e400 and
// 0.10 survive.
type Payload []byte

// checkPayload refuses what isn't exactly one strict JSON value within limit
// bytes: duplicate keys, broken UTF-8, lone surrogates and trailing data.
func checkPayload(data []byte, limit int) error {
	if len(data) == 0 {
		return invalid("payload", "is missing; give the exact JSON that will run")
	}
	if len(data) > limit {
		return invalid("payload", "is %d bytes; at most %d are accepted", len(data), limit)
	}
	if err := strictjson.Check(data); err != nil {
		var syntax *strictjson.SyntaxError
		if errors.As(err, &syntax) {
			return invalid("payload", "is %s", syntax)
		}
		return invalid("payload", "is not strict JSON: %v", err)
	}
	return nil
}

// checkArguments refuses a payload, which checkPayload has taken, that isn't an
// object if the gateway runs it: it is the arguments of a tool.
func checkArguments(by Executor, data []byte) error {
	if by == ByGateway && !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return invalid("payload", "is not a JSON object, which the arguments of a tool are")
	}
	return nil
}

// Listed is an array that the payload holds at the top level or directly under
// a top-level member, with the number of its elements.
type Listed struct {
	Name   string // the member's name; empty for a payload that is an array
	Length int
}

// Lists returns the arrays that a reader would count, in written order.
func (p Payload) Lists() []Listed {
	lengths, err := strictjson.ArrayLengths(p)
	if err != nil {
		// A stored payload was checked when it was accepted.
		return nil
	}
	lists := make([]Listed, len(lengths))
	for i, l := range lengths {
		lists[i] = Listed{Name: l.Name, Length: l.Length}
	}
	return lists
}

func digest(action, environment, toolPin string, version int, payload Payload) (Digest, error) {
	canonical, err := strictjson.Canonical(payload)
	if err != nil {
		return Digest{}, fmt.Errorf("putting the payload in canonical form: %w", err)
	}
	h := sha256.New()
	field := func(data []byte) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(data)))
		h.Write(length[:])
		h.Write(data)
	}
	field([]byte("countersign/digest/v1"))
	field([]byte(action))
	field([]byte(environment))
	field([]byte(toolPin))
	field(binary.BigEndian.AppendUint64(nil, uint64(version)))
	field(canonical)
	return Digest(h.Sum(nil)), nil
}
