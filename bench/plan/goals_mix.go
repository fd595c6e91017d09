package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"millrace/bench/plan/baseline"
	"millrace/bench/plan/workload"
	"millrace/mixing"
)

// rule draws sources: Next returns the next one, Place counts it.
type rule interface {
	Next(sizes []int64) int
	Place(source int, size int64)
}

// deviations plays n draws of a rule. It returns the largest distance of any source from its target, over every prefix.
// weights add up to 1.
func deviations(c rule, weights []float64, size func(source int) int64, n int) float64 {
	placed, sizes := make([]float64, len(weights)), make([]int64, len(weights))
	for i := range sizes {
		sizes[i] = size(i)
	}
	worst, total := 0.0, 0.0
	for range n {
		i := c.Next(sizes)
		charge := sizes[i]
		c.Place(i, charge)
		placed[i] += float64(charge)
		total += float64(charge)
		sizes[i] = size(i)
		for j, w := range weights {
			worst = max(worst, math.Abs(placed[j]-w*total))
		}
	}
	return worst
}

func one(int) int64 { return 1 }

// product is the product's rule as a rule: it hands the charges of the next segments to the apportioner one by one.
type product struct{ *mixing.Apportioner }

// Next implements rule.
func (p product) Next(sizes []int64) int {
	for i, size := range sizes {
		p.SetSize(i, size)
	}
	return p.Apportioner.Next()
}

// newProduct returns the product's rule for some weights, and the exact shares that it uses.
func newProduct(weights []float64) (product, []float64, error) {
	shares, exact, err := sharesOf(weights)
	if err != nil {
		return product{}, nil, err
	}
	a := mixing.NewApportioner(len(weights))
	a.SetShares(shares)
	return product{a}, exact, nil
}

// sharesOf returns weights in the product's fixed point, and as parts of 1.
func sharesOf(weights []float64) (shares []uint32, exact []float64, err error) {
	parsed := make([]mixing.Weight, len(weights))
	for i, w := range weights {
		if parsed[i], err = mixing.ParseWeight(fmt.Sprintf("%.12g", w)); err != nil {
			return nil, nil, err
		}
	}
	if shares, err = mixing.Normalise(parsed); err != nil {
		return nil, nil, err
	}
	for _, s := range shares {
		exact = append(exact, float64(s)/mixing.One)
	}
	return shares, exact, nil
}

// adversarial returns weights for which simple rules deviate most.
func adversarial() map[string][]float64 {
	all := map[string][]float64{}
	for _, k := range []int{2, 3, 12, 24} {
		geometric, fibonacci := []float64{1}, []float64{1, 1}
		for len(geometric) < k {
			geometric = append(geometric, geometric[len(geometric)-1]/2)
		}
		for len(fibonacci) < k {
			fibonacci = append(fibonacci, fibonacci[len(fibonacci)-1]+fibonacci[len(fibonacci)-2])
		}
		all[fmt.Sprintf("geometric, %d", k)], all[fmt.Sprintf("Fibonacci, %d", k)] = geometric, fibonacci
	}
	for _, k := range []int{8, 64, 1000} {
		for _, heavy := range []float64{.5, .9, .999} {
			weights := []float64{heavy}
			for len(weights) < k {
				weights = append(weights, (1-heavy)/float64(k-1))
			}
			all[fmt.Sprintf("%g and %d equal", heavy, k-1)] = weights
		}
	}
	return all
}

// randomWeights returns weights of 2 to 41 sources, similar ones or some that differ by orders of magnitude.
func randomWeights(rng *rand.Rand) []float64 {
	weights, power := make([]float64, 2+rng.IntN(40)), rng.Float64()*6
	for i := range weights {
		weights[i] = math.Pow(rng.Float64(), power) + 1e-6
	}
	return weights
}

// realistic returns twelve weights of a pretraining mixture.
func realistic() []float64 {
	return []float64{.41, .17, .113, .083, .067, .049, .037, .029, .019, .0123, .0071, .0036}
}

// goal8 measures the distance of mixtures from their targets, over every prefix.
func goal8(b *bench) ([]row, error) {
	constant, name, err := b.constantWeights()
	if err != nil {
		return nil, err
	}
	beside, err := b.otherRules()
	if err != nil {
		return nil, err
	}
	rows := []row{
		{
			"G8", "samples, constant weights, random (2–41 sources) and adversarial (to 1,000): < 1 at every prefix",
			fmt.Sprintf("%.4f (%s)", constant, name), holds(constant < 1), beside,
		},
	}
	for _, kind := range scenes() {
		samples, tokens, longest := 0.0, 0.0, 0.0
		for s := range uint64(b.draws / 20_000) {
			samples = max(samples, kind.play(rand.New(rand.NewPCG(s, 8)), one, 3000))
			rng := rand.New(rand.NewPCG(s, 9))
			most := int64(0)
			worst := kind.play(rand.New(rand.NewPCG(s, 8)), func(int) int64 {
				size := int64(min(b.lengths["pretrain"].Draw(rng), 8192))
				most = max(most, size)
				return size
			}, 3000)
			tokens = max(tokens, worst/float64(most))
			longest = max(longest, float64(most))
		}
		rows = append(
			rows,
			row{
				"G8",
				"samples, " + kind.name + ": < 1 at every prefix",
				fmt.Sprintf("%.4f", samples),
				holds(samples < 1),
				fmt.Sprintf(
					"constant weights keep 1 − 1/(2m−2) for m sources. Under changes, only a rule that knows the "+
						"future stays below 1 (docs/mixing.md). The rule stays below 2 here: %v",
					samples < 2,
				),
			},
			row{
				"G8", "tokens, " + kind.name + ": ≤ 2 × the longest segment at every prefix",
				fmt.Sprintf("%.3f ×", tokens), atMost(tokens, 2), fmt.Sprintf("longest %.0f tokens", longest),
			},
		)
	}
	return rows, nil
}

// constantWeights returns the product's worst deviation in samples.
func (b *bench) constantWeights() (worst float64, name string, err error) {
	try := func(weights []float64, what string, n int) error {
		p, exact, err := newProduct(weights)
		if err == nil {
			if d := deviations(p, exact, one, n); d > worst {
				worst, name = d, what
			}
		}
		return err
	}
	rng := rand.New(rand.NewPCG(workload.Seed, 4))
	for range b.draws / 5000 {
		if err := try(randomWeights(rng), "random", 3000); err != nil {
			return 0, "", err
		}
	}
	for what, weights := range adversarial() {
		if err := try(weights, what, b.draws/len(weights)); err != nil {
			return 0, "", err
		}
	}
	return worst, name, try(realistic(), "realistic", b.draws)
}

// scene is a run whose mixture changes.
type scene struct {
	name  string
	every int  // draws between milestones; 0: no milestones
	leave bool // whether sources leave
}

func scenes() []scene {
	return []scene{
		{"a milestone every 500 draws", 500, false}, {"a milestone every 20 draws", 20, false},
		{"sources that leave", 0, true}, {"milestones and leaves", 200, true},
	}
}

// play returns the worst deviation from the cumulated targets, in units of size.
func (s scene) play(rng *rand.Rand, size func(int) int64, n int) float64 {
	k := 2 + rng.IntN(30)
	shares := func() []uint32 {
		weights := randomWeights(rng)
		for len(weights) < k {
			weights = append(weights, rng.Float64())
		}
		out, _, _ := sharesOf(weights[:k])
		return out
	}
	a := product{mixing.NewApportioner(k)}
	a.SetShares(shares())
	placed, targets, sizes := make([]float64, k), make([]float64, k), make([]int64, k)
	for i := range sizes {
		sizes[i] = size(i)
	}
	worst, left := 0.0, 0
	for at := range n {
		if s.every > 0 && at%s.every == s.every-1 {
			a.SetShares(shares())
		}
		if s.leave && left < k-2 && rng.IntN(n/k) == 0 {
			if i := rng.IntN(k); !a.State()[i].Left {
				a.Leave(i)
				sizes[i], left = -1, left+1
			}
		}
		state := a.State()
		i := a.Next(sizes)
		charge := sizes[i]
		a.Place(i, charge)
		placed[i] += float64(charge)
		sizes[i] = size(i)
		for j := range targets {
			targets[j] += float64(charge) * float64(state[j].Share) / mixing.One
			worst = max(worst, math.Abs(placed[j]-targets[j]))
		}
	}
	return worst
}

// otherRules measures the baselines on the realistic weights, and the greedy rules on the random weights too.
func (b *bench) otherRules() (string, error) {
	_, exact, err := sharesOf(realistic())
	if err != nil {
		return "", err
	}
	rng := rand.New(rand.NewPCG(workload.Seed, 5))
	random := func(make func(weights []float64) rule) (worst float64) {
		rng := rand.New(rand.NewPCG(workload.Seed, 4))
		for range b.draws / 5000 {
			if _, exact, err := sharesOf(randomWeights(rng)); err == nil {
				worst = max(worst, deviations(make(exact), exact, one, 3000))
			}
		}
		return worst
	}
	return fmt.Sprintf(
		"worst over the random ones: Megatron's rule %.2f, SWRR %.2f; "+
			"12 realistic weights to %.0e draws: iid %.0f, scaled integers %.1f",
		random(func(w []float64) rule { return baseline.NewGreedy(w, 0) }),
		random(func(w []float64) rule { return baseline.NewGreedy(w, 1) }), float64(b.draws),
		deviations(&baseline.IID{Weights: exact, Rand: rng}, exact, one, b.draws),
		deviations(baseline.NewScaled(realistic()), exact, one, b.draws),
	), nil
}
