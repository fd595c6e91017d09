package sentencepiece

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"millrace/sources/tokenize/internal/vocab"
)

// Prefix tells before which texts the sign of a space is written.
type Prefix uint8

// The prefixes.
const (
	Never   Prefix = iota
	Always         // before every text that is not empty
	Missing        // unless the text begins with a space
	First          // as Missing, before the beginning of a document alone
)

// Spaces are the rules of a tokenizer.json for spaces. Each space becomes U+2581.
type Spaces struct {
	Prefix Prefix
	Cut    bool // no token reaches from before a space to behind it
}

// Merges is the BPE model of a tokenizer.json that spells characters without a token by bytes (byte_fallback).
type Merges struct {
	Tokens [][]byte // by id
	Unk    string
	List   []vocab.Merge // in the order of their ranks
	Spaces Spaces
}

// maxToken bounds the length of a token, whose merges take time.
const maxToken = 1 << 15

// FromMerges returns the model of listed merges: of all neighbours with a listed merge, the pair of the lowest rank
// merges first, and of equals the leftmost. The reference is bpe/model.rs and bpe/word.rs of tokenizers 0.23.
func FromMerges(from Merges) (*Model, error) {
	m := &Model{proto: &proto{kind: bpeKind, bytes: true, escapes: true}, spaces: &from.Spaces}
	for id, text := range from.Tokens {
		if len(text) > maxToken {
			return nil, fmt.Errorf("token %d has %d bytes, and at most %d are supported", id, len(text), maxToken)
		}
		m.proto.pieces = append(m.proto.pieces, piece{text: text, kind: kindOf(text, from.Unk)})
	}
	if err := m.index(); err != nil {
		return nil, err
	}
	m.findPlain()
	pairs := newPairs(len(from.List))
	for rank, merge := range from.List {
		if err := m.check(rank, merge); err != nil {
			return nil, err
		}
		pairs.insert(merge, uint32(rank))
	}
	m.bpe = newBPE(m)
	m.bpe.pairs = pairs
	return m, nil
}

func kindOf(text []byte, unk string) uint64 {
	_, isByte := byteValue(text)
	switch {
	case string(text) == unk:
		return unknown
	case isByte:
		return byteOf
	}
	return normal
}

// check refuses a merge that is none of characters.
func (m *Model) check(number int, merge vocab.Merge) error {
	left, right, made := m.proto.pieces[merge.Left], m.proto.pieces[merge.Right], m.proto.pieces[merge.ID]
	for _, p := range []piece{left, right, made} {
		if p.kind == byteOf || p.kind == unknown {
			return fmt.Errorf("merge %d has %q, which no text contains", number, p.text)
		}
	}
	if string(left.text)+string(right.text) != string(made.text) {
		return fmt.Errorf("merge %d joins %q and %q, which is not token %d, %q", number, left.text, right.text,
			merge.ID, made.text)
	}
	return nil
}

// describe appends the merges by their ranks.
func (p *pairs) describe(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, 12*(p.ranks))...)
	for _, s := range p.slots {
		if s.id != noToken {
			at := dst[start+12*int(s.rank):]
			binary.LittleEndian.PutUint32(at, s.left)
			binary.LittleEndian.PutUint32(at[4:], s.right)
			binary.LittleEndian.PutUint32(at[8:], s.id)
		}
	}
	return dst
}

// pairs finds the merge of two tokens. It uses open addressing with linear probing and is at most half full.
type pairs struct {
	slots []pairSlot
	shift uint
	ranks int // number of listed merges
}

// pairSlot is a merge. It is empty if its id is noToken.
type pairSlot struct{ left, right, id, rank uint32 }

func newPairs(n int) *pairs {
	size := bits.Len(uint(2 * n))
	p := &pairs{slots: make([]pairSlot, 1<<size), shift: 64 - uint(size), ranks: n}
	for i := range p.slots {
		p.slots[i].id = noToken
	}
	return p
}

// at returns the slot of two tokens, or the empty one for them.
func (p *pairs) at(left, right uint32) *pairSlot {
	hash := (uint64(left)<<32 | uint64(right)) * 0x9e3779b97f4a7c15
	for i := hash >> p.shift; ; i = (i + 1) & uint64(len(p.slots)-1) {
		s := &p.slots[i]
		if s.id == noToken || s.left == left && s.right == right {
			return s
		}
	}
}

// insert adds a merge. The last one of a pair counts.
func (p *pairs) insert(m vocab.Merge, rank uint32) {
	*p.at(m.Left, m.Right) = pairSlot{m.Left, m.Right, m.ID, rank}
}
