package jsonl

import (
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"

	"millrace/sources"
	"millrace/sources/format/parts/fields"
	"millrace/sources/format/parts/valid"
)

// mostDepth is the deepest nesting of objects and arrays that is read. It bounds the stack. Real data nests far less.
const mostDepth = 256

// extractor takes one field out of JSON lines. It validates the whole line in the same pass, as strictly as
// encoding/json. To take a text, it allocates only the buffer that it keeps. It is not safe for concurrent use.
//
// In cases that JSON leaves open, it decides as Python's json module does. The last of duplicate keys counts. Half of a
// surrogate pair passes in a field that is not read. In the text it is a bad sample, because UTF-8 cannot encode it.
// Python's NaN and Infinity are not JSON and make a bad sample.
type extractor struct {
	jsonScanner
	name    string
	path    fields.Path // without parts if no field is asked for
	depth   int
	state   found
	whole   int    // depth of the key that holds all the rest of the path; the path's length if none was found
	raw     []byte // another value than a string, inside line
	builder builder
}

// found is the kind of the field's last occurrence.
type found int

const (
	nothing found = iota
	isText
	notString
)

// newExtractor returns the extractor of a field; an empty name is that of no field.
func newExtractor(field string) (x *extractor, err error) {
	x = &extractor{name: field}
	if field != "" {
		x.path, err = fields.Parse(field)
	}
	return x, err
}

// find reads the whole line and notes the field. The error says why the line is a bad sample.
func (x *extractor) find(line []byte) error {
	if !valid.UTF8(line) {
		return bad("invalid UTF-8 at byte %d of the line", invalidAt(line))
	}
	x.line, x.at, x.depth, x.state, x.whole = line, 0, 0, nothing, len(x.path.Parts)
	if cap(x.buf) < len(line)+blockReach {
		x.buf = make([]byte, len(line)+len(line)/4+blockReach)
	}
	x.space()
	isObject := x.at < len(line) && line[x.at] == '{'
	want := 0
	if x.name == "" {
		want = -1
	}
	if err := x.value(want); err != nil {
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

// text returns the field's text as valid UTF-8. The extractor owns it, and it is valid until the next call. The error
// says why the line is a bad sample.
func (x *extractor) text(line []byte) ([]byte, error) {
	if err := x.find(line); err != nil {
		return nil, err
	}
	switch {
	case x.state == nothing || x.state == notString && x.raw[0] == 'n':
		return nil, x.missing(line)
	case x.state == notString:
		return nil, bad("field %q is not a string", x.name)
	}
	return x.plain()
}

// missing returns the error of the line just searched, which does not have the field.
func (x *extractor) missing(line []byte) *sources.MissingError {
	how := sources.Null
	if x.state == nothing {
		how = sources.Absent
	}
	return sources.NewMissingError(x.name, how, x.names(line))
}

// names returns the names of a valid line's fields, at the depth of the path's first part that the line does not have.
func (x *extractor) names(line []byte) []string {
	above := ""
	var at map[string]json.RawMessage
	if json.Unmarshal(line, &at) != nil {
		return nil
	}
	for _, part := range x.path.Parts {
		var inside map[string]json.RawMessage
		if json.Unmarshal(at[part], &inside) != nil || inside == nil {
			break
		}
		above, at = above+part+".", inside
	}
	names := slices.Collect(maps.Keys(at))
	for i := range names {
		names[i] = above + names[i]
	}
	return names
}

// plain returns the last string without its escapes.
func (x *extractor) plain() ([]byte, error) {
	if x.lone {
		return nil, bad("lone surrogate in field %q", x.name)
	}
	return x.content, nil
}

// value reads one value. want is the number of parts of the path that lead to it, -1 if the path does not.
func (x *extractor) value(want int) error {
	if x.at >= len(x.line) {
		return x.invalid("the line ends early")
	}
	c := x.line[x.at]
	isField := want > 0 && want == len(x.path.Parts)
	if isField && c != '"' {
		return x.other(c)
	}
	switch c {
	case '"':
		if isField {
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
		if want >= 0 && want < len(x.path.Parts) {
			inside = x.enters(key, escaped, want)
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

// enters returns the number of parts of the path that lead to the value of a key, -1 if the path does not. The last of
// duplicate keys counts, so an earlier value is forgotten.
func (x *extractor) enters(key []byte, escaped bool, want int) int {
	last := len(x.path.Parts) - 1
	switch {
	case want < last && x.whole >= want && x.matches(key, escaped, x.path.Rests[want]):
		x.state, x.whole = nothing, want
		return last + 1
	case x.whole > want && x.matches(key, escaped, x.path.Parts[want]):
		x.state, x.whole = nothing, last+1
		return want + 1
	}
	return -1
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
