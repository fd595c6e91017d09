// Package unigram finds the most probable division of a text into the pieces of a unigram language model.
//
// A text's score is the sum of its pieces' scores. The best division of each prefix follows from the best divisions of
// shorter ones (Viterbi). Of equal divisions, the one whose last piece begins first counts. Floating-point numbers
// decide between close divisions, so a [Model] adds and compares them in the order and precision of its reference.
//
// Sources: EncodeOptimized in unigram_model.cc of SentencePiece 0.2.3; models/unigram/model.rs of tokenizers 0.23.
package unigram

import (
	"errors"
	"math"
	"unicode/utf8"

	"millrace/text/tokenize/internal/trie"
)

// Config describes a model. The ids are indexes of Pieces.
type Config struct {
	Pieces [][]byte
	Scores []float64
	// Keep, unless nil, is false for the pieces that no text contains.
	Keep func(id int) bool
	// Unk is the id of a character without a piece, and UnkScore its score. HasUnk is false if there is none: then
	// such a character is left out.
	Unk      uint32
	HasUnk   bool
	UnkScore float64
	// Bytes, unless nil, are the ids of all bytes. They spell a character without a piece.
	Bytes *[256]uint32
	// Single adds scores in single precision, and lets sums start anew when they are large, as SentencePiece does.
	// tokenizers adds them in double precision.
	Single bool
	// Fused looks a run of characters without a piece up as a whole, as tokenizers does.
	Fused bool
}

// Model is a vocabulary with scores. It never changes and is safe for concurrent use.
type Model struct {
	c       Config
	trie    *trie.Trie
	longest int       // bytes
	singles []float32 // the scores, if they are added in single precision
}

// New returns the model of a description. It keeps the description's slices.
func New(c Config) (*Model, error) {
	if len(c.Pieces) != len(c.Scores) {
		return nil, errors.New("pieces and scores differ in number")
	}
	m := &Model{c: c, trie: trie.New(c.Pieces, c.Keep), longest: utf8.UTFMax}
	for i, piece := range c.Pieces {
		if math.IsNaN(c.Scores[i]) {
			return nil, errors.New("the score of a piece is not a number")
		}
		m.longest = max(m.longest, len(piece))
		if c.Single {
			m.singles = append(m.singles, float32(c.Scores[i]))
		}
	}
	return m, nil
}

// Scratch is the memory of one goroutine for [Model.Append].
type Scratch struct {
	singles []float32 // of the best divisions that end at the next positions; a ring
	doubles []float64 // the same in double precision
	ends    []uint32  // the last piece of the best division that ends at a position
	path    []uint32  // the best division from its end
}

const (
	// unset marks a position at which no division ends yet.
	unset = ^uint32(0)
	// unknown stands for a character without a piece.
	unknown = unset - 1
	// scratchMax bounds the positions for which a Scratch keeps memory.
	scratchMax = 1 << 18
)

// Append appends the ids of text to dst. If ends is not nil, Append appends to it the offset in text at which each
// token ends. text is UTF-8. Memory is eight bytes for each byte of text.
func (m *Model) Append(dst []uint32, text []byte, ends *[]int, s *Scratch) []uint32 {
	s.reset(len(text))
	if m.c.Single {
		s.singles = ring(s.singles, m.longest)
		search(m, text, m.singles, s.singles, s.ends, float32(m.c.UnkScore))
	} else {
		s.doubles = ring(s.doubles, m.longest)
		search(m, text, m.c.Scores, s.doubles, s.ends, m.c.UnkScore)
	}
	s.path = s.path[:0]
	for pos := len(text); pos > 0; {
		id := s.ends[pos]
		s.path = append(s.path, id)
		if id == unknown {
			_, n := utf8.DecodeLastRune(text[:pos])
			pos -= n
		} else {
			pos -= len(m.c.Pieces[id])
		}
	}
	dst = m.spell(dst, text, s.path, ends)
	if len(s.ends) > scratchMax {
		*s = Scratch{}
	}
	return dst
}

func (s *Scratch) reset(length int) {
	if cap(s.ends) <= length {
		s.ends = make([]uint32, length+1)
	}
	s.ends = s.ends[:length+1]
	for i := range s.ends {
		s.ends[i] = unset
	}
}

// ring returns a ring with room for a position and for the ends of all pieces that begin there: old, if it fits.
func ring[S float32 | float64](old []S, longest int) []S {
	size := 1
	for size <= longest {
		size *= 2
	}
	if len(old) != size {
		return make([]S, size)
	}
	return old
}

// search sets the last piece of the best division for each position of text. The scores have the precision in which
// they are added.
func search[S float32 | float64](m *Model, text []byte, scores, sums []S, ends []uint32, unk S) {
	mask := len(sums) - 1
	sums[0] = 0
	for pos := 0; pos < len(text); {
		here := sums[pos&mask]
		if m.c.Single && (here < -mostSum || here > mostSum) {
			restart(sums, ends[pos:], pos, mask)
			here = 0
		}
		char := 1
		if text[pos] >= utf8.RuneSelf {
			_, char = utf8.DecodeRune(text[pos:])
		}
		single := false
		node, at := trie.Root, pos
		for at < len(text) {
			next, ok := m.trie.Step(node, text[at])
			if !ok {
				break
			}
			node, at = next, at+1
			id := m.trie.Value(node)
			if id == trie.None {
				continue
			}
			if sum := scores[id] + here; ends[at] == unset || sum > sums[at&mask] {
				sums[at&mask], ends[at] = sum, id
			}
			single = single || at == pos+char
		}
		if !single {
			end := pos + char
			if sum := unk + here; ends[end] == unset || sum > sums[end&mask] {
				sums[end&mask], ends[end] = sum, unknown
			}
		}
		pos += char
	}
}

// mostSum bounds the sums of SentencePiece: a position whose sum is larger, or less than its negative, begins at 0.
const mostSum = 100_000

// restart lets the sum at pos be 0, and subtracts as much from those of the positions that pieces have reached behind
// it. Ends begins at pos.
func restart[S float32 | float64](sums []S, ends []uint32, pos, mask int) {
	offset := sums[pos&mask]
	sums[pos&mask] = 0
	for i := 1; i < len(ends) && i <= mask; i++ {
		if ends[i] != unset {
			sums[(pos+i)&mask] -= offset
		}
	}
}
