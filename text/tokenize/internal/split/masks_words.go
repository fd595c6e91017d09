package split

import "encoding/binary"

// atLeast sets the high bit of each byte of x that is c or more. No byte of x has its high bit set.
func atLeast(x uint64, c byte) uint64 { return x + (0x80-uint64(c))*ones }

// highBits gathers the high bits of the eight bytes of x.
func highBits(x uint64) uint64 { return x & highs * 0x0002040810204081 >> 56 }

// classifyWords classifies eight bytes at a time, without instructions for vectors.
func classifyWords(t *[blockWidth]byte, m *masks) {
	*m = masks{}
	for i := 0; i < blockWidth; i += 8 {
		x := binary.LittleEndian.Uint64(t[i : i+8])
		y := x &^ highs
		within := func(from, to byte) uint64 { return highBits(atLeast(y, from)&^atLeast(y, to+1)&^x) << i }
		m.uppers |= within('A', 'Z')
		m.letters |= within('a', 'z')
		m.numbers |= within('0', '9')
		m.lines |= within('\n', '\n') | within('\r', '\r')
		m.blanks |= within(' ', ' ')
		m.spaces |= within('\t', '\r')
		m.quotes |= within('\'', '\'')
		m.slashes |= within('/', '/')
		if high := x & highs; high != 0 {
			// The second highest bit of each byte becomes the highest one.
			m.beyond |= highBits(high) << i
			m.inner |= highBits(high&^(x<<1)) << i
			m.threes |= highBits(high&(x<<1)&(x<<2)) << i
			m.fours |= highBits(high&(x<<1)&(x<<2)&(x<<3)) << i
		}
	}
	m.letters |= m.uppers
	m.spaces |= m.blanks
}
