// Package short remembers the tokens of short pieces of text. Most pieces of a text are short and remembered, so this
// package decides the speed of a tokenizer.
package short

import (
	"encoding/binary"
	"math/bits"
)

// Max is the longest piece whose bytes and length fit a key.
const Max = 15

// Key is a piece of at most Max bytes: its bytes in little-endian order, zeros behind them, and the length in the
// highest byte. The key of a piece is never zero.
type Key struct{ Lo, Hi uint64 }

// longKey stands for every longer piece. No piece has it.
const longKey = 1 << 63

// KeyOf returns the key of a piece of at most Max bytes.
func KeyOf(piece []byte) Key {
	var padded [16]byte
	copy(padded[:Max], piece)
	padded[Max] = byte(len(piece))
	return Key{binary.LittleEndian.Uint64(padded[:8]), binary.LittleEndian.Uint64(padded[8:])}
}

// Hash folds a product of both halves, as wyhash does. Its low bits are good.
func (k Key) Hash() uint64 {
	hi, lo := bits.Mul64(k.Lo^0xa0761d6478bd642f, k.Hi^0xe7037ed1a0b428db)
	return hi ^ lo
}

// keyMask makes the key of a piece from 16 bytes of text.
type keyMask struct{ lo, hi, length, _ uint64 }

// keyMasks has the mask of each length. The last one is of all longer pieces.
type keyMasks [Max + 2]keyMask

func newKeyMasks() (masks keyMasks) {
	for n := range masks[:Max+1] {
		masks[n] = keyMask{lo: 1<<(8*min(n, 8)) - 1, hi: 1<<(8*max(n-8, 0)) - 1, length: uint64(n) << 56}
	}
	masks[Max+1].length = longKey
	return masks
}

// Query is a piece to look up.
type Query struct {
	Key  Key
	Hash uint64
}

// IsLong reports whether the piece is too long for this package. Then the hash is not that of the piece.
func (q *Query) IsLong() bool { return q.Key.Hi == longKey }
