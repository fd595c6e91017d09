package mixing

import "math/big"

// Node is a part of a hierarchical mixture: a source with its weight, or a group whose weight is divided among its own
// parts. Weights are relative to those of the nodes beside it.
type Node struct {
	Weight Weight
	Source int    // of a node without parts: its index
	Parts  []Node // of a group
	// Derived replaces the weights of Parts, which are then sources: one number for each, as Derivation.Sizes gives
	// them.
	Derived []*big.Int
}

// Flatten returns the weight of every source: the product of the fractions that lead to it, in exact rationals, divided
// into 2^62 parts at the end. A source that no node names gets nothing; one that several nodes name gets their sum. It
// returns ErrNoWeight if a group with weight has no part with weight.
func Flatten(sources int, whole Node) ([]Weight, error) {
	fractions := make([]*big.Rat, sources)
	for i := range fractions {
		fractions[i] = new(big.Rat)
	}
	if err := flatten(fractions, &whole, big.NewRat(1, 1)); err != nil {
		return nil, err
	}
	denominator := big.NewInt(1)
	for _, f := range fractions { // the least common multiple
		gcd := new(big.Int).GCD(nil, nil, denominator, f.Denom())
		denominator.Mul(denominator, new(big.Int).Quo(f.Denom(), gcd))
	}
	weights := make([]*big.Int, sources)
	for i, f := range fractions {
		weights[i] = new(big.Int).Mul(f.Num(), new(big.Int).Quo(denominator, f.Denom()))
	}
	parts, err := proportion(weights)
	if err != nil {
		return nil, err
	}
	out := make([]Weight, sources)
	for i, x := range parts { // at most 2^62, which a Weight holds exactly: Proportion gives the same parts again
		out[i] = wholeWeight(x)
	}
	return out, nil
}

// flatten adds the fractions of one group's sources; of is the fraction of the group itself.
func flatten(fractions []*big.Rat, group *Node, of *big.Rat) error {
	weights := group.Derived
	if weights == nil {
		weights = scaledTogether(group.Parts, func(n Node) Weight { return n.Weight })
	}
	sum := new(big.Int)
	for _, w := range weights {
		sum.Add(sum, w)
	}
	if sum.Sign() == 0 {
		return ErrNoWeight
	}
	for i := range group.Parts {
		if weights[i].Sign() == 0 {
			continue // the parts of a group without weight get nothing
		}
		n, mine := &group.Parts[i], new(big.Rat).SetFrac(weights[i], sum)
		mine.Mul(mine, of)
		if len(n.Parts) > 0 {
			if err := flatten(fractions, n, mine); err != nil {
				return err
			}
			continue
		}
		fractions[n.Source].Add(fractions[n.Source], mine)
	}
	return nil
}
