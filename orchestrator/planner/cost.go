package planner

import (
	"cmp"
	"math/bits"

	"millrace"
)

// Cost weighs what a segment holds, as a vector: its tokens cost the backbone, its patches the encoder, and its columns memory, which the
// token cap bounds. A segment of s tokens costs the backbone Linear·s + Quadratic·s² + Windowed·w(s), where w(s) counts what attention
// within Window tokens sees, and one of p patches costs the encoder Encoder.Linear·p + Encoder.Quadratic·p². Only ratios count, so any one
// unit will do; Linear/Quadratic is S*, the length at which attention costs as much as everything linear. The zero Cost stands
// for DefaultCost.
type Cost struct {
	Linear    uint64
	Quadratic uint64
	Windowed  uint64 // of the layers with sliding windows
	Window    uint32 // in tokens
	Encoder   Encoder
}

// Encoder weighs patches.
type Encoder struct {
	Linear    uint64
	Quadratic uint64
}

// costUnit is the Quadratic of DefaultCost: the fixed point has as many parts.
const costUnit = 16

// DefaultCost is that of a dense model of 8 billion parameters: S* = 61,000 tokens. Being wrong by −20 … +30 % costs at most 1.5
// percentage points of balance at 8K tokens.
func DefaultCost() Cost { return Cost{Linear: 61000 * costUnit, Quadratic: costUnit} }

// Refit returns the cost with other coefficients for the backbone, such as a fit of measured times gives: attention in windows is part of what was measured,
// and a patch keeps its price in tokens.
func (c Cost) Refit(linear, quadratic uint64) Cost {
	const most = 1 << 62
	out := Cost{Linear: linear, Quadratic: quadratic, Encoder: c.Encoder}
	if c.Linear > 0 && linear > 0 {
		out.Encoder.Linear = min(mulDiv(c.Encoder.Linear, linear, c.Linear), most)
		out.Encoder.Quadratic = min(mulDiv(c.Encoder.Quadratic, linear, c.Linear), most)
	}
	return out
}

// Phases tells how many phases of a microbatch are weighed: 2 where the encoder has a cost.
func (c Cost) Phases() int {
	if c.Encoder != (Encoder{}) {
		return 2
	}
	return 1
}

// isZero tells whether nothing has a cost.
func (c Cost) isZero() bool {
	return c.Linear == 0 && c.Quadratic == 0 && c.Windowed == 0 && c.Encoder == (Encoder{})
}

// costSumBits bounds what any sum of a step's costs can reach, with room to multiply by small numbers.
const costSumBits = 60

// extent is what a step holds, for the fit of a cost: Σ s² ≤ longest·Σ s.
type extent struct {
	longest, mostPatches uint32
	tokens, patches      uint64
}

func (e *extent) add(s *millrace.Segment) {
	e.longest, e.mostPatches = max(e.longest, s.Length), max(e.mostPatches, s.Patches)
	e.tokens += uint64(s.Length)
	e.patches += uint64(s.Patches)
}

// weigher is a cost that was fitted to a step: all costs are divided by such a power of two that no sum over the step exceeds 2^60.
type weigher struct {
	cost  Cost
	shift uint
}

// fit returns the weigher of a step. It keeps at least 2^60 divided by the step's own extent of precision.
func (c Cost) fit(e extent) weigher {
	if c.isZero() {
		c = DefaultCost()
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
	return weigher{cost: c, shift: uint(max(0, dearest+bits.Len(uint(count)-1)-costSumBits))}
}

// of returns what a segment costs the encoder and the backbone. What has a length costs something where its phase has a cost at all.
func (w *weigher) of(s *millrace.Segment) (encoder, backbone uint64) {
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

// sum returns Σ a·b shifted, at least 1 where it is not 0.
func (w *weigher) sum(a1, b1, a2, b2, a3, b3 uint64) uint64 {
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

// seen is s² in a window that is no shorter than s, else 2·s·w − w², as PLANNING §2 has it.
func seen(s, window uint64) uint64 {
	if s <= window {
		return s * s
	}
	return 2*s*window - window*window
}

// mulDiv returns a·b/c for a quotient that fits 64 bits, and the largest number where it does not.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return ^uint64(0)
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}
