package place

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// TestContextIsEven: with every document in zigzag, the costs of context-parallel ranks are equal within 0.2 %, also
// with short documents whole on one rank. It prints the figures.
func TestContextIsEven(t *testing.T) {
	for _, x := range []struct {
		seqlen uint32
		cp     int
		shares []string
	}{
		{8192, 2, plannertest.PretrainShares}, {131072, 8, plannertest.LongContextShares},
		{131072, 16, plannertest.LongContextShares},
	} {
		spec, offers := plannertest.MixedCorpus(t, x.seqlen, 64, 20_000, x.shares)
		spec.PadMultiple = 2 * uint32(x.cp)
		s, err := planner.NewSelector(spec, progress.New(len(spec.Sources)))
		if err != nil {
			t.Fatal(err)
		}
		topo := millrace.Topology{Ranks: 8 * x.cp, TP: 1, CP: x.cp, PP: 1}
		opt := Options{MicroBatch: 1, Layout: millrace.Varlen, Balance: millrace.BalanceFSDP, CapPermille: 1150}
		sel, _, err := s.Advance(offers)
		if err != nil {
			t.Fatal(err)
		}
		for _, local := range []uint32{0, x.seqlen / uint32(16*x.cp), x.seqlen / uint32(4*x.cp)} {
			opt.Local = local
			plan, err := Plan(&sel, topo, opt)
			if err != nil {
				t.Fatal(err)
			}
			all, worst := cost.WeighContext(plan, opt.Cost, x.cp, spec.PadMultiple)
			whole, tokens := uint64(0), uint64(0)
			for i := range plan.Assignments {
				a := &plan.Assignments[i]
				if tokens += uint64(a.Length); a.Holder > 0 {
					whole += uint64(a.Length)
				}
			}
			t.Logf("T=%d cp=%d local %d: %.3f %%, worst microbatch %.3f %%; %.1f %% of tokens whole on one rank",
				x.seqlen, x.cp, local, float64(all)/1e4, float64(worst)/1e4, float64(whole)*100/float64(tokens))
			if all > 2000 {
				t.Errorf("T=%d, cp %d, local %d: the most expensive ranks are %d millionths over the mean", x.seqlen,
					x.cp, local, all)
			}
			if local > 0 && whole == 0 {
				t.Errorf("T=%d, cp %d, local %d: nothing is whole on one rank", x.seqlen, x.cp, local)
			}
		}
	}
}

// TestHold: only short documents that are not split are whole on one rank, the ranks exist and are even, and a second
// call gives the same.
func TestHold(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	weigh := func(s *millrace.Segment) uint64 { return uint64(s.Length)*1000 + uint64(s.Length)*uint64(s.Length) }
	for range 300 {
		cp, local := 2+r.IntN(7), 1+r.Uint32N(400)
		var part []millrace.Assignment
		for rank := range millrace.Rank(2) {
			for range r.IntN(60) {
				a := millrace.Assignment{Rank: rank, Segment: millrace.Segment{Length: 1 + r.Uint32N(500)}}
				if r.IntN(10) == 0 {
					a.Parts = 2
				}
				part = append(part, a)
			}
		}
		again := append([]millrace.Assignment(nil), part...)
		holdWhole(part, cp, local, weigh)
		holdWhole(again, cp, local, weigh)
		if !reflect.DeepEqual(part, again) {
			t.Fatal("two answers")
		}
		load, total := [2][]uint64{make([]uint64, cp), make([]uint64, cp)}, [2]uint64{}
		for i := range part {
			a := &part[i]
			if a.Parts > 0 {
				total[a.Rank] += weigh(&a.Segment) / uint64(a.Parts)
			} else {
				total[a.Rank] += weigh(&a.Segment)
			}
			if a.Holder == 0 {
				continue
			}
			if a.Parts > 0 || a.Length > local || int(a.Holder) > cp {
				t.Fatalf("%+v is held by one of %d ranks, local is %d", a, cp, local)
			}
			load[a.Rank][a.Holder-1] += weigh(&a.Segment)
		}
		for rank := range load {
			sum, most := uint64(0), uint64(0)
			for _, l := range load[rank] {
				sum, most = sum+l, max(most, l)
			}
			if most-sum/uint64(cp) > total[rank]/uint64(cp)/tolerance {
				t.Fatalf("rank %d: the most expensive of %d context-parallel ranks has %d of %d", rank, cp, most, sum)
			}
		}
	}
}
