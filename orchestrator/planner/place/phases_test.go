package place

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// imageText is a corpus in which so many documents in ten have images: one to four images beside their text, four
// patches a token.
func imageText(seed uint64, docs, withImages int) *plannertest.Corpus {
	rng := rand.New(rand.NewPCG(seed, 21))
	lognormal := func(median, sigma, least, most float64) uint32 {
		return uint32(min(max(median*math.Exp(sigma*rng.NormFloat64()), least), most))
	}
	c := &plannertest.Corpus{Docs: make([][]millrace.SampleMeta, 1), Epochs: make([]uint64, 1)}
	for d := range docs {
		doc := plannertest.Document(2*d+1, lognormal(500, 1.1, 1, 4000))
		if rng.IntN(10) < withImages {
			for range 1 + rng.IntN(4) {
				doc.Lengths.Patches += lognormal(1024, 0.5, 64, 4096)
			}
			doc.Lengths.Tokens += doc.Lengths.Patches / 4
		}
		c.Docs[0] = append(c.Docs[0], doc)
	}
	return c
}

// imageTextCost is the cost of a ViT of 0.6 billion parameters before a model of 8 billion.
func imageTextCost(image uint64) cost.Cost {
	return cost.Model{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 14336, Vocab: 128256,
		Encoder: &cost.EncoderModel{Layers: 32, Hidden: 1280, Heads: 16, FFN: 5120, Image: image}}.Cost()
}

// imageTextStep is a step with one microbatch of five sequences on each rank: about 32 documents.
func imageTextStep(tb testing.TB, ranks, withImages int) *planner.Selection {
	spec := plannertest.NewSpec(tb, 8192, 5*ranks, "1")
	spec.Sources[0].OnExhausted = millrace.Repeat
	steps, _, err := plannertest.Collect(tb, spec, progress.New(1), imageText(3, 50*ranks, withImages), 1)
	if err != nil {
		tb.Fatal(err)
	}
	return &steps[0]
}

var imageTextOptions = Options{MicroBatch: 5, Layout: millrace.Varlen, Balance: millrace.BalanceFSDP, CapPermille: 1150}

// TestPhases: with a barrier after the encoder and one assignment for both phases, ranks wait for at most 0.5 % if six
// documents in ten have images, and for at most 0.8 % if all have.
func TestPhases(t *testing.T) {
	for withImages, most := range map[int]uint64{6: 5_000, 10: 8_000} { // 10: every document has images
		for _, image := range []uint64{0, 1024} {
			sel, topo, opt := imageTextStep(t, 64, withImages), millrace.Topology{
				Ranks: 64,
				TP:    1,
				CP:    1,
				PP:    1,
			}, imageTextOptions
			opt.Cost = imageTextCost(image)
			by := opt.Weighing(sel, topo)
			over := func(prices cost.Cost) uint64 {
				opt := opt
				opt.Cost = prices
				plan, err := Plan(sel, topo, opt)
				if err != nil {
					t.Fatal(err)
				}
				checkPlan(t, sel, opt, plan)
				return cost.Weigh(plan, by).Over.FSDP
			}
			both, backbone := over(opt.Cost), over(cost.Cost{Linear: opt.Cost.Linear, Quadratic: opt.Cost.Quadratic})
			if both > most || backbone < 3*both {
				t.Errorf("%d of 10 with images of %d patches: %d ppm over the mean, %d by the backbone alone",
					withImages, image, both, backbone)
			}
		}
	}
}

// TestDirections: a direction's first bin is the one that a search of all bins finds.
func TestDirections(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 9))
	p := &phasePacking{bins: &bins{left: make([]uint32, 40)}, over: make([]vector, 40)}
	for m := range p.left {
		p.left[m] = 1000
		for d := range p.heaps {
			p.heaps[d].push(slot{0, uint32(m)})
		}
	}
	for range 2000 {
		d, u := rng.IntN(directions+1), 1+rng.Uint32N(40)
		want, found := uint32(0), false
		for m := range uint32(len(p.left)) {
			if p.left[m] >= u && (!found || p.excess(d, m) < p.excess(d, want)) {
				want, found = m, true
			}
		}
		got, ok := p.firstWithRoom(d, u)
		if ok != found || ok && got != want {
			t.Fatalf("direction %d, %d units: bin %d %v, want %d %v", d, u, got, ok, want, found)
		}
		if ok {
			p.left[got] -= u
			p.over[got][0] += rng.Int64N(100)
			p.over[got][1] += rng.Int64N(100)
		}
	}
}

// BenchmarkPhases measures Plan and Weigh of steps with images. Compare ns/op with the number of ranks.
func BenchmarkPhases(b *testing.B) {
	for _, ranks := range []int{64, 512, 4096} {
		sel, topo, opt := imageTextStep(b, ranks, 6), millrace.Topology{
			Ranks: ranks,
			TP:    1,
			CP:    1,
			PP:    1,
		}, imageTextOptions
		opt.Cost = imageTextCost(0)
		b.Run(fmt.Sprintf("%dx%d", ranks, len(sel.Segments)/ranks), func(b *testing.B) {
			var w cost.Weight
			for b.Loop() {
				plan, err := Plan(sel, topo, opt)
				if err != nil {
					b.Fatal(err)
				}
				w = cost.Weigh(plan, opt.Weighing(sel, topo))
			}
			b.ReportMetric(float64(w.Over.FSDP)/1e4, "%fsdp")
			b.ReportMetric(float64(w.Gap().FSDP)/1e4, "%gap")
		})
	}
}
