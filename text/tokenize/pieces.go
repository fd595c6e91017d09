package tokenize

import (
	"encoding/binary"
	"math/bits"

	"millrace/text/tokenize/internal/pages"
	"millrace/text/tokenize/internal/shared"
	"millrace/text/tokenize/internal/short"
	"millrace/text/tokenize/internal/vocab"
)

// longHash returns the hash of a piece of any length.
func longHash(piece []byte) uint64 {
	if len(piece) < 8 {
		return short.KeyOf(piece).Hash()
	}
	h := uint64(len(piece))
	for i := 0; i+8 < len(piece); i += 8 {
		hi, lo := bits.Mul64(h^binary.LittleEndian.Uint64(piece[i:])^0xa0761d6478bd642f, 0xe7037ed1a0b428db)
		h = hi ^ lo
	}
	tail := binary.LittleEndian.Uint64(piece[len(piece)-8:])
	hi, lo := bits.Mul64(h^tail^0x8ebc6af09c88c6e3, 0x589965cc75374cc3)
	return hi ^ lo
}

// noToken is no id of any vocabulary.
const noToken = ^uint32(0)

// pieceTable finds the token that spells exactly a piece. It uses open addressing with linear probing and is at most
// half full.
type pieceTable struct {
	short      []shortSlot
	shortShift uint
	filter     []uint64 // a bit for each short token, by more bits of its hash: most new pieces are no tokens
	long       []uint32 // ids of tokens longer than short.Max, noToken if empty
	longMask   uint64
	vocabulary *vocab.Vocabulary
}

// pieceFilterBits says that a slot of short tokens has 2^pieceFilterBits bits of the filter.
const pieceFilterBits = 2

type shortSlot struct {
	key short.Key
	id  uint32
}

func newPieceTable(v *vocab.Vocabulary) *pieceTable {
	shorts, longs := 0, 0
	for id := range uint32(v.Len()) {
		if n := len(v.Token(id)); n > short.Max {
			longs++
		} else if n > 0 {
			shorts++
		}
	}
	shortBits := bits.Len(uint(2 * shorts))
	t := &pieceTable{
		short:      pages.Make[shortSlot](1 << shortBits),
		shortShift: 64 - uint(shortBits),
		filter:     make([]uint64, (1<<shortBits<<pieceFilterBits+63)/64),
		long:       make([]uint32, 1<<bits.Len(uint(2*longs))),
		vocabulary: v,
	}
	t.longMask = uint64(len(t.long) - 1)
	for i := range t.long {
		t.long[i] = noToken
	}
	for id := range uint32(v.Len()) {
		t.insert(id)
	}
	return t
}

// tables returns the tables that never change.
func (t *pieceTable) tables() []shared.Table {
	return []shared.Table{shared.Of(&t.short), shared.Of(&t.filter), shared.Of(&t.long)}
}

func (t *pieceTable) insert(id uint32) {
	token := t.vocabulary.Token(id)
	switch {
	case len(token) == 0 || !t.vocabulary.IsWhole(id):
	case len(token) <= short.Max:
		k := short.KeyOf(token)
		hash := k.Hash()
		bit := hash >> (t.shortShift - pieceFilterBits)
		t.filter[bit/64] |= 1 << (bit % 64)
		at := hash >> t.shortShift
		for t.short[at].key.Hi != 0 {
			at = (at + 1) & uint64(len(t.short)-1)
		}
		t.short[at].key, t.short[at].id = k, id // the padding stays zero: equal tables have equal bytes
	default:
		at := longHash(token) & t.longMask
		for t.long[at] != noToken {
			at = (at + 1) & t.longMask
		}
		t.long[at] = id
	}
}

// findShort returns the token that a key spells, or noToken.
func (t *pieceTable) findShort(k short.Key, hash uint64) uint32 {
	if bit := hash >> (t.shortShift - pieceFilterBits); t.filter[bit/64]>>(bit%64)&1 == 0 {
		return noToken
	}
	for at := hash >> t.shortShift; ; at = (at + 1) & uint64(len(t.short)-1) {
		slot := &t.short[at]
		if slot.key == k {
			return slot.id
		}
		if slot.key.Hi == 0 {
			return noToken
		}
	}
}

// findLong returns the token that a long piece spells, or noToken. It does not find short tokens.
func (t *pieceTable) findLong(piece []byte, hash uint64) uint32 {
	for at := hash & t.longMask; ; at = (at + 1) & t.longMask {
		id := t.long[at]
		if id == noToken || string(t.vocabulary.Token(id)) == string(piece) {
			return id
		}
	}
}
