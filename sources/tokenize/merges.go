package tokenize

import (
	"math/bits"

	"millrace/sources/tokenize/internal/vocab"
)

// idBits is enough for every id. If it were not, the second line would not compile.
const (
	idBits = 21
	_      = uint(1<<idBits - vocab.MaxTokens)
)

// mergeTable finds the token that two neighbouring tokens merge into. A slot packs left, right and merged token in 21
// bits each under the highest bit. Zero is empty. Probing is linear, and the table is at most half full.
type mergeTable struct {
	slots      []uint64
	vocabulary *vocab.Vocabulary
	shift      uint
	bytes      [256]uint32 // the token of a byte
	// the token that two single bytes merge into, or noToken: the first round needs no probing
	starts [1 << 16]uint32
}

func newMergeTable(v *vocab.Vocabulary) *mergeTable {
	n := bits.Len(uint(2 * v.Len()))
	m := &mergeTable{vocabulary: v, slots: make([]uint64, 1<<n), shift: 64 - uint(n)}
	for id := range uint32(v.Len()) {
		left, right, ok := v.Pair(id)
		if !ok {
			continue
		}
		pair := packPair(left, right)
		at := pair * pairSpread >> m.shift
		for m.slots[at] != 0 {
			at = (at + 1) & uint64(len(m.slots)-1)
		}
		m.slots[at] = pair<<idBits | uint64(id)
	}
	for b := range m.bytes {
		m.bytes[b] = v.Byte(byte(b))
	}
	for i := range m.starts {
		m.starts[i] = m.find(m.bytes[i&0xff], m.bytes[i>>8])
	}
	return m
}

const pairSpread = 0x9e3779b97f4a7c15

func packPair(left, right uint32) uint64 {
	return 1<<(2*idBits) | uint64(left)<<idBits | uint64(right)
}

// find returns the token that two tokens merge into, or noToken.
func (m *mergeTable) find(left, right uint32) uint32 {
	pair := packPair(left, right)
	for at := pair * pairSpread >> m.shift; ; at = (at + 1) & uint64(len(m.slots)-1) {
		slot := m.slots[at]
		if slot>>idBits == pair {
			return uint32(slot) & (1<<idBits - 1)
		}
		if slot == 0 {
			return noToken
		}
	}
}
