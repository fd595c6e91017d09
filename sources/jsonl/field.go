package jsonl

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"millrace"
)

// mostDepth is the deepest nesting of objects and arrays that is read. It bounds the stack. Real data nests far less.
const mostDepth = 256

// extractor takes one string field out of JSON lines. It validates the whole line in the same pass, as strictly as
// encoding/json. It allocates only the buffer that it keeps for texts. It is not safe for concurrent use.
//
// In cases that JSON leaves open, it decides as Python's json module does. The last of duplicate keys counts. Half of a
// surrogate pair passes in a field that is not read. In the text it is a bad sample, because UTF-8 cannot encode it.
// Python's NaN and Infinity are not JSON and make a bad sample.
type extractor struct {
	jsonScanner
	path    []string
	depth   int
	state   found
	reached int    // number of parts of the path that were found, for the reason
	raw     []byte // another value than a string, inside line
}

// found is the kind of the field's last occurrence.
type found int

const (
	missing found = iota
	isText
	notString
	notObject
)

func newExtractor(field string) (*extractor, error) {
	if field == "" {
		field = "text"
	}
	path := strings.Split(field, ".")
	for _, part := range path {
		if part == "" {
			return nil, millrace.Errorf(millrace.ErrInvalid, "read field %q: a part of the path is empty", field)
		}
	}
	return &extractor{path: path}, nil
}

// find reads the whole line and notes the field. The error says why the line is a bad sample.
func (x *extractor) find(line []byte) error {
	if !utf8.Valid(line) {
		return bad("invalid UTF-8 at byte %d of the line", invalidAt(line))
	}
	x.line, x.at, x.depth, x.state, x.reached = line, 0, 0, missing, 0
	if cap(x.buf) < len(line)+wordBytes {
		x.buf = make([]byte, len(line)+len(line)/4+wordBytes)
	}
	x.space()
	isObject := x.at < len(line) && line[x.at] == '{'
	if err := x.value(0); err != nil {
		return err
	}
	x.space()
	if x.at < len(line) {
		return x.invalid("more after the value")
	}
	if !isObject {
		return bad("the line is not a JSON object")
	}
	return nil
}

// text returns the field's text as valid UTF-8. It lies in the extractor, and is valid until the next call.
// The error says why the line is a bad sample.
func (x *extractor) text(line []byte) ([]byte, error) {
	if err := x.find(line); err != nil {
		return nil, err
	}
	switch x.state {
	case missing:
		return nil, x.noField(line)
	case notObject:
		return nil, bad("field %q is not an object", strings.Join(x.path[:x.reached], "."))
	case notString:
		if x.raw[0] == 'n' {
			return nil, bad("field %q is null", strings.Join(x.path, "."))
		}
		return nil, bad("field %q is not a string", strings.Join(x.path, "."))
	}
	return x.plain()
}

// mostNamed is the largest number of fields of a record that an error names.
const mostNamed = 8

// noField returns the error of a valid line without the field. It names the fields beside the part of the path that is
// missing.
func (x *extractor) noField(line []byte) error {
	var at map[string]json.RawMessage
	for i, part := range x.path {
		if json.Unmarshal(line, &at) != nil {
			break
		}
		above, field := strings.Join(x.path[:i], "."), strings.Join(x.path[:i+1], ".")
		if inside, ok := at[part]; ok {
			line, at = inside, nil
			continue
		}
		if len(at) == 0 {
			return bad("no field %q: the record is empty", field)
		}
		names, more := slices.Sorted(maps.Keys(at)), ""
		if n := len(names) - mostNamed; n > 0 {
			names, more = names[:mostNamed], fmt.Sprintf(" and %d more", n)
		}
		for i, name := range names {
			names[i] = strings.TrimPrefix(above+"."+name, ".")
		}
		return bad("no field %q; there are: %s%s", field, strings.Join(names, ", "), more)
	}
	return bad("no field %q", strings.Join(x.path, "."))
}

// plain returns the last string without its escapes.
func (x *extractor) plain() ([]byte, error) {
	if x.lone {
		return nil, bad("lone surrogate in field %q", strings.Join(x.path, "."))
	}
	return x.content, nil
}

// value reads one value. want is the number of parts of the path that lead to it, -1 if the path does not.
func (x *extractor) value(want int) error {
	if x.at >= len(x.line) {
		return x.invalid("the line ends early")
	}
	c := x.line[x.at]
	if want > 0 {
		x.reached = want
		switch {
		case want < len(x.path) && c != '{':
			x.state = notObject
		case want == len(x.path) && c != '"':
			return x.other(c)
		}
	}
	switch c {
	case '"':
		if want == len(x.path) {
			x.state = isText
			return x.keepContent()
		}
		_, _, err := x.str()
		return err
	case '{':
		return x.object(want)
	case '[':
		return x.array()
	}
	return x.word(c)
}

// other reads a field that is no string and keeps its bytes for filters.
func (x *extractor) other(c byte) (err error) {
	x.state = notString
	from := x.at
	switch c {
	case '{':
		err = x.object(-1)
	case '[':
		err = x.array()
	default:
		err = x.word(c)
	}
	x.raw = x.line[from:x.at]
	return err
}

// word reads a literal or a number.
func (x *extractor) word(c byte) error {
	switch c {
	case 't':
		return x.literal("true")
	case 'f':
		return x.literal("false")
	case 'n':
		return x.literal("null")
	}
	return x.number()
}

func (x *extractor) object(want int) error {
	if err := x.enter(); err != nil {
		return err
	}
	if x.space(); x.peek() == '}' {
		return x.leave()
	}
	for {
		if x.peek() != '"' {
			return x.invalid("want a key in quotes")
		}
		key, escaped, err := x.str()
		if err != nil {
			return err
		}
		inside := -1
		if want >= 0 && x.matches(key, escaped, x.path[want]) {
			// The last of duplicate keys counts, so an earlier value is forgotten.
			inside = want + 1
			x.state, x.reached = missing, inside
		}
		if x.space(); x.peek() != ':' {
			return x.invalid("want a colon")
		}
		x.at++
		x.space()
		if err := x.value(inside); err != nil {
			return err
		}
		x.space()
		switch x.peek() {
		case '}':
			return x.leave()
		case ',':
			x.at++
			x.space()
		default:
			return x.invalid("want a comma or }")
		}
	}
}

func (x *extractor) array() error {
	if err := x.enter(); err != nil {
		return err
	}
	if x.space(); x.peek() == ']' {
		return x.leave()
	}
	for {
		if err := x.value(-1); err != nil {
			return err
		}
		x.space()
		switch x.peek() {
		case ']':
			return x.leave()
		case ',':
			x.at++
			x.space()
		default:
			return x.invalid("want a comma or ]")
		}
	}
}

// matches reports whether a key is a part of the path. Escapes in keys are rare, so they may allocate.
func (x *extractor) matches(key []byte, escaped bool, part string) bool {
	if !escaped {
		return string(key) == part
	}
	plain, ok := unescape(nil, key)
	return ok && string(plain) == part
}

func (x *extractor) enter() error {
	if x.depth++; x.depth > mostDepth {
		return bad("nested deeper than %d", mostDepth)
	}
	x.at++
	return nil
}

func (x *extractor) leave() error {
	x.depth--
	x.at++
	return nil
}

// invalidAt returns the offset of the first byte that is not UTF-8.
func invalidAt(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}
