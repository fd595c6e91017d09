package pipeline

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"millrace/text/tokenize/internal/charsmap"
	"millrace/text/tokenize/internal/regex"
)

// Normalizer appends the rewritten text to dst. text is UTF-8 and not empty.
type Normalizer func(dst, text []byte) []byte

// space stands for a space in tokens.
const space = '\u2581'

// Prepend writes a prefix before the text.
func Prepend(prefix string) Normalizer {
	return func(dst, text []byte) []byte { return append(append(dst, prefix...), text...) }
}

// Replace writes a text in place of each occurrence of another, which is not empty.
func Replace(old, by string) Normalizer {
	return func(dst, text []byte) []byte {
		for {
			i := bytes.Index(text, []byte(old))
			if i < 0 {
				return append(dst, text...)
			}
			dst = append(append(dst, text[:i]...), by...)
			text = text[i+len(old):]
		}
	}
}

// ReplaceMatches writes a text in place of each match of an expression.
func ReplaceMatches(of *regex.Expression, by string) Normalizer {
	return func(dst, text []byte) []byte {
		for pos := 0; pos < len(text); {
			start, end := of.Find(text, pos)
			dst = append(dst, text[pos:start]...)
			if start < end {
				dst = append(dst, by...)
			}
			pos = end
		}
		return dst
	}
}

// Strip removes white space at the ends.
func Strip(left, right bool) Normalizer {
	return func(dst, text []byte) []byte {
		if left {
			text = bytes.TrimLeftFunc(text, unicode.IsSpace)
		}
		if right {
			text = bytes.TrimRightFunc(text, unicode.IsSpace)
		}
		return append(dst, text...)
	}
}

// Precompiled follows rules of SentencePiece.
func Precompiled(rules *charsmap.Map) Normalizer { return rules.Append }

// Nmt drops control characters and makes other space characters spaces. See normalizers/unicode.rs of tokenizers 0.23.
func Nmt(dst, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		text = text[n:]
		switch {
		case r >= 0x01 && r <= 0x08, r == 0x0b, r >= 0x0e && r <= 0x1f, r == 0x7f, r == 0x8f, r == 0x9f:
		case r == 0x09, r == 0x0a, r == 0x0c, r == 0x0d, r == 0x1680, r >= 0x200b && r <= 0x200f, r == 0x2028,
			r == 0x2029, r == 0x2581, r == 0xfeff, r == 0xfffd:
			dst = append(dst, ' ')
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}
