package tokenize

import (
	"time"
	"unsafe"

	"millrace/text/tokenize/internal/pages"
	"millrace/text/tokenize/internal/short"
)

const (
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
	return (leastSets*short.SetBytes + leastSlots*int64(unsafe.Sizeof(longSlot{})) + leastWords*4) <<
		doublings
}

// doublings returns how often remembered pieces may double within `bytes` bytes.
func doublings(bytes int64) int {
	n := 0
	for n < maxDoublings && rememberedBytes(n+1) <= bytes {
		n++
	}
	return n
}

// The use of an encoder from which on more memory pays: fewer bytes in busyTime take an eighth of a processor.
const (
	busyBytes = 100 << 20
	busyTime  = 10 * time.Second
)

// room is the memory of an encoder. It begins at its least, and doubles while the encoder is busy. Encoders of shadows,
// and of loaders at the pace of trainers, are never busy.
type room struct {
	doublings int
	most      int
	since     time.Time
	bytes     int // of text since then, within busyTime
}

// use counts a text, and reports whether the room has doubled.
func (r *room) use(bytes int, now time.Time) bool {
	if r.doublings == r.most {
		return false
	}
	if now.Sub(r.since) > busyTime {
		r.since, r.bytes = now, 0
	}
	if r.bytes += bytes; r.bytes < busyBytes {
		return false
	}
	r.since, r.bytes = now, 0
	r.doublings++
	return true
}

// longPieces remembers the tokens of all other pieces. The records of the last ones are in a ring: of each piece its
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
	pages.Huge(unsafe.Pointer(&l.slots[0]), uintptr(len(l.slots))*unsafe.Sizeof(l.slots[0]))
	pages.Huge(unsafe.Pointer(&l.ring[0]), uintptr(len(l.ring))*unsafe.Sizeof(l.ring[0]))
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
