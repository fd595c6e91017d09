package planner

import (
	"math/big"
	"math/bits"
)

// Cost weighs a document: a segment of s tokens costs Linear*s + Quadratic*s*s. Only the ratio of the two counts, so any unit will
// do; Linear/Quadratic is S*, the length at which attention costs as much as everything linear. The zero Cost stands for
// DefaultCost.
type Cost struct {
	Linear    uint64
	Quadratic uint64
}

// costUnit is the Quadratic of CostFromModel: the fixed point has as many parts.
const costUnit = 16

// DefaultCost is that of a dense model of 8 billion parameters: S* = 61,000 tokens. Being wrong by −20 … +30 % costs at most 1.5
// percentage points of balance at 8K tokens.
func DefaultCost() Cost { return Cost{Linear: 61000 * costUnit, Quadratic: costUnit} }

// CostFromModel derives the cost of causal attention from a model's dimensions: S* = N / (layers·heads·headDim), where N counts
// the parameters, embeddings on both ends included, of a dense transformer with gated feed-forward layers (6·N·s and
// 6·layers·heads·headDim·s² operations, forward and backward). Dimensions without layers, heads or headDim give DefaultCost.
func CostFromModel(layers, hidden, heads, kvHeads, headDim, ffn, vocab uint64) Cost {
	if layers == 0 || heads == 0 || headDim == 0 {
		return DefaultCost()
	}
	attention := product(hidden, headDim, 2) // query and output, a head
	attention.Mul(attention, product(heads))
	keys := product(hidden, headDim, kvHeads, 2)
	forward := product(hidden, ffn, 3)
	n := new(big.Int).Add(attention, keys)
	n.Add(n, forward)
	n.Mul(n, product(layers))
	n.Add(n, product(hidden, vocab, 2))
	n.Mul(n, product(costUnit))
	n.Quo(n, product(layers, heads, headDim))
	const most = 1 << 62
	if !n.IsUint64() || n.Uint64() > most {
		return Cost{Linear: most, Quadratic: costUnit}
	}
	return Cost{Linear: n.Uint64(), Quadratic: costUnit}
}

func product(factors ...uint64) *big.Int {
	p := big.NewInt(1)
	for _, f := range factors {
		p.Mul(p, new(big.Int).SetUint64(f))
	}
	return p
}

// costSumBits bounds what any sum of a step's costs can reach, with room to multiply by small numbers.
const costSumBits = 60

// fit scales the cost down by a power of two so that no sum over a step of that many tokens, in segments of at most longest,
// exceeds 2^60. It keeps at least 2^60 divided by the step's own extent of precision.
func (c Cost) fit(longest uint32, tokens uint64) Cost {
	if c.Linear == 0 && c.Quadratic == 0 {
		c = DefaultCost()
	}
	step := bits.Len64(tokens)
	// Σ s² ≤ longest·Σ s; the two sums together take one bit more than the larger.
	over := max(bits.Len64(c.Linear)+step, bits.Len64(c.Quadratic)+step+bits.Len32(longest)) + 1 - costSumBits
	if over > 0 {
		c.Linear >>= over
		c.Quadratic >>= over
	}
	if c.Linear == 0 && c.Quadratic == 0 {
		c.Linear = 1
	}
	return c
}

// of returns the cost of a segment; c must have been fitted.
func (c Cost) of(tokens uint32) uint64 {
	s := uint64(tokens)
	return (c.Linear + c.Quadratic*s) * s
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
