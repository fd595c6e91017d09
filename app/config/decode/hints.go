package decode

import (
	"reflect"
	"slices"
	"strings"

	"millrace/app/config/tree"
)

// Hints are facts about the keys of a file that its types cannot hold. Errors use them for their advice.
type Hints struct {
	// Examples of values, by key.
	Examples map[string]string
	// NotYet are values that a later version may accept, by key.
	NotYet map[string][]string
	// Value returns a better error for a value that is none of the alternatives, or nothing.
	Value func(path, given string) (problem, cure string)
	// Home returns the mapping to which a key belongs, or nothing.
	Home func(key string) string
}

// MappingCure is the advice for a value that must be a mapping.
func (d *Decoder) MappingCure(path string) string {
	if e, ok := d.Hints.Examples[Leaf(path)]; ok {
		return "write " + tree.Quote(Leaf(path)+": "+e)
	}
	return "write it as `{key: value}` or as indented lines below"
}

// Leaf returns the last key of a path.
func Leaf(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// example returns an example of a value of a key.
func (d *Decoder) example(path string, r Rules) string {
	if e, ok := d.Hints.Examples[Leaf(path)]; ok {
		return tree.Quote(Leaf(path) + ": " + e)
	}
	if r.initial != "" {
		return tree.Quote(Leaf(path) + ": " + r.initial)
	}
	return "one plain value"
}

// Missing returns the message for a mapping that lacks a key.
func Missing(path, key string) string {
	if path == "" {
		return "the key " + tree.Quote(key) + " is missing"
	}
	return Name(path) + " lacks the key " + tree.Quote(key)
}

// RequiredCure is the advice for a missing key.
func (d *Decoder) RequiredCure(key string) string {
	if e, ok := d.Hints.Examples[key]; ok {
		return "add " + tree.Quote(key+": "+e)
	}
	return "add " + tree.Quote(key+": ") + " with a value"
}

// unknownValue returns the mistake and the cure for a text that is none of the alternatives.
func (d *Decoder) unknownValue(path, given string, enum []string) (problem, cure string) {
	if slices.Contains(d.Hints.NotYet[Leaf(path)], given) {
		return "cannot be " + tree.Quote(
				given,
			) + " yet", "not yet: " + given + "; this version has " + alternatives(
				enum,
			)
	}
	if problem, cure = d.Hints.Value(path, given); problem != "" {
		return problem, cure
	}
	if near := Nearest(given, enum); near != "" {
		return "cannot be " + tree.Quote(
				given,
			), "did you mean " + tree.Quote(
				near,
			) + "? It is one of " + alternatives(
				enum,
			)
	}
	if cure == "" {
		cure = "write " + alternatives(enum)
	} else {
		cure = "write " + alternatives(enum) + "; " + cure
	}
	if given == "" {
		return "is empty", cure
	}
	return "cannot be " + tree.Quote(given), cure
}

// unknownKey reports a key that a mapping does not have. It names the nearest key, or the mapping of this key.
func (d *Decoder) unknownKey(path string, key *tree.Node, t reflect.Type) {
	at := Join(path, key.Text)
	where := ""
	if path != "" {
		where = " in " + Name(path)
	}
	known := keysOf(t)
	d.Fail(at, key, "unknown key "+tree.Quote(key.Text)+where, d.keyCure(key.Text, known))
}

func (d *Decoder) keyCure(given string, known []string) string {
	if near := Nearest(given, known); near != "" {
		return "did you mean " + tree.Quote(near) + "?"
	}
	if home := d.Hints.Home(given); home != "" {
		return tree.Quote(given) + " belongs in " + home
	}
	return "known here: " + strings.Join(known, ", ")
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		if k := keyName(t.Field(i)); k != "" {
			keys = append(keys, k)
		}
	}
	return keys
}
