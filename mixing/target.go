package mixing

import "math/bits"

// Target is the exact cumulated target of one source: Whole + Parts/One tokens or samples, 0 <= Parts < One. It is
// computed apart from the Apportioner's deficits, so that it can check them. The zero Target is 0.
type Target struct {
	Whole int64
	Parts uint32
}

// Plus returns the target after a charge of size, of which share parts of One belong to the source. It is exact for
// streams of any length.
func (t Target) Plus(share uint32, size int64) Target {
	high, low := bits.Mul64(uint64(share), uint64(size))
	parts, carry := bits.Add64(low, uint64(t.Parts), 0)
	high += carry
	return Target{Whole: t.Whole + int64(high<<(64-shareBits)|parts>>shareBits), Parts: uint32(parts & (One - 1))}
}
