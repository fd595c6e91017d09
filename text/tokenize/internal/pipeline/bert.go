package pipeline

import (
	"unicode/utf8"

	"millrace/text/tokenize/internal/chars"
	"millrace/text/tokenize/internal/normal"
	"millrace/text/tokenize/internal/wordpiece"
)

// Characters makes the normalizers and the splitter of BERT, by the tables of the library. See normalizers/bert.rs and
// pre_tokenizers/bert.rs of tokenizers 0.23.
type Characters struct{ table *chars.Table }

// NewCharacters returns them with their table.
func NewCharacters() Characters { return Characters{chars.New()} }

// Clean leaves control characters out, and makes white space spaces.
func (c Characters) Clean(dst, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch of := c.table.Of(r); {
		case of&chars.Control != 0:
		case of&chars.Blank != 0:
			dst = append(dst, ' ')
		default:
			dst = append(dst, text[:n]...)
		}
		text = text[n:]
	}
	return dst
}

// Part puts a space before and behind each Chinese character.
func (c Characters) Part(dst, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if c.table.Of(r)&chars.Ideograph != 0 {
			dst = append(append(append(dst, ' '), text[:n]...), ' ')
		} else {
			dst = append(dst, text[:n]...)
		}
		text = text[n:]
	}
	return dst
}

// Unaccent decomposes characters and leaves out marks that take no space.
func (c Characters) Unaccent(dst, text []byte) []byte {
	return c.table.Remove(dst, normal.D(nil, text), chars.Accent)
}

// StripMarks leaves out combining marks. It decomposes no character.
func (c Characters) StripMarks(dst, text []byte) []byte { return c.table.Remove(dst, text, chars.Mark) }

// Lower makes the characters lower case.
func (c Characters) Lower(dst, text []byte) []byte { return c.table.AppendLower(dst, text) }

// Words divides a text into words without the white space between them. Each punctuation mark is a word.
func (c Characters) Words() Splitter {
	return runs(func(r rune) run { return pick(c.table.Of(r), chars.Space, left, chars.Punctuation, alone) })
}

// WhitespaceSplit divides a text at white space, which it leaves out.
func (c Characters) WhitespaceSplit() Splitter {
	return runs(func(r rune) run { return pick(c.table.Of(r), chars.Space, left, 0, alone) })
}

// Whitespace divides a text into words and the marks between them, without white space.
func (c Characters) Whitespace() Splitter {
	return runs(func(r rune) run { return pick(c.table.Of(r), chars.Space, left, chars.Word, other) })
}

// Punctuation divides a text at punctuation marks.
func (c Characters) Punctuation(b Behavior) Splitter {
	return At{Find: member{c.table, chars.Punctuation}, Behavior: b}
}

// Digits makes runs of digits parts, or each digit.
func (c Characters) Digits(each bool) Splitter {
	of := other
	if each {
		of = alone
	}
	return runs(func(r rune) run { return pick(c.table.Of(r), chars.Digit, of, 0, alone) })
}

// WordPiece is a model that encodes each part as a word.
type WordPiece struct{ *wordpiece.Model }

// Kind returns the name of the kind of model.
func (WordPiece) Kind() string { return "WordPiece" }

// Pieces returns the part as one piece.
func (WordPiece) Pieces(part []byte, _ int, ends []int) int {
	ends[0] = len(part)
	return 1
}

// Append appends the ids of a word.
func (m WordPiece) Append(dst []uint32, word []byte, _ *Scratch) []uint32 {
	return m.Model.Append(dst, word, nil)
}
