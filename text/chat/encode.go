package chat

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"millrace/internal/tokenid"
	"millrace/sources"
)

// Tokenizer turns text into tokens, and knows its special tokens. It is safe for concurrent use.
type Tokenizer interface {
	sources.Tokenizer
	// Decode appends the bytes of ids to dst.
	Decode(dst []byte, ids []uint32) ([]byte, error)
	// Specials returns the texts of the special tokens. The caller owns the map.
	Specials() map[uint32]string
}

// encoder is a tokenizer with an index of its special tokens.
type encoder struct {
	Tokenizer
	specials [256][]special // by the first byte, the longest first
}

type special struct {
	id   uint32
	text string
}

func newEncoder(t Tokenizer) *encoder {
	e := &encoder{Tokenizer: t}
	for id, text := range t.Specials() {
		if text != "" {
			e.specials[text[0]] = append(e.specials[text[0]], special{id, text})
		}
	}
	for _, all := range e.specials {
		slices.SortFunc(all, func(a, b special) int {
			return cmp.Or(len(b.text)-len(a.text), strings.Compare(a.text, b.text), cmp.Compare(a.id, b.id))
		})
	}
	return e
}

// specialAt returns the longest special token at the beginning of a text, and its length in bytes.
func (e *encoder) specialAt(text []byte) (id uint32, length int, ok bool) {
	for _, s := range e.specials[text[0]] {
		if len(text) >= len(s.text) && string(text[:len(s.text)]) == s.text {
			return s.id, len(s.text), true
		}
	}
	return 0, 0, false
}

// passage is a text with an origin and a mask for each byte.
type passage struct {
	text    []byte
	own     []bool // of the template
	trained []bool
}

// add appends a character.
func (p *passage) add(r rune, own, trained bool) {
	n := len(p.text)
	for p.text = utf8.AppendRune(p.text, r); n < len(p.text); n++ {
		p.own, p.trained = append(p.own, own), append(p.trained, trained)
	}
}

// encode appends the tokens of a passage. Tokens without a trained character have the bit tokenid.Untrained.
func encode(dst []uint32, t *encoder, p *passage, tell func()) []uint32 {
	from := 0
	for at := 0; at < len(p.text); {
		id, n, ok := uint32(0), 0, false
		if p.own[at] {
			id, n, ok = t.specialAt(p.text[at:])
		}
		if !ok || !all(p.own[at:at+n]) {
			at++
			continue
		}
		dst = plain(dst, t, p, from, at, tell)
		dst = append(dst, id|bit(p.trained[at:at+n]))
		at += n
		from = at
	}
	return plain(dst, t, p, from, len(p.text), tell)
}

func all(own []bool) bool {
	for _, is := range own {
		if !is {
			return false
		}
	}
	return true
}

// bit returns the mask of a token with these characters.
func bit(trained []bool) uint32 {
	for _, is := range trained {
		if is {
			return 0
		}
	}
	return tokenid.Untrained
}

// plain appends the tokens of a part of a passage without special tokens.
func plain(dst []uint32, t *encoder, p *passage, from, to int, tell func()) []uint32 {
	if from == to {
		return dst
	}
	first := len(dst)
	dst = t.Append(dst, p.text[from:to], tell)
	if isSame(p.trained[from:to]) {
		for i := first; i < len(dst); i++ {
			dst[i] |= bit(p.trained[from : from+1])
		}
		return dst
	}
	var piece []byte
	at := from
	for i := first; i < len(dst); i++ {
		var err error
		piece, err = t.Decode(piece[:0], dst[i:i+1])
		if err != nil || at+len(piece) > to || string(piece) != string(p.text[at:at+len(piece)]) {
			return apart(dst[:first], t, p, from, to, tell)
		}
		if len(piece) > 0 {
			dst[i] |= bit(p.trained[at : at+len(piece)])
		}
		at += len(piece)
	}
	if at != to {
		return apart(dst[:first], t, p, from, to, tell)
	}
	return dst
}

func isSame(trained []bool) bool {
	for _, is := range trained {
		if is != trained[0] {
			return false
		}
	}
	return true
}

// apart appends the tokens of each run of trained or untrained text by itself: the tokenizer changes the text, so the
// places of its tokens are not known.
func apart(dst []uint32, t *encoder, p *passage, from, to int, tell func()) []uint32 {
	for from < to {
		end := from + 1
		for end < to && p.trained[end] == p.trained[from] {
			end++
		}
		first := len(dst)
		dst = t.Append(dst, p.text[from:end], tell)
		for i := first; i < len(dst); i++ {
			dst[i] |= bit(p.trained[from : from+1])
		}
		from = end
	}
	return dst
}
