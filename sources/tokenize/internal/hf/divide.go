package hf

import (
	"slices"

	"millrace/sources/tokenize/internal/nfc"
	"millrace/sources/tokenize/internal/trie"
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
}

// NewDivider returns nil if all tokens are special, because then all of the text stays text.
func NewDivider(list []Added, normalises bool) *Divider {
	if !slices.ContainsFunc(list, func(t Added) bool { return !t.Special }) {
		return nil
	}
	var raw, normal []Added
	for _, t := range list {
		if t.Normalized {
			if normalises {
				t.Content = string(nfc.Append(nil, []byte(t.Content)))
			}
			normal = append(normal, t)
		} else {
			raw = append(raw, t)
		}
	}
	return &Divider{newSet(raw), newSet(normal)}
}

func newSet(list []Added) Set {
	s := Set{list: list}
	keys := make([][]byte, len(list))
	for i, t := range list {
		keys[i] = []byte(t.Content)
		s.first[t.Content[0]] = true
	}
	s.trie = trie.New(keys, nil)
	return s
}

// Next returns the first token of text from pos on that is not special: its place and its id. A special token before it
// hides the tokens that it overlaps, as in tokenizers. ok is false if there is none.
func (s *Set) Next(text []byte, pos int) (start, end int, id uint32, ok bool) {
	for pos < len(text) {
		if !s.first[text[pos]] {
			pos++
			continue
		}
		node, found, end := trie.Root, trie.None, 0
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
		case s.list[found].Special:
			pos = end
		default:
			return pos, end, s.list[found].ID, true
		}
	}
	return 0, 0, 0, false
}
