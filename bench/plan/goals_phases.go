package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
)

// pictured is an endless source of documents of which six in ten have images, as PLANNING §2 weighs them: one to four images beside their
// text, four patches a token.
type pictured struct{ lengths []millrace.Lengths }

func newPictured(documents int) pictured {
	rng := rand.New(rand.NewPCG(seed, 11))
	draw := func(median, sigma, least, most float64) uint32 {
		return uint32(min(max(median*math.Exp(sigma*rng.NormFloat64()), least), most))
	}
	p := pictured{make([]millrace.Lengths, documents)}
	for i := range p.lengths {
		l := &p.lengths[i]
		l.Tokens = draw(500, 1.1, 1, 4000)
		if rng.IntN(10) < 6 {
			for range 1 + rng.IntN(4) {
				l.Patches += draw(1024, .5, 64, 4096)
			}
			l.Tokens += l.Patches / 4
		}
	}
	return p
}

// Peek implements planner.Offers.
func (p pictured) Peek(_ int, o millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	return millrace.SampleMeta{Ordinal: o, Lengths: p.lengths[int(o)%len(p.lengths)]}, planner.Ready
}

// picturedModel is a ViT of 0.6 billion parameters before a model of 8 billion.
func picturedModel() cost.Cost {
	return cost.Model{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 14336, Vocab: 128256,
		Encoder: &cost.EncoderModel{Layers: 32, Hidden: 1280, Heads: 16, FFN: 5120}}.Cost()
}

// goal11 is encoder and backbone in one assignment, with a barrier between them.
func goal11(b *bench) ([]row, error) {
	var rows []row
	for _, ranks := range []int{64, 512, 4096} {
		ranks = b.scaled(ranks)
		r, err := b.phases(ranks)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (b *bench) phases(ranks int) (row, error) {
	const rowsOfRank = 5 // of 8K tokens: some 32 documents
	spec, err := newSpec(8192, rowsOfRank*ranks, "1")
	if err != nil {
		return row{}, err
	}
	selector, err := planner.NewSelector(spec, planner.NewState(1))
	if err != nil {
		return row{}, err
	}
	sels, err := advance(selector, newPictured(1<<18), 1)
	if err != nil {
		return row{}, err
	}
	prices := picturedModel()
	opt := place.Options{MicroBatch: rowsOfRank, Layout: millrace.Varlen, Balance: millrace.BalanceFSDP, CapPermille: 1150, Cost: prices}
	begin := processorTime()
	plan, err := place.Plan(&sels[0], dataParallel(ranks), opt)
	if err != nil {
		return row{}, err
	}
	took := processorTime() - begin
	loads := make([][2]float64, ranks)
	for i := range plan.Assignments {
		a := &plan.Assignments[i]
		c := twoPhases(prices, &a.Segment)
		loads[a.Rank][0] += c[0]
		loads[a.Rank][1] += c[1]
	}
	ours := waiting(loads)
	said := float64(cost.Weigh(plan, opt.Weighing(&sels[0], dataParallel(ranks))).Over.FSDP) / 1e4
	if math.Abs(ours-said) > .01 {
		return row{}, fmt.Errorf("encoder and backbone over %d ranks: the planner says %g %%, this program %g %%", ranks, said, ours)
	}
	per := len(sels[0].Segments) / ranks
	result := atMost(ours, .5)
	return row{"G11", fmt.Sprintf("encoder and backbone, barrier between, DP %d × %d documents, one assignment: ≤ 0.5 %% over the mean", ranks, per), percent(ours), result,
		fmt.Sprintf("random %s, LPT by the backbone %s, LPT by the sum %s; place took %.0f ms", percent(dealt(prices, &sels[0], ranks, nil)),
			percent(dealt(prices, &sels[0], ranks, func(c [2]float64) float64 { return c[1] })), percent(dealt(prices, &sels[0], ranks, func(c [2]float64) float64 { return c[0] + c[1] })), took.Seconds()*1e3)}, nil
}

// twoPhases are a segment's cost to encoder and backbone.
func twoPhases(c cost.Cost, s *millrace.Segment) [2]float64 {
	p, t := float64(s.Patches), float64(s.Length)
	return [2]float64{(float64(c.Encoder.Linear) + float64(c.Encoder.Quadratic)*p) * p, (float64(c.Linear) + float64(c.Quadratic)*t) * t}
}

// waiting is what ranks wait for each other after both phases, in percent of the mean.
func waiting(loads [][2]float64) float64 {
	total, slowest := 0.0, 0.0
	for phase := range 2 {
		top := 0.0
		for _, l := range loads {
			total += l[phase]
			top = max(top, l[phase])
		}
		slowest += top
	}
	return 100 * (slowest*float64(len(loads))/total - 1)
}

// dealt is the same of documents dealt by LPT of a weight, or at random, as many to every rank.
func dealt(cost cost.Cost, sel *planner.Selection, ranks int, weight func([2]float64) float64) float64 {
	costs := make([][2]float64, len(sel.Segments))
	for i := range costs {
		costs[i] = twoPhases(cost, &sel.Segments[i])
	}
	loads := make([][2]float64, ranks)
	if weight == nil {
		for at, i := range rand.New(rand.NewPCG(seed, 12)).Perm(len(costs)) {
			loads[at%ranks] = [2]float64{loads[at%ranks][0] + costs[i][0], loads[at%ranks][1] + costs[i][1]}
		}
		return waiting(loads)
	}
	slices.SortFunc(costs, func(a, b [2]float64) int { return int(math.Copysign(1, weight(b)-weight(a))) })
	least := make(trays, ranks)
	for r := range least {
		least[r].id = r
	}
	for _, c := range costs {
		top := &least[0]
		loads[top.id] = [2]float64{loads[top.id][0] + c[0], loads[top.id][1] + c[1]}
		top.load += weight(c)
		least.sink()
	}
	return waiting(loads)
}
