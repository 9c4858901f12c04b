package policy

import (
	"slices"
	"strconv"
	"strings"
)

// Redactions say which values of a payload aren't shown to people or in logs.
// They change nothing of what runs.
type Redactions struct {
	// Keys hide what stands under an object's key of that name, at any depth.
	// They are in lower case; a payload's keys are compared without case.
	Keys []string `json:"keys,omitempty"`
	// Paths are JSON Pointers (RFC 6901) to what is hidden. A segment "*" stands
	// for every member or element.
	Paths []string `json:"paths,omitempty"`
}

// IsZero reports whether nothing is hidden.
func (r Redactions) IsZero() bool { return len(r.Keys) == 0 && len(r.Paths) == 0 }

// Hide reports whether the value at a path of a payload, or what it is part of,
// is hidden. The path's segments are decoded keys of objects and indexes of
// arrays.
func (r Redactions) Hide(path []string) bool {
	for _, segment := range path {
		if slices.Contains(r.Keys, strings.ToLower(segment)) {
			return true
		}
	}
	return slices.ContainsFunc(r.Paths, func(pointer string) bool {
		want := pointerSegments(pointer)
		return len(want) <= len(path) && fits(want, path)
	})
}

// below reports whether a part of what stands at a path is hidden by its own
// path. Whether there is a key that hides is only known of a payload.
func (r Redactions) below(path []string) bool {
	return slices.ContainsFunc(r.Paths, func(pointer string) bool {
		want := pointerSegments(pointer)
		return len(want) > len(path) && fits(want, path)
	})
}

// holds reports whether something of a decoded value that stands at a path is
// hidden, or the whole of it.
func (r Redactions) holds(path []string, value any) bool {
	if r.Hide(path) {
		return true
	}
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			if r.holds(append(slices.Clip(path), key), member) {
				return true
			}
		}
	case []any:
		for i, element := range value {
			if r.holds(append(slices.Clip(path), strconv.Itoa(i)), element) {
				return true
			}
		}
	}
	return false
}

// valueAt is what stands at a path of a decoded value; nil if nothing does.
func valueAt(value any, path []string) any {
	for _, segment := range path {
		switch inner := value.(type) {
		case map[string]any:
			value = inner[segment]
		case []any:
			index, err := strconv.Atoi(segment)
			if err != nil || index < 0 || index >= len(inner) {
				return nil
			}
			value = inner[index]
		default:
			return nil
		}
	}
	return value
}

// fits reports whether a pointer's segments and a path's are the same as far as
// both go.
func fits(pointer, path []string) bool {
	for i := range min(len(pointer), len(path)) {
		if pointer[i] != "*" && pointer[i] != path[i] {
			return false
		}
	}
	return true
}

// with joins two sets of redactions.
func (r Redactions) with(others Redactions) Redactions {
	return Redactions{Keys: union(r.Keys, others.Keys), Paths: union(r.Paths, others.Paths)}
}

func union(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	joined := slices.Concat(a, b)
	slices.Sort(joined)
	return slices.Compact(joined)
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// pointerSegments are the decoded segments of a JSON Pointer; none for "",
// which is the whole payload.
func pointerSegments(pointer string) []string {
	if pointer == "" {
		return nil
	}
	segments := strings.Split(pointer[1:], "/")
	for i, segment := range segments {
		segments[i] = unescape.Replace(segment)
	}
	return segments
}

// hidden returns JSON Pointers to the values of a decoded payload that are
// hidden, the outermost of each, sorted.
func (r Redactions) hidden(value any) []string {
	return r.pointers(value, func(any) bool { return true })
}

// hiddenLeaves returns JSON Pointers to the leaves of a payload that are hidden,
// sorted: what has no parts.
func (r Redactions) hiddenLeaves(payload []byte) []string {
	value, _, err := decode(payload)
	if err != nil {
		return nil
	}
	return r.pointers(value, func(value any) bool {
		switch value := value.(type) {
		case map[string]any:
			return len(value) == 0
		case []any:
			return len(value) == 0
		default:
			return true
		}
	})
}

// pointers points to what is hidden and wanted, and to nothing in that.
func (r Redactions) pointers(value any, wanted func(any) bool) []string {
	var found []string
	var walk func(value any, path []string)
	walk = func(value any, path []string) {
		if wanted(value) && r.Hide(path) {
			found = append(found, pointerTo(path))
			return
		}
		switch value := value.(type) {
		case map[string]any:
			for key, member := range value {
				walk(member, append(slices.Clip(path), key))
			}
		case []any:
			for i, element := range value {
				walk(element, append(slices.Clip(path), strconv.Itoa(i)))
			}
		}
	}
	if !r.IsZero() {
		walk(value, nil)
	}
	slices.Sort(found)
	return found
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func pointerTo(path []string) string {
	var pointer strings.Builder
	for _, segment := range path {
		pointer.WriteByte('/')
		pointer.WriteString(escape.Replace(segment))
	}
	return pointer.String()
}
