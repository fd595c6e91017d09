package cost

// Cost has the coefficients of a segment's cost. A segment of s tokens costs the backbone Linear·s + Quadratic·s² +
// Windowed·w(s); w(s) counts the pairs of tokens that attention within Window sees. p patches cost the encoder
// Encoder.Linear·p + Encoder.Quadratic·p². Only ratios count, so any unit is valid. Linear/Quadratic is S*, the length
// at which attention costs as much as everything linear. The zero Cost stands for Default.
type Cost struct {
	Linear    uint64
	Quadratic uint64
	Windowed  uint64 // of the layers with sliding windows
	Window    uint32 // in tokens
	Encoder   Encoder
}

// Encoder has the coefficients of the cost of patches.
type Encoder struct {
	Linear    uint64
	Quadratic uint64
}

// costUnit is the Quadratic of Default, the unit of its fixed point.
const costUnit = 16

// Default is the cost of a dense model of 8 billion parameters: S* = 61,000 tokens. An error of −20 … +30 % costs at
// most 1.5 percentage points of balance at 8K tokens.
func Default() Cost { return Cost{Linear: 61000 * costUnit, Quadratic: costUnit} }

// Refit returns the cost with other coefficients for the backbone, as calibration derives them from measured times.
// Attention in windows is part of the measured times. A patch keeps its price in tokens.
func (c Cost) Refit(linear, quadratic uint64) Cost {
	const most = 1 << 62
	out := Cost{Linear: linear, Quadratic: quadratic, Encoder: c.Encoder}
	if c.Linear > 0 && linear > 0 {
		out.Encoder.Linear = min(MulDiv(c.Encoder.Linear, linear, c.Linear), most)
		out.Encoder.Quadratic = min(MulDiv(c.Encoder.Quadratic, linear, c.Linear), most)
	}
	return out
}

// Phases returns the number of phases of a microbatch: 2 if the encoder has a cost, else 1.
func (c Cost) Phases() int {
	if c.Encoder != (Encoder{}) {
		return 2
	}
	return 1
}

// isZero reports whether all coefficients are 0.
func (c Cost) isZero() bool {
	return c.Linear == 0 && c.Quadratic == 0 && c.Windowed == 0 && c.Encoder == (Encoder{})
}
