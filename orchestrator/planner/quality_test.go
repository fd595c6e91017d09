package planner

import (
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
		spec.Sources[s].OnExhausted = millrace.Repeat
		for d := range docs {
			c.docs[s] = append(c.docs[s], document(2*d+1, draw.next(s)))
		}
	}
	return spec, c
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
	opt.Balance = millrace.BalanceNone
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
		opt := PlaceOptions{MicroBatch: 1, Layout: millrace.Varlen, Balance: millrace.BalanceFSDP, CapPermille: 1150}
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
