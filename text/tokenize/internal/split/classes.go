package split

import (
	_ "embed"
	"encoding/binary"
	"unicode"
)

// classes.bin has the character classes of the regex engine of pip's tiktoken 0.14.0, which is Rust's regex-syntax
// 0.8.11. They come from that engine, because Go's unicode tables are of another Unicode version.
//
//go:embed classes.bin
var classRuns string

// Class bits of a character. A character has exactly one of letter, number, space and other.
const (
	letter  byte = 1 << iota // \p{L}
	number                   // \p{N}
	space                    // \s, which is White_Space
	upper                    // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	lower                    // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
	other                    // [^\s\p{L}\p{N}], so marks too
	newline                  // [\r\n]
)

const (
	blockBits = 7
	blockSize = 1 << blockBits
	// maxRune is the largest number that four bytes can decode to, valid or not. So no lookup needs a check.
	maxRune = 1 << 21
)

// classes is a two-stage table. The high bits of a character name a block. Equal blocks are shared.
type classes struct {
	numeric *unicode.RangeTable // of R50kDigits, else nil
	ascii   [256]byte           // by byte; 0 for a byte of a longer character
	two     [1 << 11]byte       // by the bits of two bytes
	index   [maxRune >> blockBits]uint16
	blocks  [][blockSize]byte
}

func newClasses(runs []byte) *classes {
	flat := make([]byte, maxRune)
	at := 0
	for len(runs) > 0 {
		length, n := binary.Uvarint(runs)
		class := runs[n]
		if class&(letter|number|space) == 0 {
			class |= other
		}
		for range length {
			flat[at] = class
			at++
		}
		runs = runs[n+1:]
	}
	for ; at < len(flat); at++ {
		flat[at] = other
	}
	flat['\r'] |= newline
	flat['\n'] |= newline

	c := &classes{}
	copy(c.ascii[:0x80], flat)
	copy(c.two[:], flat)
	known := make(map[[blockSize]byte]uint16)
	for i := range c.index {
		block := [blockSize]byte(flat[i*blockSize:])
		number, ok := known[block]
		if !ok {
			number = uint16(len(c.blocks))
			known[block] = number
			c.blocks = append(c.blocks, block)
		}
		c.index[i] = number
	}
	return c
}

// at returns the class and the length of the character at t[i]. Invalid UTF-8 gets some class, and a length that stays
// within t.
func (c *classes) at(t []byte, i int) (class byte, size int) {
	b := t[i]
	if b < 0x80 {
		return c.ascii[b], 1
	}
	rest := t[i:]
	var r uint32
	switch {
	case b < 0xe0 && len(rest) >= 2:
		r, size = uint32(b&0x1f)<<6|uint32(rest[1]&0x3f), 2
	case b < 0xf0 && len(rest) >= 3:
		r, size = uint32(b&0xf)<<12|uint32(rest[1]&0x3f)<<6|uint32(rest[2]&0x3f), 3
	case len(rest) >= 4:
		r, size = uint32(b&7)<<18|uint32(rest[1]&0x3f)<<12|uint32(rest[2]&0x3f)<<6|uint32(rest[3]&0x3f), 4
	default:
		return other, 1
	}
	return c.blocks[c.index[r>>blockBits%(maxRune>>blockBits)]][r%blockSize], size
}

// runEnd returns the end of the run of characters from t[i] on that have any of the bits of mask.
func (c *classes) runEnd(t []byte, i int, mask byte) int {
	for i < len(t) {
		class, size := c.at(t, i)
		if class&mask == 0 {
			break
		}
		i += size
	}
	return i
}
