package workload

import (
	"fmt"
	"math/rand/v2"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
)

// Seed is the seed of every table, order and random baseline.
const Seed = 20

// Corpus offers endless sources. All sources have the documents of one table in memory, each in its own order.
type Corpus struct {
	table  []uint32 // lengths
	orders []mixing.Permutation
}

// NewCorpus draws a table of documents, and an order of the table for each source.
func NewCorpus(h *Histogram, documents, sources int) *Corpus {
	c := &Corpus{table: make([]uint32, documents)}
	rng := rand.New(rand.NewPCG(Seed, 1))
	for i := range c.table {
		c.table[i] = h.Draw(rng)
	}
	for s := range sources {
		c.orders = append(
			c.orders,
			mixing.NewPermutation(uint64(documents), mixing.DeriveKey(Seed, mixing.Number(uint64(s)))),
		)
	}
	return c
}

// Sources returns the number of sources.
func (c *Corpus) Sources() int { return len(c.orders) }

// Peek implements planner.Offers. Every document is ready.
func (c *Corpus) Peek(source int, ordinal millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	n := uint64(len(c.table))
	epoch := uint64(ordinal) / n
	at := c.orders[source].At(uint64(ordinal) - epoch*n)
	return millrace.SampleMeta{
		Ordinal: ordinal, Epoch: millrace.Epoch(epoch),
		ID: millrace.SampleID{Record: at}, Lengths: millrace.Lengths{Tokens: c.table[at]},
	}, planner.Ready
}

// Blocks offers a corpus as if its sources were read in blocks, so that states contain seek points.
type Blocks struct{ *Corpus }

// SeekPoint implements planner.SeekPoints. The block of an ordinal begins up to 5,000 records before it.
func (Blocks) SeekPoint(source int, at millrace.Ordinal) millrace.SeekPoint {
	begin := at - min(at, 1+at%5000)
	return millrace.SeekPoint{Ordinal: begin, Epoch: 3, EpochStart: at / 2, Shard: 4095, Block: 700, Record: 9_000_000}
}

// Spec describes an endless run with one source for each weight. Each step has bins of the given number of tokens.
func Spec(tokens uint32, bins int, weights ...string) (*planner.Spec, error) {
	spec := &planner.Spec{
		SequenceLength: tokens, GlobalBatch: bins, PadMultiple: 1,
		Packing: millrace.BestFit, Unit: millrace.UnitTokens, LastStep: millrace.PadLast,
	}
	var parsed []mixing.Weight
	for i, text := range weights {
		w, err := mixing.ParseWeight(text)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, w)
		spec.Sources = append(spec.Sources, planner.SourceSpec{Name: SourceName(i), OnExhausted: millrace.Repeat})
	}
	schedule, err := mixing.NewSchedule(len(parsed), []mixing.Milestone{{Weights: parsed}})
	spec.Schedule = schedule
	return spec, err
}

// SourceName returns the name of source i in a Spec.
func SourceName(i int) string { return fmt.Sprintf("source-%04d", i) }

// FourSources returns the default weights of a run.
func FourSources() []string { return []string{"0.4", "0.3", "0.2", "0.1"} }

// Advance selects the next n steps.
func Advance(s *planner.Selector, o planner.Offers, n int) ([]planner.Selection, error) {
	steps := make([]planner.Selection, 0, n)
	for len(steps) < n {
		sel, out, err := s.Advance(o)
		if err != nil {
			return nil, err
		}
		if out.Kind != planner.Sealed {
			return nil, fmt.Errorf("select %d steps: the run stopped after %d", n, len(steps))
		}
		steps = append(steps, sel)
	}
	return steps, nil
}

// DataParallel returns a topology that has no other axis than data-parallel ranks.
func DataParallel(ranks int) millrace.Topology {
	return millrace.Topology{Ranks: ranks, TP: 1, CP: 1, PP: 1}
}
