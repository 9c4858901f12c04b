package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/policy"
)

// pinOf names the definition of a tool: SHA-256, with a domain prefix, over the
// definition in canonical form, so that the order of members and white space
// don't matter and everything else does. _meta is left out, since servers put
// there what differs from one listing to the next; every other member counts,
// also those that a later protocol will add, so that nothing a model reads can
// change unnoticed.
func pinOf(definition []strictjson.Member) (string, error) {
	counted := slices.DeleteFunc(slices.Clone(definition), func(m strictjson.Member) bool { return m.Name == metaName })
	canonical, err := strictjson.Canonical(object(counted))
	if err != nil {
		return "", fmt.Errorf("putting the definition in canonical form: %w", err)
	}
	sum := sha256.New()
	sum.Write([]byte("countersign/tool-pin/v1\x00"))
	sum.Write(canonical)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// hintsOf are the annotations of a tool's definition that policy knows. One that
// isn't true or false isn't stated.
func hintsOf(definition []strictjson.Member) policy.Hints {
	annotations, err := strictjson.Members(value(definition, "annotations"))
	if err != nil {
		return policy.Hints{}
	}
	hint := func(name string) *bool {
		var stated *bool
		if err := json.Unmarshal(value(annotations, name), &stated); err != nil {
			return nil
		}
		return stated
	}
	return policy.Hints{
		ReadOnly:    hint("readOnlyHint"),
		Destructive: hint("destructiveHint"),
		Idempotent:  hint("idempotentHint"),
		OpenWorld:   hint("openWorldHint"),
	}
}
