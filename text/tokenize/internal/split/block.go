package split

import (
	"encoding/binary"
	"math/bits"
)

// blockWidth is the number of bytes that are classified at once: one bit of a word for each.
const blockWidth = 64

// masks are 64 bytes of text by class, one bit for each byte. The letters, numbers, spaces and upper-case letters are
// those of ASCII. If beyond is zero, the masks after it are undefined.
type masks struct {
	letters, numbers, spaces, uppers uint64
	lines                            uint64 // [\r\n], also in spaces
	blanks                           uint64 // ' ', also in spaces
	quotes                           uint64 // '\''
	slashes                          uint64 // '/'
	beyond                           uint64 // bytes of characters beyond ASCII
	inner                            uint64 // bytes of such characters behind their first one
	threes, fours                    uint64 // first bytes of characters of at least three and four bytes
}

// block is 64 bytes of text from the start of a piece on. Only the first size bytes count. The bits of a character's
// bytes are equal, but those of slashes, lines, blanks and quotes are of ASCII alone. A piece's end depends on nothing
// before its start. So these bits alone give the starts of the pieces in a block.
type block struct {
	masks
	others uint64
	lowers uint64 // for [O200k]: the letters that are not upper-case alone
	size   int
}

// read classifies 64 bytes for a pattern. The block ends before a character that no block has: white space and numbers
// beyond ASCII, and broken characters.
func (k *block) read(t *[blockWidth]byte, c *classes, p Pattern) {
	classify(t, &k.masks)
	k.size = blockWidth
	k.others = ^(k.letters | k.numbers | k.spaces)
	k.lowers = k.letters &^ k.uppers
	if k.beyond == 0 {
		k.inner = 0
		return
	}
	k.others &^= k.beyond
	if end := k.wholeEnd(); end > 0 {
		k.size = end
		k.readBeyond(t, c, p == O200k)
	} else {
		k.size = bits.TrailingZeros64(k.beyond)
	}
	k.cut()
}

// cut removes the bits from size on.
func (k *block) cut() {
	known := uint64(1)<<k.size - 1
	k.letters &= known
	k.numbers &= known
	k.spaces &= known
	k.uppers &= known
	k.lowers &= known
	k.lines &= known
	k.blanks &= known
	k.quotes &= known
	k.slashes &= known
	k.others &= known
	k.inner &= known
}

// wholeEnd returns the end of the whole characters in the block, or 0 if a first byte has a wrong number of bytes
// behind it.
func (k *block) wholeEnd() int {
	firsts := k.beyond &^ k.inner
	if firsts<<1|k.threes<<2|k.fours<<3 != k.inner {
		return 0
	}
	divided := firsts>>63 | k.threes>>62 | k.fours>>61 // by their distance to the end of the block
	if divided == 0 {
		return blockWidth
	}
	return bits.Len64(firsts) - 1
}

// readBeyond classifies the whole characters beyond ASCII. For words with marks, as of [O200k], a mark is a letter.
func (k *block) readBeyond(t *[blockWidth]byte, c *classes, withMarks bool) {
	var of characters
	known := uint64(1)<<k.size - 1
	for firsts := k.beyond &^ k.inner & known; firsts != 0; firsts &= firsts - 1 {
		i := bits.TrailingZeros64(firsts) % blockWidth
		b := t[i]
		second := uint32(t[(i+1)%blockWidth] & 0x3f)
		if b < 0xe0 {
			of[i] = c.two[uint32(b&0x1f)<<6|second]
			continue
		}
		r := uint32(b&0xf)<<12 | second<<6 | uint32(t[(i+2)%blockWidth]&0x3f)
		if b >= 0xf0 {
			r = r%(1<<15)<<6 | uint32(t[(i+3)%blockWidth]&0x3f)
		}
		of[i] = c.blocks[c.index[r>>blockBits%(maxRune>>blockBits)]][r%blockSize]
	}
	others := k.whole(of.with(other))
	k.letters |= k.whole(of.with(letter))
	k.others |= others
	stops := of.with(number) | of.with(space)
	if withMarks {
		uppers, lowers := k.whole(of.with(upper)), k.whole(of.with(lower))
		marks := others & uppers
		k.lowers |= lowers
		k.others &^= marks
		k.letters |= marks
		k.uppers |= uppers &^ lowers
		// A word may end before or behind an upper-case letter that follows a letter of both cases. Marks at the
		// start of a word are other characters, too.
		stops |= firsts(k.letters)&marks | k.uppers&(uppers&lowers<<1)
	}
	if stops != 0 {
		k.size = min(k.size, bits.TrailingZeros64(stops))
	}
}

// characters has the class of each character beyond ASCII, at its first byte.
type characters [blockWidth]byte

// with returns the characters of a class, as bits of their first bytes.
func (c *characters) with(class byte) (found uint64) {
	by := bits.TrailingZeros8(class)
	for i := 0; i < blockWidth; i += 8 {
		x := binary.LittleEndian.Uint64(c[i:i+8]) >> by & ones
		found |= x * 0x0102040810204080 >> 56 << i
	}
	return found
}

// whole returns the bits of all bytes of characters, from those of their first bytes.
func (k *block) whole(firsts uint64) uint64 {
	firsts |= firsts << 1 & k.inner
	firsts |= firsts << 1 & k.inner
	return firsts | firsts<<1&k.inner
}

// next moves the bits of characters' first bytes to the first bytes of the next characters.
func (k *block) next(firsts uint64) uint64 { return (firsts<<1 + k.inner) &^ k.inner }

// firsts returns the first bit of each run of bits.
func firsts(run uint64) uint64 { return run &^ (run << 1) }

// upTo returns the bits up to bit i.
func upTo(i int) uint64 { return 2<<i - 1 }
