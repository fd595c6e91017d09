package cost

import (
	"cmp"
	"math/bits"

	"millrace"
)

// costSumBits bounds every sum of the costs of a step, with room to multiply by small numbers.
const costSumBits = 60

// Extent is the size of a step. It bounds the sums of its costs, because Σ s² ≤ longest·Σ s.
type Extent struct {
	longest, mostPatches uint32
	tokens, patches      uint64
}

// Add includes a segment.
func (e *Extent) Add(s *millrace.Segment) {
	e.longest, e.mostPatches = max(e.longest, s.Length), max(e.mostPatches, s.Patches)
	e.tokens += uint64(s.Length)
	e.patches += uint64(s.Patches)
}

// Weigher gives the costs of the segments of one step in fixed point. All costs are divided by a power of two, so that
// no sum over the step exceeds 2^60.
type Weigher struct {
	cost  Cost
	shift uint
}

// Weigher returns the Weigher of a step of that extent.
func (c Cost) Weigher(e Extent) Weigher {
	if c.isZero() {
		c = Default()
	}
	of := func(coefficient uint64, sum uint64, factor uint32) int {
		if coefficient == 0 || sum == 0 {
			return 0
		}
		return bits.Len64(coefficient) + bits.Len64(sum) + bits.Len32(factor)
	}
	terms := []int{of(c.Linear, e.tokens, 0), of(c.Quadratic, e.tokens, e.longest), of(c.Windowed, e.tokens, e.longest),
		of(c.Encoder.Linear, e.patches, 0), of(c.Encoder.Quadratic, e.patches, e.mostPatches)}
	dearest, count := 0, 0
	for _, bits := range terms {
		dearest = max(dearest, bits)
		count += min(bits, 1)
	}
	return Weigher{cost: c, shift: uint(max(0, dearest+bits.Len(uint(count)-1)-costSumBits))}
}

// Of returns the cost of a segment in the encoder and in the backbone. A length above 0 costs at least 1 if its phase
// has a cost at all.
func (w *Weigher) Of(s *millrace.Segment) (encoder, backbone uint64) {
	t, c := uint64(s.Length), &w.cost
	if w.shift == 0 && c.Window == 0 {
		backbone = (c.Linear + c.Quadratic*t) * t
	} else {
		backbone = w.sum(t, c.Linear, t*t, c.Quadratic, seen(t, uint64(c.Window)), c.Windowed)
	}
	if s.Patches > 0 && c.Phases() > 1 {
		p := uint64(s.Patches)
		encoder = w.sum(p, c.Encoder.Linear, p*p, c.Encoder.Quadratic, 0, 0)
	}
	return encoder, backbone
}

// sum returns Σ a·b shifted, at least 1 if it is not 0.
func (w *Weigher) sum(a1, b1, a2, b2, a3, b3 uint64) uint64 {
	var hi, lo uint64
	for _, f := range [3][2]uint64{{a1, b1}, {a2, b2}, {a3, b3}} {
		h, l := bits.Mul64(f[0], f[1])
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry
	}
	if hi == 0 && lo == 0 {
		return 0
	}
	if w.shift >= 64 {
		return cmp.Or(hi>>(w.shift-64), 1)
	}
	return cmp.Or(hi<<(64-w.shift)|lo>>w.shift, 1)
}

// seen returns the pairs of tokens that attention in a window sees, as a multiple of its coefficient: s² if the window
// is no shorter than s, else 2·s·w − w².
func seen(s, window uint64) uint64 {
	if s <= window {
		return s * s
	}
	return 2*s*window - window*window
}

// MulDiv returns a·b/c, or the largest number if the quotient does not fit 64 bits.
func MulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return ^uint64(0)
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}
