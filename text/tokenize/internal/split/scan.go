package split

import (
	"encoding/binary"
	"math/bits"
)

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// leadingIn counts the leading bytes of x, from the lowest on, that are ASCII and in [from, to]. It first sets the bits
// of fold in each byte.
func leadingIn(x uint64, from, to byte, fold uint64) int {
	y := (x | fold) &^ highs
	in := (y + (0x80-uint64(from))*ones) &^ (y + (0x7f-uint64(to))*ones) &^ x & highs
	return bits.TrailingZeros64(in^highs) >> 3
}

// lettersEnd returns the end of the run of letters that continues at t[i].
func (c *classes) lettersEnd(t []byte, i int) int {
	for i+8 <= len(t) {
		n := leadingIn(binary.LittleEndian.Uint64(t[i:]), 'a', 'z', 0x20*ones)
		i += n
		if n < 8 {
			if t[i] < 0x80 {
				return i
			}
			break
		}
	}
	return c.runEnd(t, i, letter)
}

// othersEnd returns the end of the run of [^\s\p{L}\p{N}] that continues at t[i].
func (c *classes) othersEnd(t []byte, i int) int {
	for i < len(t) {
		if b := t[i]; b >= 0x80 {
			return c.runEnd(t, i, other)
		} else if c.ascii[b]&other == 0 {
			break
		}
		i++
	}
	return i
}

// numbersEnd returns the end of at most limit numbers from t[i] on.
func (c *classes) numbersEnd(t []byte, i, limit int) int {
	for ; limit > 0 && i < len(t); limit-- {
		class, size := c.at(t, i)
		if class&number == 0 {
			break
		}
		i += size
	}
	return i
}

// spacesEnd returns positions in the white space at t[i]: its end, the start of its last character, and the end of its
// last newline. The last one is 0 without a newline.
func (c *classes) spacesEnd(t []byte, i int) (end, last, lines int) {
	end, last = i, i
	for end < len(t) {
		class, size := c.at(t, end)
		if class&space == 0 {
			break
		}
		last = end
		end += size
		if class&newline != 0 {
			lines = end
		}
	}
	return end, last, lines
}

// contraction returns the length of '(?:[sdmt]|ll|ve|re) at t[i], 0 without one. With fold the letters may have any
// case, and the long s (U+017F) is an s.
func contraction(t []byte, i int, fold bool) int {
	if i+1 >= len(t) || t[i] != '\'' {
		return 0
	}
	first := t[i+1]
	var second byte
	if i+2 < len(t) {
		second = t[i+2]
	}
	if fold {
		if first == 0xc5 && second == 0xbf {
			return 3
		}
		first |= 0x20
		second |= 0x20
	}
	switch first {
	case 's', 'd', 'm', 't':
		return 2
	case 'l':
		if second == 'l' {
			return 3
		}
	case 'v', 'r':
		if second == 'e' {
			return 3
		}
	}
	return 0
}
