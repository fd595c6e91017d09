package mixing

import (
	"cmp"
	"math/big"
	"math/bits"
	"slices"
)

// One is the sum of all shares: a share of One is the whole stream.
const One = 1 << shareBits

const (
	shareBits  = 30
	wholeBits  = 62
	wholeParts = 1 << wholeBits
)

// Proportions is the mixture in force, per source in parts of 2^62. Blended proportions may add up to less, by less
// than one part per source. They keep the schedule's exact values. Shares rounds them for the Apportioner, once the
// caller knows the sources that are left.
type Proportions []uint64

// Proportion scales weights to proportions that add up to 2^62 exactly, by largest remainder, ties to the smaller
// index. A positive weight always keeps at least one part. It returns ErrNoWeight if there is no positive weight.
func Proportion(weights []Weight) (Proportions, error) {
	return proportion(scaledTogether(weights, func(w Weight) Weight { return w }))
}

// proportion is Proportion for weights that are integers in one unit.
func proportion(scaled []*big.Int) (Proportions, error) {
	sum, positive := new(big.Int), make([]bool, len(scaled))
	for i, x := range scaled {
		sum.Add(sum, x)
		positive[i] = x.Sign() > 0
	}
	if sum.Sign() == 0 {
		return nil, ErrNoWeight
	}
	parts, rests := make(Proportions, len(scaled)), make([]*big.Int, len(scaled))
	for i, x := range scaled {
		quotient, rest := new(big.Int).QuoRem(new(big.Int).Lsh(x, wholeBits), sum, new(big.Int))
		parts[i], rests[i] = quotient.Uint64(), rest
	}
	largestRemainder(parts, wholeParts, func(i, j int) int { return rests[i].Cmp(rests[j]) })
	keepPositive(parts, func(i int) bool { return positive[i] })
	return parts, nil
}

// Shares rounds proportions to parts of One that add up to One exactly, by largest remainder, ties to the smaller
// index. If active is not nil, sources that are not active get nothing and the others divide One. An active source with
// a positive proportion keeps at least one part (for up to One sources), so rounding never excludes it. If no active
// source has a positive proportion, all shares are 0.
func (p Proportions) Shares(active []bool) []uint32 {
	masked, sum := make([]uint64, len(p)), uint64(0)
	for i, x := range p {
		if active == nil || active[i] {
			masked[i] = x
			sum += x
		}
	}
	return divide(masked, sum)
}

// Normalise turns weights into shares, parts of One that add up to One exactly: Proportion, then Shares with every
// source active. It returns ErrNoWeight if there is no positive weight.
func Normalise(weights []Weight) ([]uint32, error) {
	p, err := Proportion(weights)
	if err != nil {
		return nil, err
	}
	return p.Shares(nil), nil
}

// divide scales parts, which add up to sum, to parts of One. sum must be below 2^63.
func divide(parts []uint64, sum uint64) []uint32 {
	shares := make([]uint32, len(parts))
	if sum == 0 {
		return shares
	}
	wide, rests := make([]uint64, len(parts)), make([]uint64, len(parts))
	for i, x := range parts {
		// x <= sum < 2^63, so the high word x >> 34 is below sum unless both are 0, and the quotient fits.
		wide[i], rests[i] = bits.Div64(x>>(64-shareBits), x<<shareBits, sum)
	}
	largestRemainder(wide, One, func(i, j int) int { return cmp.Compare(rests[i], rests[j]) })
	keepPositive(wide, func(i int) bool { return parts[i] > 0 })
	for i, x := range wide {
		shares[i] = uint32(x)
	}
	return shares
}

// largestRemainder adds 1 to the parts with the largest remainders until they add up to total (Hamilton's method).
func largestRemainder(parts []uint64, total uint64, compareRests func(i, j int) int) {
	order := make([]int, len(parts))
	for i, x := range parts {
		order[i] = i
		total -= x
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(compareRests(j, i), cmp.Compare(i, j)) })
	for _, i := range order[:total] {
		parts[i]++
	}
}

// keepPositive takes one part of the largest, ties to the smaller index, for each part that is 0 and must be positive.
func keepPositive(parts []uint64, positive func(i int) bool) {
	for i, x := range parts {
		if x == 0 && positive(i) {
			largest := slices.Index(parts, slices.Max(parts))
			parts[largest]--
			parts[i]++
		}
	}
}
