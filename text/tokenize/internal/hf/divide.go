package hf

import (
	"bytes"
	"slices"
	"unicode"
	"unicode/utf8"

	"millrace/text/tokenize/internal/chars"
	"millrace/text/tokenize/internal/trie"
)

// Divider has the tokens that divide a text before its pattern does. Those of Raw are found first, in the text as it
// is; those of Normal then in the normal form of the parts between. A special token stays text.
type Divider struct {
	Raw, Normal Set
}

// Set has added tokens that are looked for together. At each place the longest counts.
type Set struct {
	trie  *trie.Trie
	first [256]bool // the bytes with which a token begins
	list  []Added
	chars *chars.Table // nil if no token is a single word
}

// NewDivider returns nil if all tokens are special, because then all of the text stays text. normal returns the normal
// form of a text, which is valid until the next call.
func NewDivider(list []Added, normal func(text []byte) []byte) *Divider {
	if !slices.ContainsFunc(list, func(t Added) bool { return !t.Special }) {
		return nil
	}
	var raw, late []Added
	for _, t := range list {
		if t.Normalized {
			t.Content = string(normal([]byte(t.Content)))
			late = append(late, t)
		} else {
			raw = append(raw, t)
		}
	}
	return &Divider{newSet(raw), newSet(late)}
}

func newSet(list []Added) Set {
	s := Set{list: list}
	keys := make([][]byte, len(list))
	for i, t := range list {
		if keys[i] = []byte(t.Content); len(keys[i]) > 0 {
			s.first[t.Content[0]] = true
		}
		if t.SingleWord && s.chars == nil {
			s.chars = chars.New()
		}
	}
	s.trie = trie.New(keys, nil)
	return s
}

// Next returns the first token of text from pos on that is not special: its place and its id. A special token before it
// hides the tokens that it overlaps, as in tokenizers. ok is false if there is none.
func (s *Set) Next(text []byte, pos int) (start, end int, id uint32, ok bool) {
	from := pos
	for pos < len(text) {
		if !s.first[text[pos]] {
			pos++
			continue
		}
		node, found := trie.Root, trie.None
		for i, in := pos, true; i < len(text); i++ {
			if node, in = s.trie.Step(node, text[i]); !in {
				break
			}
			if value := s.trie.Value(node); value != trie.None {
				found, end = value, i+1
			}
		}
		switch {
		case found == trie.None:
			pos++
		case s.list[found].Special || s.list[found].SingleWord && s.isInWord(text, pos, end):
			pos = end
		default:
			start, end = s.list[found].strip(text, from, pos, end)
			return start, end, s.list[found].ID, true
		}
	}
	return 0, 0, 0, false
}

// isInWord reports whether a character of a word is beside text[start:end]. Words are those of the crate regex, as
// Whitespace has them.
func (s *Set) isInWord(text []byte, start, end int) bool {
	before, n := utf8.DecodeLastRune(text[:start])
	after, m := utf8.DecodeRune(text[end:])
	return n > 0 && s.chars.Of(before)&chars.Word != 0 || m > 0 && s.chars.Of(after)&chars.Word != 0
}

// strip returns the bounds of a token with the white space beside it that belongs to it, from a place on.
func (a *Added) strip(text []byte, from, start, end int) (int, int) {
	if a.LStrip {
		start = max(from, len(bytes.TrimRightFunc(text[:start], unicode.IsSpace)))
	}
	if a.RStrip {
		end = len(text) - len(bytes.TrimLeftFunc(text[end:], unicode.IsSpace))
	}
	return start, end
}
