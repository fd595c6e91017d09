package values

import (
	"bytes"
	"encoding/json"
	"io"

	"millrace/sources/format/parts/valid"
)

// Bounds of a JSON text: the deepest nesting, and the largest number of values. They bound stack and memory.
const (
	mostDepth  = 256
	mostValues = 4 << 20
)

// FromJSON returns the value of a JSON text. Objects keep the order of their keys. The error says why the text is no
// JSON, and wraps millrace.ErrBadSample.
func FromJSON(text []byte) (any, error) {
	if !valid.UTF8(text) {
		return nil, bad("it is not valid UTF-8")
	}
	if hasLoneSurrogate(text) {
		return nil, bad("it has half of a surrogate pair, which is no character")
	}
	r := jsonReader{d: json.NewDecoder(bytes.NewReader(text)), left: mostValues}
	r.d.UseNumber()
	v, err := r.value(0)
	if err == nil {
		var t json.Token
		if t, err = r.d.Token(); err == nil {
			err = bad("%v follows the value", t)
		}
	}
	switch err {
	case io.EOF:
		if len(bytes.TrimSpace(text)) == 0 {
			return nil, bad("it is empty")
		}
		return v, nil
	case io.ErrUnexpectedEOF:
		return nil, bad("it ends early")
	}
	return nil, bad("%v", err)
}

// jsonReader makes the values of one text.
type jsonReader struct {
	d    *json.Decoder
	left int // values until mostValues
}

func (r *jsonReader) value(depth int) (any, error) {
	t, err := r.d.Token()
	if err == io.EOF && depth > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	if r.left--; r.left < 0 {
		return nil, bad("it has more than %d values", mostValues)
	}
	switch t := t.(type) {
	case json.Number:
		return Numeral(t.String())
	case json.Delim:
		if depth++; depth > mostDepth {
			return nil, bad("nested deeper than %d", mostDepth)
		}
		if t == '[' {
			return r.list(depth)
		}
		return r.object(depth)
	}
	return t, nil
}

func (r *jsonReader) list(depth int) (any, error) {
	out := []any{}
	for r.d.More() {
		v, err := r.value(depth)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, r.end()
}

func (r *jsonReader) object(depth int) (any, error) {
	var out Object
	for r.d.More() {
		key, err := r.d.Token()
		if err != nil {
			return nil, err
		}
		v, err := r.value(depth)
		if err != nil {
			return nil, err
		}
		out.Add(key.(string), v)
	}
	return out.Unique(), r.end()
}

// end takes a closing bracket.
func (r *jsonReader) end() error {
	_, err := r.d.Token()
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// hasLoneSurrogate reports whether a \u escape of a JSON text is half of a surrogate pair. The library makes U+FFFD of
// it, which is another text.
func hasLoneSurrogate(text []byte) bool {
	unit := func(b []byte) int {
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return 0
		}
		n := 0
		for _, c := range b[2:6] {
			switch {
			case c >= '0' && c <= '9':
				n = n<<4 | int(c-'0')
			case c|0x20 >= 'a' && c|0x20 <= 'f':
				n = n<<4 | int(c|0x20-'a'+10)
			default:
				return 0
			}
		}
		return n
	}
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+1 >= len(text) {
			return false
		}
		text = text[i:]
		switch n := unit(text); {
		case n >= 0xdc00 && n < 0xe000:
			return true
		case n >= 0xd800 && n < 0xdc00:
			if low := unit(text[6:]); low < 0xdc00 || low >= 0xe000 {
				return true
			}
			text = text[12:]
		default:
			text = text[2:]
		}
	}
}
