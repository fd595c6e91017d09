package mixing

import "math/bits"

// Target is an exact cumulated target of one source: Whole + Parts/One tokens or samples, 0 <= Parts < One.
// It is kept apart from the Apportioner's deficits, so that a check does not believe what it checks. The zero Target is 0.
type Target struct {
	Whole int64
	Parts uint32
}

// Add returns the target after a charge of size, of which share parts of One are the source's. It is exact for any size of a stream.
func (t Target) Add(share uint32, size int64) Target {
	high, low := bits.Mul64(uint64(share), uint64(size))
	parts, carry := bits.Add64(low, uint64(t.Parts), 0)
	high += carry
	return Target{Whole: t.Whole + int64(high<<(64-shareBits)|parts>>shareBits), Parts: uint32(parts & (One - 1))}
}

// Minus returns the target minus what was placed, in parts of One: a deficit. It must be below 2^33 tokens in size.
func (t Target) Minus(placed int64) int64 {
	return (t.Whole-placed)<<shareBits + int64(t.Parts)
}

// Deviation returns the largest |placed - target| over all sources, in parts of One, and the source that has it, ties to the smaller index; of no sources, 0 and -1.
func Deviation(placed []int64, targets []Target) (deviation int64, source int) {
	source = -1
	for i, t := range targets {
		gap := t.Minus(placed[i])
		if gap < 0 {
			gap = -gap
		}
		if source < 0 || gap > deviation {
			deviation, source = gap, i
		}
	}
	return deviation, source
}
