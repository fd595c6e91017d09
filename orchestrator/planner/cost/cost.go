package cost

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
func Default() Cost { return Cost{Linear: 61000 * costUnit, Quadratic: costUnit} }

// Refit returns the cost with other coefficients for the backbone, such as a fit of measured times gives: attention in windows is part of what was measured,
// and a patch keeps its price in tokens.
func (c Cost) Refit(linear, quadratic uint64) Cost {
	const most = 1 << 62
	out := Cost{Linear: linear, Quadratic: quadratic, Encoder: c.Encoder}
	if c.Linear > 0 && linear > 0 {
		out.Encoder.Linear = min(MulDiv(c.Encoder.Linear, linear, c.Linear), most)
		out.Encoder.Quadratic = min(MulDiv(c.Encoder.Quadratic, linear, c.Linear), most)
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
