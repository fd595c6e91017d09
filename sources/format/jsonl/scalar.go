package jsonl

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"

	"millrace"
)

// jsonScanner reads the strings, numbers and words of one line of JSON from a position on.
type jsonScanner struct {
	line    []byte
	at      int
	content []byte // of the last string that was kept, without its escapes; inside buf
	lone    bool   // that string has half of a surrogate pair
	buf     []byte // has room for the line and blockReach more, so that whole blocks can be written
}

// ones and highs spread a byte over a word, so that one step looks at eight bytes.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks the high bit of each byte of w that is a quote, a backslash or below 0x20. Only the lowest mark is
// exact: a borrow may spoil those above it.
func special(w uint64) uint64 {
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return ((w-ones*0x20)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// str reads a string whose opening quote is next and returns the bytes between its quotes.
func (x *jsonScanner) str() (raw []byte, escaped bool, err error) {
	line, i := x.line, x.at+1
	from := i
	for {
		for i+8 <= len(line) {
			m := special(binary.LittleEndian.Uint64(line[i:]))
			if m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		for i < len(line) && line[i] != '"' && line[i] != '\\' && line[i] >= 0x20 {
			i++
		}
		if i >= len(line) {
			x.at = i
			return nil, false, x.invalid("the string does not end")
		}
		switch line[i] {
		case '"':
			x.at = i + 1
			return line[from:i], escaped, nil
		case '\\':
			escaped = true
			n := escapeLen(line[i:])
			if n == 0 {
				x.at = i
				return nil, false, x.invalid("no such escape")
			}
			i += n
		default:
			x.at = i
			return nil, false, x.invalid("control character in a string")
		}
	}
}

// escapeOf returns the character of an escape of two bytes by its second byte, 0 if there is none.
func escapeOf(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case '"', '\\', '/':
		return c
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	}
	return 0
}

// keepContent reads a string whose opening quote is next, and keeps its text without escapes. It validates as str does.
// One pass does both.
func (x *jsonScanner) keepContent() error {
	line, i := x.line, x.at+1
	out, n := x.buf[:cap(x.buf)], 0
	x.lone = false
	for {
		read, wrote := unquote(out[n:], line[i:])
		i, n = i+read, n+wrote
		x.at = i
		switch {
		case i >= len(line):
			return x.invalid("the string does not end")
		case line[i] == '"':
			x.at, x.content = i+1, out[:n]
			return nil
		case line[i] != '\\':
			return x.invalid("control character in a string")
		case escapeLen(line[i:]) == 0:
			return x.invalid("no such escape")
		}
		for i < len(line) && line[i] == '\\' && escapeLen(line[i:]) == 6 { // they come in rows
			r, length := x.pointAt(i)
			i, n = i+length, n+utf8.EncodeRune(out[n:], r)
		}
	}
}

// pointAt returns the character of the \u escape at a byte of the line, and the bytes of the escape. For a surrogate
// pair, these are the bytes of both escapes. Half of a pair sets lone.
func (x *jsonScanner) pointAt(at int) (r rune, length int) {
	r = hex4(x.line[at+2:])
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if next := x.line[at+6:]; len(next) > 0 && next[0] == '\\' && escapeLen(next) == 6 {
		if r = utf16.DecodeRune(r, hex4(next[2:])); r != utf8.RuneError {
			return r, 12
		}
	}
	x.lone = true
	return utf8.RuneError, 6
}

// escapeLen returns the number of bytes of the escape at the start of b, 0 if b begins with none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	if escapeOf(b[1]) != 0 {
		return 2
	}
	if b[1] != 'u' || len(b) < 6 {
		return 0
	}
	for _, c := range b[2:6] {
		if hexOf(c) > 15 {
			return 0
		}
	}
	return 6
}

func hexOf(c byte) uint32 {
	switch {
	case c >= '0' && c <= '9':
		return uint32(c - '0')
	case c >= 'a' && c <= 'f':
		return uint32(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return uint32(c-'A') + 10
	}
	return 99
}

// unescape appends the text of raw, a validated string. It returns false if raw has half of a surrogate pair.
func unescape(out, raw []byte) ([]byte, bool) {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(out, raw...), true
		}
		out = append(out, raw[:i]...)
		c := raw[i+1]
		raw = raw[i+2:]
		if c != 'u' {
			out = append(out, escapeOf(c))
		} else {
			r := hex4(raw)
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
					return out, false
				}
				if r = utf16.DecodeRune(r, hex4(raw[2:])); r == utf8.RuneError {
					return out, false
				}
				raw = raw[6:]
			}
			out = utf8.AppendRune(out, r)
		}
	}
}

func hex4(b []byte) rune {
	return rune(hexOf(b[0])<<12 | hexOf(b[1])<<8 | hexOf(b[2])<<4 | hexOf(b[3]))
}

func (x *jsonScanner) literal(word string) error {
	if len(x.line)-x.at < len(word) || string(x.line[x.at:x.at+len(word)]) != word {
		return x.invalid("no such value")
	}
	x.at += len(word)
	return nil
}

// number reads a number as JSON defines it: no leading zeros, no bare point, no NaN.
func (x *jsonScanner) number() error {
	if x.peek() == '-' {
		x.at++
	}
	if x.peek() == '0' {
		x.at++
	} else if x.digits() == 0 {
		return x.invalid("no such value")
	}
	if x.peek() == '.' {
		x.at++
		if x.digits() == 0 {
			return x.invalid("want a digit")
		}
	}
	if c := x.peek(); c == 'e' || c == 'E' {
		x.at++
		if c := x.peek(); c == '+' || c == '-' {
			x.at++
		}
		if x.digits() == 0 {
			return x.invalid("want a digit")
		}
	}
	return nil
}

func (x *jsonScanner) digits() int {
	from := x.at
	for x.at < len(x.line) && x.line[x.at] >= '0' && x.line[x.at] <= '9' {
		x.at++
	}
	return x.at - from
}

// peek returns the next byte, 0 at the end. No caller accepts a 0 byte.
func (x *jsonScanner) peek() byte {
	if x.at < len(x.line) {
		return x.line[x.at]
	}
	return 0
}

// space passes over JSON's white space.
func (x *jsonScanner) space() {
	for x.at < len(x.line) {
		if c := x.line[x.at]; c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return
		}
		x.at++
	}
}

func (x *jsonScanner) invalid(why string) error {
	return bad("invalid JSON at byte %d of the line: %s", x.at, why)
}

func bad(format string, args ...any) error {
	return millrace.Errorf(millrace.ErrBadSample, "%s", fmt.Sprintf(format, args...))
}
