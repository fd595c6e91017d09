// Package wordpiece divides words into the longest pieces of a vocabulary, as BERT and Hugging Face's tokenizers do.
package wordpiece

import (
	"unicode/utf8"

	"millrace/text/tokenize/internal/trie"
)

// Model is a vocabulary. It never changes and is safe for concurrent use.
type Model struct {
	pieces   *trie.Trie
	first    int32 // the node at which a word's later pieces begin
	goesOn   bool  // there are later pieces
	unk      uint32
	maxChars int
}

// New returns the model of a vocabulary, in which a word's later pieces begin with prefix. unk is the id of a word that
// the vocabulary does not spell, or that has more than maxChars characters. The ids are indexes of pieces; an empty
// piece is an id that no word has.
func New(pieces [][]byte, prefix string, unk uint32, maxChars int) *Model {
	m := &Model{pieces: trie.New(pieces, nil), first: trie.Root, goesOn: true, unk: unk, maxChars: maxChars}
	for _, b := range []byte(prefix) {
		next, ok := m.pieces.Step(m.first, b)
		if !ok {
			m.goesOn = false
			break
		}
		m.first = next
	}
	return m
}

// Append appends the ids of a word to dst. If ends is not nil, Append appends to it the offset in word at which each
// token ends. word is UTF-8.
func (m *Model) Append(dst []uint32, word []byte, ends *[]int) []uint32 {
	if len(word) == 0 {
		return dst
	}
	if len(word) <= m.maxChars || utf8.RuneCount(word) <= m.maxChars {
		if tokens, ok := m.divide(dst, word, ends); ok {
			return tokens
		}
	}
	if ends != nil {
		*ends = append(*ends, len(word))
	}
	return append(dst, m.unk)
}

// divide appends the longest pieces of a word, one after the other. ok is false if the word does not end with one; then
// ends has its old length.
func (m *Model) divide(dst []uint32, word []byte, ends *[]int) (tokens []uint32, ok bool) {
	var old int
	if ends != nil {
		old = len(*ends)
	}
	node := trie.Root
	for pos := 0; pos < len(word); node = m.first {
		id, end := trie.None, pos
		for i := pos; i < len(word); i++ {
			next, ok := m.pieces.Step(node, word[i])
			if !ok {
				break
			}
			if node = next; m.pieces.Value(node) != trie.None {
				id, end = m.pieces.Value(node), i+1
			}
		}
		if id == trie.None || end < len(word) && !m.goesOn {
			if ends != nil {
				*ends = (*ends)[:old]
			}
			return dst, false
		}
		dst = append(dst, id)
		if ends != nil {
			*ends = append(*ends, end)
		}
		pos = end
	}
	return dst, true
}
