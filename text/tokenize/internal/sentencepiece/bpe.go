package sentencepiece

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// bpe is the table of merges: of all neighbours whose texts together are a piece, those of the highest score merge
// first, and of equals the leftmost.
type bpe struct {
	ranks    []uint32 // by id; pieces of a higher score have a lower rank
	final    []uint32 // by id: the id to write
	slots    []slot   // pieces by their texts; open addressing, at most half full
	shift    uint
	seed     maphash.Seed
	borders  borders
	reserved map[string]uint32 // pieces that no text contains
	splits   bool              // there are unused pieces: they are divided again
}

type slot struct {
	tag, id uint32
}

// noToken is the id of a text that is no piece.
const noToken = ^uint32(0)

func newBPE(m *Model) *bpe {
	pieces := m.proto.pieces
	b := &bpe{ranks: make([]uint32, len(pieces)), final: make([]uint32, len(pieces)), seed: maphash.MakeSeed(),
		reserved: map[string]uint32{}}
	order := make([]uint32, len(pieces))
	for id, p := range pieces {
		order[id] = uint32(id)
		if !isInText(p) {
			b.reserved[string(p.text)] = uint32(id)
		}
		b.splits = b.splits || p.kind == unused
	}
	slices.SortFunc(order, func(x, y uint32) int { return cmp.Compare(pieces[y].score, pieces[x].score) })
	for i, id := range order[1:] {
		b.ranks[id] = b.ranks[order[i]]
		if pieces[id].score < pieces[order[i]].score {
			b.ranks[id]++
		}
	}
	sizeBits := bits.Len(uint(2 * len(pieces)))
	b.slots, b.shift = make([]slot, 1<<sizeBits), 64-uint(sizeBits)
	for i := range b.slots {
		b.slots[i].id = noToken
	}
	for id, p := range pieces {
		b.final[id] = uint32(id)
		if other, ok := b.reserved[string(p.text)]; ok {
			b.final[id] = other
		}
		if isInText(p) {
			b.insert(p.text, uint32(id))
		}
	}
	b.borders = newBorders(m)
	return b
}

func (b *bpe) insert(text []byte, id uint32) {
	hash := maphash.Bytes(b.seed, text)
	at := hash >> b.shift
	for b.slots[at].id != noToken {
		at = (at + 1) & uint64(len(b.slots)-1)
	}
	b.slots[at] = slot{uint32(hash), id}
}

// find returns the id of the piece with this text, or noToken.
func (m *Model) find(text []byte) uint32 {
	b := m.bpe
	hash := maphash.Bytes(b.seed, text)
	for at := hash >> b.shift; ; at = (at + 1) & uint64(len(b.slots)-1) {
		s := b.slots[at]
		if s.id == noToken || s.tag == uint32(hash) && string(m.proto.pieces[s.id].text) == string(text) {
			return s.id
		}
	}
}

// next returns the length of the symbol that begins text: a user-defined one, which never merges, or a character.
func (m *Model) next(text []byte) (n int, frozen bool) {
	if text[0] < utf8.RuneSelf && (m.user == nil || m.plain[text[0]]) {
		return 1, false
	}
	if n := m.symbol(text); n > 0 {
		return n, true
	}
	_, n = utf8.DecodeRune(text)
	return n, false
}

// spell appends the id of a symbol, or the ids of its bytes if it has none.
func (m *Model) spell(dst []uint32, text []byte, id uint32) []uint32 {
	if id != noToken {
		id = m.bpe.final[id]
	} else if other, ok := m.bpe.reserved[string(text)]; ok {
		id = other
	} else {
		id = m.unk
	}
	if id == m.unk && m.bytes != nil {
		for _, b := range text {
			dst = append(dst, m.bytes[b])
		}
		return dst
	}
	return append(dst, id)
}
