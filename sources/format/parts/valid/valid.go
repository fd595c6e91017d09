// Package valid checks whether bytes are UTF-8, as fast as the processor can.
package valid

import "unicode/utf8"

// blockBytes is the size of the blocks that one step validates.
const blockBytes = 64

// leastBytes is the least number of bytes for which blocks are faster.
const leastBytes = 32

// UTF8 reports whether all of b is UTF-8, as utf8.Valid does. Text of other scripts than Latin takes a seventh of the
// time of utf8.Valid.
func UTF8(b []byte) bool {
	if !hasBlocks() || len(b) < leastBytes {
		return utf8.Valid(b)
	}
	whole := len(b) &^ (blockBytes - 1)
	if whole > 0 {
		if !validBlocks(&b[0], whole) {
			return false
		}
		whole -= begun(b[:whole])
	}
	var last [2 * blockBytes]byte // the zeros behind the text show that its last character ends
	if copy(last[:], b[whole:]) < blockBytes {
		return validBlocks(&last[0], blockBytes)
	}
	return validBlocks(&last[0], 2*blockBytes)
}

// begun returns the number of last bytes of b from its last leading byte on, 0 if the last three bytes have none. A
// character that begins there may end behind b.
func begun(b []byte) int {
	for n := 1; n < utf8.UTFMax; n++ {
		if b[len(b)-n] >= 0xC0 {
			return n
		}
	}
	return 0
}
