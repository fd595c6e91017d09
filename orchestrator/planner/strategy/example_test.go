package strategy_test

import (
	"fmt"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/progress"
	"millrace/orchestrator/planner/strategy"
)

// lengths are offers from memory: the lengths of the documents of each source, repeated endlessly.
type lengths [][]uint32

func (l lengths) Peek(source int, n millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	of := l[source]
	record := uint64(n) % uint64(len(of))
	return millrace.SampleMeta{
		Ordinal: n,
		Epoch:   millrace.Epoch(uint64(n) / uint64(len(of))),
		ID:      millrace.SampleID{Record: record},
		Lengths: millrace.Lengths{Tokens: of[record]},
	}, planner.Ready
}

// Ten steps of two sources for eight ranks, planned from lengths alone.
func ExampleStrategy() {
	weights := make([]mixing.Weight, 2)
	for i, text := range []string{"0.25", "0.75"} {
		weights[i], _ = mixing.ParseWeight(text)
	}
	schedule, err := mixing.NewSchedule(2, []mixing.Milestone{{Weights: weights}})
	if err != nil {
		fmt.Println(err)
		return
	}
	strategy := strategy.Strategy{
		Mix: planner.Spec{
			Sources: []planner.SourceSpec{
				{Name: "code", OnExhausted: millrace.Repeat},
				{Name: "web", OnExhausted: millrace.Repeat},
			},
			Schedule:       schedule,
			Unit:           millrace.UnitTokens,
			SequenceLength: 4096,
			GlobalBatch:    64,
			Packing:        millrace.BestFit,
			LastStep:       millrace.PadLast,
			StopSteps:      10,
		},
		Distribute: strategy.Distribute{Layout: millrace.Varlen, CapPermille: 1150},
		Cost: cost.Model{
			Layers:  32,
			Hidden:  4096,
			Heads:   32,
			KVHeads: 8,
			HeadDim: 128,
			FFN:     14336,
			Vocab:   128256,
		}.Cost(),
		Balance:   millrace.BalanceFSDP,
		Broadcast: millrace.Broadcast{TP: true},
	}
	topology := millrace.Topology{Ranks: 16, TP: 2, CP: 1, PP: 1}
	plans, err := strategy.Plans(topology, progress.New(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	offers := lengths{nil, nil}
	for i := range uint32(5000) {
		offers[0] = append(offers[0], 100+i*7919%4000)
		offers[1] = append(offers[1], 50+i*104729%1500)
	}
	for {
		step, outcome, err := plans.Next(offers)
		if err != nil {
			fmt.Println(err)
			return
		}
		if outcome.Kind != planner.Sealed {
			fmt.Println("ended by", outcome.Reason)
			return
		}
		if step.Step%3 == 0 {
			weight := cost.Weigh(step.Plan, strategy.Options().Weighing(step.Selection, topology))
			fmt.Printf("step %s: %d ranks of %d microbatches, %.1f%% full, overhead below one percent: %v\n", step.Step,
				step.Plan.Ranks, step.Plan.Microbatches, float64(step.Stats.FillPPM)/1e4, weight.Over.FSDP < 10_000)
		}
	}
	// Output:
	// step 0: 8 ranks of 8 microbatches, 99.7% full, overhead below one percent: true
	// step 3: 8 ranks of 8 microbatches, 99.7% full, overhead below one percent: true
	// step 6: 8 ranks of 8 microbatches, 99.9% full, overhead below one percent: true
	// step 9: 8 ranks of 8 microbatches, 99.6% full, overhead below one percent: true
	// ended by steps
}
