package tokenize

import (
	"unsafe"

	"millrace/sources/tokenize/internal/prefetch"
)

const (
	// shortTokens is the most tokens of a remembered short piece. They fit half a cache line together with its key.
	shortTokens = 4

	longMax = 256 // bytes of the longest piece that is remembered

	// Sizes of an encoder's memory at its least. They double together as often as the memory of an encoder allows,
	// at most maxDoublings times.
	leastSets    = 1 << 16 // of 64 bytes
	leastSlots   = 1 << 15 // of 16 bytes
	leastWords   = 1 << 18 // of 4 bytes
	maxDoublings = 3
)

// rememberedBytes is the memory of remembered pieces that doubled so often.
func rememberedBytes(doublings int) int64 {
	return (leastSets*int64(unsafe.Sizeof(shortSet{})) + leastSlots*int64(unsafe.Sizeof(longSlot{})) + leastWords*4) <<
		doublings
}

// doublings returns how often remembered pieces may double within so many bytes.
func doublings(bytes int64) int {
	n := 0
	for n < maxDoublings && rememberedBytes(n+1) <= bytes {
		n++
	}
	return n
}

// shortPieces remembers the tokens of short pieces in a cache with two places a set. A new piece takes the second
// place. It moves to the first when it comes again. So pieces that come once displace only each other.
type shortPieces struct {
	sets []shortSet // a power of two of them, each a cache line
	mask uint64
}

type shortSet [2]shortPiece

// shortPiece is a piece and its tokens. The highest byte of the last token is their number. It is manyTokens if there
// are too many; then longPieces remembers the piece.
type shortPiece struct {
	key    key
	tokens [shortTokens]uint32
}

const (
	countShift = 24
	manyTokens = 0xff
)

func newShortPieces(doublings int) shortPieces {
	sets := make([]shortSet, leastSets<<doublings)
	prefetch.Huge(unsafe.Pointer(&sets[0]), uintptr(len(sets))*unsafe.Sizeof(sets[0]))
	return shortPieces{sets: sets, mask: uint64(len(sets) - 1)}
}

// find returns the piece, or nil.
func (s *shortPieces) find(q *shortQuery) *shortPiece {
	set := s.set(q)
	if set[0].key == q.key {
		return &set[0]
	}
	if set[1].key == q.key {
		set[0], set[1] = set[1], set[0]
		return &set[0]
	}
	return nil
}

func (s *shortPieces) set(q *shortQuery) *shortSet { return &s.sets[q.hash&s.mask] }

// replace returns a place for the piece. The caller sets its tokens.
func (s *shortPieces) replace(q *shortQuery) *shortPiece {
	p := &s.set(q)[1]
	*p = shortPiece{key: q.key}
	return p
}

func (p *shortPiece) set(tokens ...uint32) {
	if len(tokens) > shortTokens {
		p.tokens[shortTokens-1] = manyTokens << countShift
		return
	}
	copy(p.tokens[:], tokens)
	p.tokens[shortTokens-1] |= uint32(len(tokens)) << countShift
}

// longPieces remembers the tokens of all other pieces. The records of the last ones lie in a ring: of each piece its
// tokens, then its bytes.
type longPieces struct {
	slots []longSlot // a power of two of them
	ring  []uint32   // a power of two of words
	end   uint64     // of the last record, in words since the first one
}

type longSlot struct {
	at     uint64 // the record's first word, as end counts; 0 if empty
	hash   uint32
	length uint16
	count  uint16
}

func newLongPieces(doublings int) longPieces {
	l := longPieces{
		slots: make([]longSlot, leastSlots<<doublings),
		ring:  make([]uint32, leastWords<<doublings),
	}
	l.end = uint64(len(l.ring)) // so that no record begins at 0
	prefetch.Huge(unsafe.Pointer(&l.slots[0]), uintptr(len(l.slots))*unsafe.Sizeof(l.slots[0]))
	prefetch.Huge(unsafe.Pointer(&l.ring[0]), uintptr(len(l.ring))*unsafe.Sizeof(l.ring[0]))
	return l
}

// find returns the tokens of a piece. They are valid until the next call of remember.
func (l *longPieces) find(piece []byte, hash uint64) (tokens []uint32, ok bool) {
	slot := &l.slots[hash&uint64(len(l.slots)-1)]
	if slot.hash != uint32(hash>>32) || int(slot.length) != len(piece) || slot.at+uint64(len(l.ring)) < l.end {
		return nil, false
	}
	record := l.ring[slot.at&uint64(len(l.ring)-1):]
	if string(wordBytes(record[slot.count:])[:slot.length]) != string(piece) {
		return nil, false
	}
	return record[:slot.count], true
}

// remember adds a piece of at most longMax bytes. It forgets the pieces whose records are the oldest.
func (l *longPieces) remember(piece []byte, hash uint64, tokens []uint32) {
	words := len(tokens) + (len(piece)+3)/4
	at := int(l.end & uint64(len(l.ring)-1))
	if left := len(l.ring) - at; left < words {
		l.end += uint64(left)
		at = 0
	}
	copy(l.ring[at:], tokens)
	copy(wordBytes(l.ring[at+len(tokens):]), piece)
	l.slots[hash&uint64(len(l.slots)-1)] = longSlot{
		at:     l.end,
		hash:   uint32(hash >> 32),
		length: uint16(len(piece)),
		count:  uint16(len(tokens)),
	}
	l.end += uint64(words)
}

// wordBytes returns the bytes of some words, of which there is at least one.
func wordBytes(words []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 4*len(words))
}
