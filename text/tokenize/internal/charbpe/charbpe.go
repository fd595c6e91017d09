// Package charbpe encodes by byte pair encoding over characters, as the model BPE of Hugging Face's tokenizers does
// without a byte-level alphabet: Llama 2, Gemma, Mistral, Phi-3.
//
// Merges are listed pairs of ids; of all pairs in a text, the one listed first merges first, and of equals the
// leftmost. A character without a token is the tokens of its bytes, or unk. See models/bpe/model.rs of tokenizers 0.23.
package charbpe

import (
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// Merge is a pair of tokens that merges into the token ID.
type Merge struct{ Left, Right, ID uint32 }

// Config describes a model.
type Config struct {
	Tokens [][]byte // by id; an empty entry is an unused id
	Merges []Merge  // first merges first
	Unk    uint32   // a character without a token, if Bytes is nil; NoUnk: no text has one
	Fuse   bool     // a run of them is one unk
	Bytes  *[256]uint32
	Whole  bool // a text that is a token is this token, whether merges make it or not
}

// Model is a vocabulary with its merges. It never changes and is safe for concurrent use.
type Model struct {
	c     Config
	ascii [utf8.RuneSelf]uint32
	chars map[rune]uint32
	words map[string]uint32 // of all tokens if Whole is set, else nil
	pairs pairTable
	// joins has the pairs of characters that a merge may join. A text divides between all others.
	joins    map[uint64]struct{}
	joinsFew [utf8.RuneSelf][2]uint64 // the pairs of ASCII characters
}

// NoUnk is no id of any vocabulary.
const NoUnk = ^uint32(0)

const (
	noToken = ^uint32(0)
	// spelt is a character that stands for the tokens of its bytes, and unknown one that is unk.
	spelt   = noToken - 1
	unknown = noToken - 2
)

// New returns the model of a description. It keeps the description's slices.
func New(c Config) (*Model, error) {
	m := &Model{c: c, chars: map[rune]uint32{}, joins: map[uint64]struct{}{}}
	m.c.Fuse = c.Fuse && c.Bytes == nil
	for i := range m.ascii {
		m.ascii[i] = noToken
	}
	if c.Whole {
		m.words = make(map[string]uint32, len(c.Tokens))
	}
	for id, token := range c.Tokens {
		if r, n := utf8.DecodeRune(token); n == len(token) && n > 0 {
			m.chars[r] = uint32(id)
			if r < utf8.RuneSelf {
				m.ascii[r] = uint32(id)
			}
		}
		if c.Whole && len(token) > 0 {
			m.words[string(token)] = uint32(id)
		}
	}
	return m, m.index()
}

// index fills the tables of merges.
func (m *Model) index() error {
	reserved := map[uint32]bool{}
	if m.c.Bytes == nil {
		reserved[m.c.Unk] = true
	} else {
		for b, id := range m.c.Bytes {
			reserved[id] = b >= utf8.RuneSelf || m.ascii[b] != id // else the character has no other token
		}
	}
	m.pairs = newPairTable(len(m.c.Merges))
	for rank, p := range m.c.Merges {
		for _, id := range []uint32{p.Left, p.Right, p.ID} {
			if int64(id) >= int64(len(m.c.Tokens)) || len(m.c.Tokens[id]) == 0 {
				return errors.New("a merge has an id without a token")
			}
			if reserved[id] {
				return fmt.Errorf("merge %d has the token %q, which stands for other characters", rank, m.c.Tokens[id])
			}
		}
		m.pairs.insert(p.Left, p.Right, uint32(rank), p.ID)
		left, _ := utf8.DecodeLastRune(m.c.Tokens[p.Left])
		right, _ := utf8.DecodeRune(m.c.Tokens[p.Right])
		if left < utf8.RuneSelf && right < utf8.RuneSelf {
			m.joinsFew[left][right/64] |= 1 << (right % 64)
		} else {
			m.joins[uint64(left)<<32|uint64(right)] = struct{}{}
		}
	}
	return nil
}

// char returns the id of a character: its token, spelt or unknown.
func (m *Model) char(r rune) uint32 {
	if r < utf8.RuneSelf {
		if id := m.ascii[r]; id != noToken {
			return id
		}
	} else if id, ok := m.chars[r]; ok {
		return id
	}
	if m.c.Bytes != nil {
		return spelt
	}
	return unknown
}

// joined reports whether two neighbouring characters may belong to one token.
func (m *Model) joined(left, right rune) bool {
	joined := false
	if left < utf8.RuneSelf && right < utf8.RuneSelf {
		joined = m.joinsFew[left][right/64]>>(right%64)&1 != 0
	} else {
		_, joined = m.joins[uint64(left)<<32|uint64(right)]
	}
	return joined || m.c.Fuse && m.char(left) == unknown && m.char(right) == unknown
}

// Pieces finds the next parts of text from pos on that [Merger.Append] encodes independently. It sets ends to their
// ends and returns their number. text is UTF-8.
func (m *Model) Pieces(text []byte, pos int, ends []int) int {
	if m.words != nil {
		ends[0] = len(text)
		return 1
	}
	n := 0
	left, size := utf8.DecodeRune(text[pos:])
	for pos += size; pos < len(text); pos += size {
		var right rune
		right, size = utf8.DecodeRune(text[pos:])
		if !m.joined(left, right) {
			ends[n] = pos
			if n++; n == len(ends) {
				return n
			}
		}
		left = right
	}
	ends[n] = len(text)
	return n + 1
}

// pairTable has the merges by their pairs: open addressing, at most half full.
type pairTable struct {
	slots []pairSlot
	shift uint
}

type pairSlot struct {
	left, right uint32
	rank, id    uint32
}

func newPairTable(n int) pairTable {
	size := bits.Len(uint(2*n + 1))
	t := pairTable{slots: make([]pairSlot, 1<<size), shift: 64 - uint(size)}
	for i := range t.slots {
		t.slots[i].id = noToken
	}
	return t
}

func (t *pairTable) start(left, right uint32) uint64 {
	return (uint64(left)<<32 | uint64(right)) * 0x9e3779b97f4a7c15 >> t.shift
}

// insert adds a merge. Of several merges of a pair the last one counts.
func (t *pairTable) insert(left, right, rank, id uint32) {
	at := t.start(left, right)
	for t.slots[at].id != noToken && (t.slots[at].left != left || t.slots[at].right != right) {
		at = (at + 1) & uint64(len(t.slots)-1)
	}
	t.slots[at] = pairSlot{left, right, rank, id}
}

// find returns the merge of a pair; its id is noToken if there is none.
func (t *pairTable) find(left, right uint32) pairSlot {
	for at := t.start(left, right); ; at = (at + 1) & uint64(len(t.slots)-1) {
		s := t.slots[at]
		if s.id == noToken || s.left == left && s.right == right {
			return s
		}
	}
}
