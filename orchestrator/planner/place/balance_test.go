package place

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/order"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// The costs of the cases: S* of 61,000 and of 17,000 tokens.
var (
	dense8B = cost.Cost{Linear: 61000, Quadratic: 1}
	moeA3B  = cost.Cost{Linear: 17000, Quadratic: 1}
)

// goal is one case.
type goal struct {
	name   string
	shares []string
	seqlen uint32
	ranks  int
	micro  int // microbatches
	opt    Options
}

func (g goal) topology() millrace.Topology {
	return millrace.Topology{Ranks: 8 * g.ranks, TP: 1, CP: 1, PP: 8}
}

func (g goal) selections(tb testing.TB, n int) []planner.Selection {
	spec, offers := plannertest.MixedCorpus(tb, g.seqlen, g.ranks*g.micro, 50_000, g.shares)
	steps, _, err := plannertest.Collect(tb, spec, progress.New(4), offers, n)
	if err != nil {
		tb.Fatal(err)
	}
	return steps
}

func varlenOptions(balance millrace.Balance, cost cost.Cost) Options {
	return Options{MicroBatch: 1, Layout: millrace.Varlen, Balance: balance, CapPermille: 1150, Cost: cost}
}

func packedOptions(balance millrace.Balance, cost cost.Cost) Options {
	return Options{MicroBatch: 1, Layout: millrace.Packed, Balance: balance, Cost: cost}
}

func split(o Options) Options { o.Split.On = true; return o }

func grouped(o Options, ranks int) Options { o.Group = ranks; return o }

func goals() []goal {
	return []goal{
		{"8K-1024x8", plannertest.PretrainShares, 8192, 1024, 8, varlenOptions(millrace.BalanceFSDP, dense8B)},
		{"8K-1024x8-moe", plannertest.PretrainShares, 8192, 1024, 8, varlenOptions(millrace.BalanceFSDP, moeA3B)},
		{"8K-1024x8-strict", plannertest.PretrainShares, 8192, 1024, 8, packedOptions(millrace.BalanceFSDP, dense8B)},
		{"8K-1024x8-dp", plannertest.PretrainShares, 8192, 1024, 8, varlenOptions(millrace.BalanceDP, dense8B)},
		{"8K-1024x8-pp", plannertest.PretrainShares, 8192, 1024, 8, varlenOptions(millrace.BalancePP, dense8B)},
		{"32K-128x4", plannertest.PretrainShares, 32768, 128, 4, varlenOptions(millrace.BalanceFSDP, dense8B)},
		{"128K-128x8", plannertest.LongContextShares, 131072, 128, 8, varlenOptions(millrace.BalanceFSDP, dense8B)},
		{
			"128K-128x8-strict",
			plannertest.LongContextShares,
			131072,
			128,
			8,
			packedOptions(millrace.BalanceFSDP, dense8B),
		},
		{"128K-128x8-moe", plannertest.LongContextShares, 131072, 128, 8, varlenOptions(millrace.BalanceFSDP, moeA3B)},
		{"128K-128x8-dp", plannertest.LongContextShares, 131072, 128, 8, varlenOptions(millrace.BalanceDP, dense8B)},
		{"128K-128x8-pp", plannertest.LongContextShares, 131072, 128, 8, varlenOptions(millrace.BalancePP, dense8B)},
		{
			"128K-128x8-split",
			plannertest.LongContextShares,
			131072,
			128,
			8,
			split(varlenOptions(millrace.BalanceFSDP, dense8B)),
		},
		{
			"128K-128x8-split-moe",
			plannertest.LongContextShares,
			131072,
			128,
			8,
			split(varlenOptions(millrace.BalanceFSDP, moeA3B)),
		},
		{
			"128K-128x8-split-pp",
			plannertest.LongContextShares,
			131072,
			128,
			8,
			split(varlenOptions(millrace.BalancePP, dense8B)),
		},
		{
			"8K-1024x8-groups",
			plannertest.PretrainShares,
			8192,
			1024,
			8,
			grouped(varlenOptions(millrace.BalanceFSDP, dense8B), 64),
		},
		{"8K-4096x8", plannertest.PretrainShares, 8192, 4096, 8, varlenOptions(millrace.BalanceFSDP, dense8B)},
	}
}

// TestGoals checks the goals for balance at an eighth of their ranks. Each column then has fewer documents to choose
// from.
func TestGoals(t *testing.T) {
	const none = 1 << 40
	for _, tt := range []struct {
		goal
		fsdp, dp, gap uint64 // ppm: overhead over the mean, gap of the ranks' sums, gap to the column estimate
	}{
		{
			goal{"8K", plannertest.PretrainShares, 8192, 128, 8, varlenOptions(millrace.BalanceFSDP, dense8B)}, 2_500,
			1_000, 5_000,
		},
		{
			goal{"8K strict", plannertest.PretrainShares, 8192, 128, 8, packedOptions(millrace.BalanceFSDP, dense8B)},
			15_000, none, 5_000,
		},
		{
			goal{"32K", plannertest.PretrainShares, 32768, 32, 4, varlenOptions(millrace.BalanceFSDP, dense8B)}, none,
			none, 5_000,
		},
		{
			goal{"128K", plannertest.LongContextShares, 131072, 16, 8, varlenOptions(millrace.BalanceFSDP, dense8B)},
			none, none, 15_000,
		},
		{
			goal{"128K sums", plannertest.LongContextShares, 131072, 16, 8, varlenOptions(millrace.BalanceDP, dense8B)},
			none, 500, none,
		},
		{
			goal{
				"128K split", plannertest.LongContextShares, 131072, 16, 8,
				split(varlenOptions(millrace.BalanceFSDP, dense8B)),
			},
			7_500, none, none,
		},
	} {
		for _, sel := range tt.selections(t, 2) {
			plan, err := Plan(&sel, tt.topology(), tt.opt)
			if err != nil {
				t.Fatal(err)
			}
			checkPlan(t, &sel, tt.opt, plan)
			w := cost.Weigh(plan, tt.opt.Weighing(&sel, tt.topology()))
			far := gapToEstimate(plan, tt.opt.Weighing(&sel, tt.topology()))
			if gap := w.Gap(); w.Over.FSDP > tt.fsdp || gap.DP > tt.dp || far > tt.gap {
				t.Errorf("%s: over the mean %+v, gap %+v, gap to the column estimate %d", tt.name, w.Over, gap, far)
			}
		}
	}
}

// gapToEstimate compares a plan without an encoder under FSDP with an estimate, in millionths: the target costs of its
// columns. Targets treat documents as divisible, so the estimate may be above or below the best placement.
func gapToEstimate(plan *millrace.Plan, by cost.Weighing) uint64 {
	var size cost.Extent
	for i := range plan.Assignments {
		size.Add(&plan.Assignments[i].Segment)
	}
	weigh := by.Cost.Weigher(size)
	d := &group{ranks: int(plan.Ranks), columns: int(plan.Microbatches)}
	for i := range plan.Assignments {
		a := &plan.Assignments[i]
		_, cost := weigh.Of(&a.Segment)
		cost /= uint64(max(a.Parts, 1))
		d.costs, d.units, d.total = append(d.costs, cost), append(d.units, a.Columns(by.Pad)/by.Pad), d.total+cost
	}
	n := d.ranks * d.columns
	b := &bins{
		group:  d,
		order:  order.Descending(d.costs),
		bin:    make([]uint32, len(d.costs)),
		load:   make([]uint64, n),
		left:   make([]uint32, n),
		target: make([]uint64, n),
	}
	for m := range b.left {
		b.left[m] = by.Cap / by.Pad
	}
	b.seed(d.mean())
	b.setTargets()
	columns := sumOfDearest(b.target, d.ranks)
	b.settle()
	const million = 1_000_000
	estimate := cost.MulDiv(max(d.total/uint64(d.ranks), min(columns, sumOfDearest(b.target, d.ranks))),
		million*uint64(d.ranks), d.total)
	if takes := million + cost.Weigh(plan, by).Over.FSDP; takes > estimate {
		return cost.MulDiv(takes-estimate, million, estimate)
	}
	return 0
}

// BenchmarkBalance measures Plan on the cases of TestGoals. Metrics: overheads over the mean in %, the speed-up over
// cost-blind best-fit under FSDP, latency in ms.
func BenchmarkBalance(b *testing.B) {
	for _, g := range goals() {
		b.Run(g.name, func(b *testing.B) {
			const steps = 3
			sels := g.selections(b, steps)
			rng := rand.New(rand.NewPCG(1, 1))
			var fsdp, dp, pp, gap, sums, chance float64
			for i := range sels {
				plan, err := Plan(&sels[i], g.topology(), g.opt)
				if err != nil {
					b.Fatal(err)
				}
				by := g.opt.Weighing(&sels[i], g.topology())
				weight := cost.Weigh(plan, by)
				over, blind := weight.Over, cost.Weigh(shuffled(b, &sels[i], g.topology(), g.opt, rng), by).Over
				fsdp += float64(over.FSDP) / 1e4 / steps
				dp += float64(over.DP) / 1e4 / steps
				pp += float64(over.PP) / 1e4 / steps
				gap += float64(gapToEstimate(plan, by)) / 1e4 / steps
				sums += float64(weight.Gap().DP) / 1e4 / steps
				chance += float64(blind.FSDP) / 1e4 / steps
			}
			var took []time.Duration
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				begin := time.Now()
				if _, err := Plan(&sels[i%steps], g.topology(), g.opt); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
				i++
			}
			slices.Sort(took)
			b.ReportMetric(fsdp, "%fsdp")
			b.ReportMetric(dp, "%dp")
			b.ReportMetric(pp, "%pp")
			b.ReportMetric(gap, "%gap")
			b.ReportMetric(sums, "%gap-sums")
			b.ReportMetric(chance, "%fsdp-random")
			b.ReportMetric((100+chance)/(100+fsdp), "speedup")
			b.ReportMetric(took[len(took)/2].Seconds()*1e3, "p50-ms")
			b.ReportMetric(float64(len(sels[0].Segments)), "segments")
		})
	}
}
