package mixing

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
)

// Rule derives weights from the sizes of sources.
type Rule uint8

// The rules. The zero value is Uniform.
const (
	// Uniform gives every source the same weight.
	Uniform Rule = iota
	// BySize is proportional to size: every token of the data is drawn equally often.
	BySize
	// ByTemperature is proportional to size^(1/temperature), between BySize (1) and Uniform (infinite): Arivazhagan et
	// al., "Massively Multilingual Neural Machine Translation in the Wild" (arXiv 1907.05019). XLM-R (arXiv 1911.02116)
	// and mT5 (arXiv 2010.11934) write its inverse, alpha.
	ByTemperature
	// UniMax divides a budget evenly, up to a maximum number of epochs of each source: Chung et al., "UniMax: Fairer
	// and more Effective Language Sampling for Large-Scale Multilingual Pretraining" (arXiv 2304.09151), algorithm 1.
	UniMax
)

// Derivation is a rule with its parameters.
type Derivation struct {
	Rule        Rule
	Temperature *big.Rat // of ByTemperature: at least 1
	MaxEpochs   uint32   // of UniMax
	Budget      uint64   // of UniMax, in the unit of the sizes
}

// Sizes returns the weight of each source, as integers in one unit. Equal sizes have equal weights. A source of size 0
// has weight 0, except under Uniform, which ignores sizes.
func (d Derivation) Sizes(sizes []uint64) ([]*big.Int, error) {
	out := make([]*big.Int, len(sizes))
	switch d.Rule {
	case Uniform:
		for i := range out {
			out[i] = big.NewInt(1)
		}
	case BySize:
		for i, n := range sizes {
			out[i] = new(big.Int).SetUint64(n)
		}
	case ByTemperature:
		if d.Temperature == nil || d.Temperature.Cmp(big.NewRat(1, 1)) < 0 {
			return nil, fmt.Errorf("derive weights: the temperature is below 1")
		}
		for i, n := range sizes {
			out[i] = rootParts(n, d.Temperature)
		}
	case UniMax:
		if d.MaxEpochs == 0 || d.Budget == 0 {
			return nil, fmt.Errorf("derive weights: unimax needs a budget and max_epochs above 0")
		}
		return d.unimax(sizes), nil
	default:
		return nil, fmt.Errorf("derive weights: unknown rule %d", d.Rule)
	}
	return out, nil
}

// unimax goes through the sources from the smallest on. Each gets an even part of the rest of the budget, or all its
// epochs if they hold less. From the first source that can take an even part on, all can. So there is only one
// fraction, and everything is scaled by its denominator.
func (d Derivation) unimax(sizes []uint64) []*big.Int {
	order := make([]int, len(sizes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(cmp.Compare(sizes[i], sizes[j]), cmp.Compare(i, j)) })
	most := make([]*big.Int, len(sizes))
	for i, n := range sizes {
		most[i] = new(big.Int).Mul(new(big.Int).SetUint64(n), big.NewInt(int64(d.MaxEpochs)))
	}
	left := new(big.Int).SetUint64(d.Budget)
	out := make([]*big.Int, len(sizes))
	for at, i := range order {
		sharing := big.NewInt(int64(len(order) - at))
		if new(big.Int).Mul(most[i], sharing).Cmp(left) >= 0 {
			for _, j := range order[:at] {
				out[j] = new(big.Int).Mul(most[j], sharing)
			}
			for _, j := range order[at:] {
				out[j] = left
			}
			return out
		}
		out[i] = most[i]
		left.Sub(left, most[i])
	}
	return out
}

// rootBits is the number of bits after the point in which roots are computed. Weights are rounded to 62 bits
// afterwards.
const rootBits = 96

// rootParts returns n^(1/temperature) in parts of 2^96, 0 for 0, to a relative 2^-80: 2 to the (log2 n / temperature).
// It uses integers only, and rounds each operation down, so the result is the same on every host.
func rootParts(n uint64, temperature *big.Rat) *big.Int {
	if n == 0 {
		return new(big.Int)
	}
	exponent := log2Parts(n)
	exponent.Mul(exponent, temperature.Denom())
	exponent.Quo(exponent, temperature.Num())
	return exp2Parts(exponent)
}

// log2Parts returns log2 n in parts of 2^96, bit by bit: the square of a number in [1, 2) reaches 2 if the next bit is
// set.
func log2Parts(n uint64) *big.Int {
	x := new(big.Int).SetUint64(n)
	whole := x.BitLen() - 1
	x.Lsh(x, 2*rootBits).Rsh(x, uint(whole)) // in parts of 2^192, so that squaring keeps enough bits
	out := big.NewInt(int64(whole))
	for range rootBits {
		x.Mul(x, x).Rsh(x, 2*rootBits)
		out.Lsh(out, 1)
		if x.BitLen() > 2*rootBits+1 {
			x.Rsh(x, 1)
			out.SetBit(out, 0, 1)
		}
	}
	return out
}

// exp2Parts returns 2^(x / 2^96) in parts of 2^96: the product of 2^(1/2), 2^(1/4), … for the bits of x after the
// point, each the square root of the one before.
func exp2Parts(x *big.Int) *big.Int {
	product := new(big.Int).Lsh(big.NewInt(1), 2*rootBits)
	root := new(big.Int).Lsh(big.NewInt(1), 2*rootBits+1) // 2 in parts of 2^192
	for bit := rootBits - 1; bit >= 0; bit-- {
		root.Sqrt(root.Lsh(root, 2*rootBits))
		if x.Bit(bit) == 1 {
			product.Mul(product, root).Rsh(product, 2*rootBits)
		}
	}
	whole := new(big.Int).Rsh(x, rootBits)
	return product.Lsh(product, uint(whole.Uint64())).Rsh(product, rootBits)
}
