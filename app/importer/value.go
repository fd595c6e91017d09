package importer

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// value is a value of a foreign file. It remembers which of its keys were taken.
type value struct {
	at    any
	taken map[string]bool
}

// mostBytes bounds a foreign file.
const mostBytes = 16 << 20

// parse reads YAML or JSON, with keys in the order of the file. Text that is neither is one string.
func parse(content []byte) (value, error) {
	if len(content) > mostBytes {
		return value{}, fmt.Errorf("it has more than %d bytes", mostBytes)
	}
	var at any
	if err := yaml.UnmarshalWithOptions(content, &at, yaml.UseOrderedMap()); err != nil {
		return value{}, err
	}
	return valueOf(at), nil
}

func valueOf(at any) value { return value{at: at, taken: map[string]bool{}} }

// take returns the value of a key, and marks the key as used.
func (v value) take(key string) value {
	for _, item := range v.pairs() {
		if item.key == key {
			v.taken[key] = true
			return item.value
		}
	}
	return value{}
}

// peek returns the value of a path of keys without marking it.
func (v value) peek(keys ...string) value {
	for _, key := range keys {
		next := value{}
		for _, item := range v.pairs() {
			if item.key == key {
				next = item.value
			}
		}
		v = next
	}
	return v
}

type pair struct {
	key   string
	value value
}

// pairs returns the entries of a mapping.
func (v value) pairs() (out []pair) {
	m, _ := v.at.(yaml.MapSlice)
	for _, item := range m {
		out = append(out, pair{fmt.Sprint(item.Key), valueOf(item.Value)})
	}
	return out
}

// list returns the items of a list. One text is a list of itself.
func (v value) list() (out []value) {
	switch at := v.at.(type) {
	case []any:
		for _, x := range at {
			out = append(out, valueOf(x))
		}
	case string:
		out = []value{v}
	}
	return out
}

func (v value) texts() (out []string) {
	for _, x := range v.list() {
		out = append(out, x.text())
	}
	return out
}

func (v value) isMap() bool  { _, ok := v.at.(yaml.MapSlice); return ok }
func (v value) isList() bool { _, ok := v.at.([]any); return ok }
func (v value) isSet() bool  { return v.at != nil }

// text returns a scalar as it was written, "" for others.
func (v value) text() string {
	switch at := v.at.(type) {
	case nil, []any, yaml.MapSlice:
		return ""
	case float64:
		return strconv.FormatFloat(at, 'f', -1, 64)
	default:
		return fmt.Sprint(at)
	}
}

// short returns any value in one line, for comments.
func (v value) short() string {
	switch {
	case v.isMap():
		var parts []string
		for _, p := range v.pairs() {
			parts = append(parts, p.key+": "+p.value.short())
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case v.isList():
		var parts []string
		for _, x := range v.list() {
			parts = append(parts, x.short())
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case !v.isSet():
		return "null"
	}
	return strings.Join(strings.Fields(v.text()), " ")
}

// left describes the keys that the importer did not use.
func (v value) left(path string) (out []string) {
	for _, p := range v.pairs() {
		if !v.taken[p.key] {
			out = append(out, path+p.key+": "+p.value.short())
		}
	}
	return out
}

// quote writes a text as YAML.
func quote(s string) string {
	plain := s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" &&
		strings.Trim(s, "0123456789.-") != "" && s[0] != '-'
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		plain = false
	}
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// doubleQuote writes a text as YAML in quotes, with its line breaks.
func doubleQuote(s string) string { return strconv.Quote(s) }

// orDefault returns the other program's default for a value that its file leaves out.
func orDefault(s, usual string) string {
	if s == "" {
		return usual
	}
	return s
}

// isWhole reports whether a text is a whole number from 1 on.
func isWhole(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 0
}
