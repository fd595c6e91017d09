package arena

import (
	"hash/crc32"
	"sync/atomic"
	"unsafe"
)

// Marks say which rows of one request are complete in its arena: one mark a row, behind the room of all rows. The
// writer marks a row after its last token. So the tokens of a writer that has died are of use: its reader takes the
// marked rows, and asks another process only for the others. A mark has the number of tokens and their checksum.
type Marks []uint64

// Room returns the tokens that an arena needs for rows with room for `tokens` tokens together, and for their marks.
func Room(tokens, rows int) int { return even(tokens) + 2*rows }

// MarksOf returns the marks of rows that begin at the arena's first token and have room for `tokens` tokens together.
// It returns nil if the arena is too small for them.
func MarksOf(memory []uint32, tokens, rows int) Marks {
	if rows == 0 || len(memory) < Room(tokens, rows) {
		return nil
	}
	// An arena begins at a page, so an even place is one of 8 bytes.
	return unsafe.Slice((*uint64)(unsafe.Pointer(&memory[even(tokens)])), rows)
}

func even(n int) int { return (n + 1) &^ 1 }

// Clear removes all marks. The reader clears them before the request, because an arena is used again.
func (m Marks) Clear() { clear(m) }

// Set marks a row as complete.
func (m Marks) Set(row int, tokens []uint32) { atomic.StoreUint64(&m[row], mark(tokens)) }

// Has reports whether a row is complete and its tokens are these. It is safe while the writer still writes. It does not
// look at the tokens of a row without a mark.
func (m Marks) Has(row int, tokens []uint32) bool {
	was := atomic.LoadUint64(&m[row])
	return was != 0 && was == mark(tokens)
}

// mark is never 0.
func mark(tokens []uint32) uint64 {
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))), 4*len(tokens))
	return uint64(crc32.Checksum(bytes, crc32.MakeTable(crc32.Castagnoli)))<<32 | uint64(uint32(len(tokens))+1)
}
