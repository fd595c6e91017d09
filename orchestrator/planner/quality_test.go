package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"millrace"
)

// pretrain is the corpus of the quality figures: web, code, papers and books by their token shares, endless.
func pretrain(b testing.TB, seqlen uint32, batch, docs int) (*Spec, *corpus) {
	return mixedCorpus(b, seqlen, batch, docs, pretrainShares)
}

// mixedCorpus is an endless corpus of the four classes of documents by token shares.
func mixedCorpus(b testing.TB, seqlen uint32, batch, docs int, shares []string) (*Spec, *corpus) {
	spec := newSpec(b, seqlen, batch, shares...)
	c := &corpus{docs: make([][]millrace.SampleMeta, 4), epochs: make([]uint64, 4)}
	draw := newLengths(1)
	for s := range c.docs {
		spec.Sources[s].OnExhausted = Repeat
		for d := range docs {
			c.docs[s] = append(c.docs[s], document(2*d+1, draw.next(s)))
		}
	}
	return spec, c
}

// BenchmarkPlan measures whole plans: draw, cut, pack, place, seal. Metrics: mean fill and overheads in %, latency in ms.
func BenchmarkPlan(b *testing.B) {
	for _, c := range []struct {
		seqlen            uint32
		batch, ranks      int
		layout            millrace.Layout
		micro, capPermile uint32
	}{
		{2048, 64, 4, millrace.Packed, 4, 0},
		{2048, 512, 16, millrace.Packed, 4, 0},
		{2048, 512, 16, millrace.Varlen, 4, 1150},
		{8192, 2048, 256, millrace.Packed, 1, 0},
		{8192, 8192, 1024, millrace.Packed, 1, 0},
		{8192, 8192, 1024, millrace.Varlen, 1, 1150},
	} {
		b.Run(fmt.Sprintf("T=%d/G=%d/dp=%d/mbs=%d/%s", c.seqlen, c.batch, c.ranks, c.micro, c.layout), func(b *testing.B) {
			spec, offers := pretrain(b, c.seqlen, c.batch, 50_000)
			s, err := NewSelector(spec, NewState(4))
			if err != nil {
				b.Fatal(err)
			}
			opt := PlaceOptions{MicroBatch: c.micro, Layout: c.layout, Balance: FSDP, CapPermille: c.capPermile}
			topo := millrace.Topology{Ranks: c.ranks, TP: 1, CP: 1, PP: 1}
			rng := rand.New(rand.NewPCG(1, 1))
			var took, selecting []time.Duration
			var processor time.Duration
			var fill, packs, segments, fsdp, dp, randomFSDP, randomDP uint64
			for b.Loop() {
				begin, used := time.Now(), processorTime(b)
				sel, _, err := s.Advance(offers)
				selecting = append(selecting, time.Since(begin))
				if err != nil {
					b.Fatal(err)
				}
				plan, err := Place(&sel, topo, opt)
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
				processor += processorTime(b) - used
				b.StopTimer()
				fill += sel.Stats.FillPPM
				packs += uint64(sel.Stats.Packs)
				segments += uint64(len(sel.Segments))
				by := opt.Weighing(&sel, topo)
				over, chance := Weigh(plan, by).Over, Weigh(shuffled(b, &sel, topo, opt, rng), by).Over
				fsdp, dp, randomFSDP, randomDP = fsdp+over.FSDP, dp+over.DP, randomFSDP+chance.FSDP, randomDP+chance.DP
				b.StartTimer()
			}
			percent := func(sum uint64) float64 { return float64(sum) / float64(len(took)) / 1e4 }
			slices.Sort(took)
			slices.Sort(selecting)
			ms := func(d []time.Duration, q int) float64 { return d[(len(d)-1)*q/100].Seconds() * 1e3 }
			b.ReportMetric(percent(fill), "%fill")
			b.ReportMetric(percent(fsdp), "%fsdp")
			b.ReportMetric(percent(dp), "%dp")
			b.ReportMetric(percent(randomFSDP), "%fsdp-random")
			b.ReportMetric(percent(randomDP), "%dp-random")
			b.ReportMetric(ms(took, 50), "p50-ms")
			b.ReportMetric(ms(took, 99), "p99-ms")
			b.ReportMetric(processor.Seconds()*1e3/float64(len(took)), "cpu-ms")
			b.ReportMetric(ms(selecting, 50), "select-ms")
			b.ReportMetric(float64(packs)/float64(len(took)), "packs")
			b.ReportMetric(float64(segments)/float64(len(took)), "segments")
		})
	}
}

// processorTime is what this process has used, the collector included: on a busy machine the honest figure.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// shuffled places the selection's bins in random order: cost-blind packing.
func shuffled(b *testing.B, sel *Selection, topo millrace.Topology, opt PlaceOptions, rng *rand.Rand) *millrace.Plan {
	blind := *sel
	blind.Bin = slices.Clone(sel.Bin)
	to := rng.Perm(sel.NumBins)
	for i := range blind.Bin {
		blind.Bin[i] = uint32(to[blind.Bin[i]])
	}
	opt.Balance = Unbalanced
	plan, err := Place(&blind, topo, opt)
	if err != nil {
		b.Fatal(err)
	}
	return plan
}

// TestQuality keeps the figures from rotting: fill and balance of one fixed corpus.
func TestQuality(t *testing.T) {
	spec, c := pretrain(t, 2048, 512, 5000)
	steps, _, err := collect(t, spec, NewState(4), c, 4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range steps {
		if steps[i].Stats.FillPPM < 997_000 {
			t.Errorf("step %d: fill %d ppm, want 99.7 %%", i, steps[i].Stats.FillPPM)
		}
		opt := PlaceOptions{MicroBatch: 1, Layout: millrace.Varlen, Balance: FSDP, CapPermille: 1150}
		topo := millrace.Topology{Ranks: 64, TP: 1, CP: 1, PP: 1}
		plan, err := Place(&steps[i], topo, opt)
		if err != nil {
			t.Fatal(err)
		}
		if over := Weigh(plan, opt.Weighing(&steps[i], topo)).Over; over.FSDP > 8_000 || over.DP > 2_500 {
			t.Errorf("step %d: overhead %+v ppm, want at most 0.8 %% and 0.25 %%", i, over)
		}
	}
}
