// Package vocab has byte-level BPE vocabularies: the bytes of every token and the one pair of tokens that merges into
// it.
//
// A token's id is its rank. A vocabulary states only bytes and ranks. The merges follow from them. Byte pair encoding
// of a token's own bytes, with the tokens of lower rank, ends in exactly two parts. Two neighbouring parts that spell
// the token in a longer text are always these two. The reason is that the merges inside a span do not depend on the
// text around it. So one pair for each token is the whole merge table.
package vocab

import (
	"fmt"
	"math"

	"millrace/text/tokenize/internal/shared"
)

// MaxTokens bounds ids, so that two of them and a third pack into 63 bits. Of 21 bits, all ones are no id.
const MaxTokens = 1<<21 - 1

// none marks an id without a pair: a single byte, a token that no merge makes, or an unused id.
const none = math.MaxUint32

// Vocabulary has the tokens of an encoding, without its special tokens. It is immutable.
type Vocabulary struct {
	spelling []byte // the bytes of all tokens, in the order of their ids
	// ends[id] is the end of the token's bytes in spelling; the bytes of id are spelling[ends[id-1]:ends[id]]
	ends  []uint32
	pairs [][2]uint32
	bytes [256]uint32
	// merged: only a merge makes a token. Otherwise a whole piece that spells a token is this token.
	merged bool
}

// Len returns the number of ids: the highest rank plus one.
func (v *Vocabulary) Len() int { return len(v.ends) }

// Token returns the bytes of a token, which the caller must not change. The bytes of an unused id are empty.
func (v *Vocabulary) Token(id uint32) []byte {
	start := uint32(0)
	if id > 0 {
		start = v.ends[id-1]
	}
	return v.spelling[start:v.ends[id]:v.ends[id]]
}

// Pair returns the two tokens that merge into id. ok is false for a single byte and if no merge makes the token.
func (v *Vocabulary) Pair(id uint32) (left, right uint32, ok bool) {
	p := v.pairs[id]
	return p[0], p[1], p[0] != none
}

// Byte returns the token of a single byte.
func (v *Vocabulary) Byte(b byte) uint32 { return v.bytes[b] }

// IsWhole reports whether a piece that spells the token is this token.
func (v *Vocabulary) IsWhole(id uint32) bool {
	return !v.merged || len(v.Token(id)) == 1 || v.pairs[id][0] != none
}

// Tables returns the tables that never change.
func (v *Vocabulary) Tables() []shared.Table {
	return []shared.Table{shared.Of(&v.spelling), shared.Of(&v.ends), shared.Of(&v.pairs)}
}

// fromTokens returns the vocabulary with the bytes of each rank. An empty entry is an unused rank. All 256 single bytes
// must be there, and no bytes twice.
func fromTokens(tokens [][]byte) (*Vocabulary, error) {
	v, err := spell(tokens)
	if err != nil {
		return nil, err
	}
	v.derivePairs(nil)
	return v, nil
}

// spell returns the vocabulary without its pairs.
func spell(tokens [][]byte) (*Vocabulary, error) {
	if len(tokens) > MaxTokens {
		return nil, fmt.Errorf("build vocabulary: rank %d, the highest supported is %d", len(tokens)-1, MaxTokens-1)
	}
	v := &Vocabulary{ends: make([]uint32, 0, len(tokens)), pairs: make([][2]uint32, len(tokens))}
	known := make(map[string]uint32, len(tokens))
	for id, token := range tokens {
		v.spelling = append(v.spelling, token...)
		v.ends = append(v.ends, uint32(len(v.spelling)))
		v.pairs[id] = [2]uint32{none, none}
		if len(token) == 0 {
			continue
		}
		if first, doubled := known[string(token)]; doubled {
			return nil, fmt.Errorf("build vocabulary: ranks %d and %d are both %q", first, id, token)
		}
		known[string(token)] = uint32(id)
	}
	for b := range v.bytes {
		id, ok := known[string([]byte{byte(b)})]
		if !ok {
			return nil, fmt.Errorf("build vocabulary: no token for the single byte 0x%02x", b)
		}
		v.bytes[b] = id
	}
	return v, nil
}

// derivePairs finds every token's pair in the order of the ranks. So only pairs of lower rank are known when a token's
// own bytes are encoded. Unless listed is nil, a pair counts only if it is listed with its token.
func (v *Vocabulary) derivePairs(listed map[[2]uint32]uint32) {
	m := merging{merged: make(map[[2]uint32]uint32, v.Len())}
	for id := range uint32(v.Len()) {
		token := v.Token(id)
		if len(token) < 2 {
			continue
		}
		m.parts = m.parts[:0]
		for _, b := range token {
			m.parts = append(m.parts, v.bytes[b])
		}
		m.mergeAll()
		if len(m.parts) == 2 && (listed == nil || listed[[2]uint32{m.parts[0], m.parts[1]}] == id+1) {
			v.pairs[id] = [2]uint32{m.parts[0], m.parts[1]}
			m.merged[v.pairs[id]] = id
		}
	}
}

// merging merges the parts of one token after another.
type merging struct {
	merged map[[2]uint32]uint32 // the tokens of pairs
	parts  []uint32
	joined []uint32 // the token of each part and the next one, or none
}

// mergeAll merges the pair of the lowest rank, the leftmost of equals, until none is left.
func (m *merging) mergeAll() {
	m.joined = m.joined[:0]
	for i := range len(m.parts) - 1 {
		m.joined = append(m.joined, m.join(i))
	}
	for len(m.joined) > 0 {
		at := 0
		for i, id := range m.joined {
			if id < m.joined[at] {
				at = i
			}
		}
		if m.joined[at] == none {
			return
		}
		m.parts[at] = m.joined[at]
		m.parts = append(m.parts[:at+1], m.parts[at+2:]...)
		m.joined = append(m.joined[:at], m.joined[at+1:]...)
		if at > 0 {
			m.joined[at-1] = m.join(at - 1)
		}
		if at < len(m.joined) {
			m.joined[at] = m.join(at)
		}
	}
}

// join returns the token of part i and the next one, or none.
func (m *merging) join(i int) uint32 {
	if id, ok := m.merged[[2]uint32{m.parts[i], m.parts[i+1]}]; ok {
		return id
	}
	return none
}
