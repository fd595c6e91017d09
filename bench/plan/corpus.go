package main

import (
	"fmt"
	"math/rand/v2"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
)

// corpus is what a run reads: endless sources whose documents stand in one table in memory, each source in an order of its own.
type corpus struct {
	table  []uint32 // lengths
	orders []mixing.Permutation
}

// seed of every table and order.
const seed = 20

// newCorpus draws a table of that many documents.
func newCorpus(h *histogram, documents, sources int) *corpus {
	c := &corpus{table: make([]uint32, documents)}
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range c.table {
		c.table[i] = h.draw(rng)
	}
	for s := range sources {
		c.orders = append(c.orders, mixing.NewPermutation(uint64(documents), mixing.DeriveKey(seed, mixing.Number(uint64(s)))))
	}
	return c
}

// Peek implements planner.Offers with every fact at hand.
func (c *corpus) Peek(source int, ordinal millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	n := uint64(len(c.table))
	epoch := uint64(ordinal) / n
	at := c.orders[source].At(uint64(ordinal) - epoch*n)
	return millrace.SampleMeta{
		Ordinal: ordinal, Epoch: millrace.Epoch(epoch), ID: millrace.SampleID{Record: at}, Lengths: millrace.Lengths{Tokens: c.table[at]},
	}, planner.Ready
}

// newSpec is a run of bins of that many tokens, so many a step, from sources with such weights that none ends.
func newSpec(tokens uint32, bins int, weights ...string) (*planner.Spec, error) {
	spec := &planner.Spec{
		SequenceLength: tokens, GlobalBatch: bins, PadMultiple: 1, Packing: millrace.BestFit, Unit: millrace.UnitTokens, LastStep: millrace.PadLast,
	}
	var parsed []mixing.Weight
	for i, text := range weights {
		w, err := mixing.ParseWeight(text)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, w)
		spec.Sources = append(spec.Sources, planner.SourceSpec{Name: fmt.Sprintf("source-%04d", i), OnExhausted: millrace.Repeat})
	}
	schedule, err := mixing.NewSchedule(len(parsed), []mixing.Milestone{{Weights: parsed}})
	spec.Schedule = schedule
	return spec, err
}

// fourSources are the weights of all runs that do not say otherwise.
func fourSources() []string { return []string{"0.4", "0.3", "0.2", "0.1"} }

// advance returns the next n steps.
func advance(s *planner.Selector, o planner.Offers, n int) ([]planner.Selection, error) {
	steps := make([]planner.Selection, 0, n)
	for len(steps) < n {
		sel, out, err := s.Advance(o)
		if err != nil {
			return nil, err
		}
		if out.Kind != planner.Sealed {
			return nil, fmt.Errorf("plan: the run stopped after %d of %d steps", len(steps), n)
		}
		steps = append(steps, sel)
	}
	return steps, nil
}

// dataParallel is a topology of data-parallel ranks alone.
func dataParallel(ranks int) millrace.Topology {
	return millrace.Topology{Ranks: ranks, TP: 1, CP: 1, PP: 1}
}
