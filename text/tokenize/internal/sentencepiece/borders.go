package sentencepiece

import (
	"math/bits"
	"unicode/utf8"
)

// borders has the pairs of neighbouring characters across which no piece reaches. There a text divides into parts that
// merge independently. The set is a hash table of bits. It may hold too many pairs, which only makes parts longer.
type borders struct {
	ascii [utf8.RuneSelf][2]uint64 // exact, for two ASCII characters
	bits  []uint64
	shift uint
}

func newBorders(m *Model) borders {
	var b borders
	pairs := map[uint64]struct{}{}
	for _, p := range m.proto.pieces {
		if !isInText(p) || m.proto.kind == charKind && p.kind != userDefined {
			continue
		}
		left, n := utf8.DecodeRune(p.text)
		for rest := p.text[n:]; len(rest) > 0; rest = rest[n:] {
			var right rune
			right, n = utf8.DecodeRune(rest)
			pairs[uint64(left)<<32|uint64(right)] = struct{}{}
			left = right
		}
	}
	size := bits.Len(uint(16*len(pairs) + 64))
	b.bits, b.shift = make([]uint64, 1<<(size-6)), 64-uint(size)
	for pair := range pairs {
		left, right := rune(pair>>32), rune(uint32(pair))
		at := b.hash(left, right)
		b.bits[at/64] |= 1 << (at % 64)
		if left < utf8.RuneSelf && right < utf8.RuneSelf {
			b.ascii[left][right/64] |= 1 << (right % 64)
		}
	}
	return b
}

func (b *borders) hash(left, right rune) uint64 {
	return (uint64(left)<<32 | uint64(right)) * 0x9e3779b97f4a7c15 >> b.shift
}

// Pieces finds the next parts of a normalised text from pos on that merge independently. It sets ends to their ends and
// returns their number.
func (m *Model) Pieces(text []byte, pos int, ends []int) int {
	if m.bpe.splits {
		ends[0] = len(text)
		return 1
	}
	b := &m.bpe.borders
	n := 0
	left, size := utf8.DecodeRune(text[pos:])
	for pos += size; pos < len(text); pos += size {
		var right rune
		var joined bool
		if c := text[pos]; c < utf8.RuneSelf {
			right, size = rune(c), 1
		} else {
			right, size = utf8.DecodeRune(text[pos:])
		}
		if left < utf8.RuneSelf && right < utf8.RuneSelf {
			joined = b.ascii[left][right/64]>>(right%64)&1 != 0
		} else {
			at := b.hash(left, right)
			joined = b.bits[at/64]>>(at%64)&1 != 0
		}
		left = right
		if joined {
			continue
		}
		ends[n] = pos
		if n++; n == len(ends) {
			return n
		}
	}
	ends[n] = len(text)
	return n + 1
}
