package main

import (
	"fmt"

	"millrace"
	"millrace/bench/plan/overhead"
	"millrace/bench/plan/workload"
	"millrace/internal/seal"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/progress"
)

// goal10 measures the size of a saved state, and checks that plans continue from it with equal digests.
func goal10(b *bench) ([]row, error) {
	const sources, carry = 64, planner.AutoCarry
	weights := make([]string, sources)
	for i := range weights {
		weights[i] = fmt.Sprint(1 + i*i)
	}
	spec, err := workload.Spec(8192, 1024, weights...)
	if err != nil {
		return nil, err
	}
	spec.Carry = carry
	from := workload.Blocks{Corpus: workload.NewCorpus(b.lengths["pretrain"], b.documents, sources)}
	selector, err := planner.NewSelector(spec, stateAfter(sources, 1e10))
	if err != nil {
		return nil, err
	}
	most, carried, steps := 0, 0, 3*b.steps
	saved := ""
	for range steps {
		sel, err := workload.Advance(selector, from, 1)
		if err != nil {
			return nil, err
		}
		if err := follows(spec, saved, from, &sel[0]); err != nil {
			return nil, err
		}
		saved = sel[0].After.Compact()
		most, carried = max(most, len(saved)), max(carried, len(sel[0].After.Carried))
	}
	topologies, err := b.sameSets()
	if err != nil {
		return nil, err
	}
	return []row{
		{
			"G10",
			fmt.Sprintf(
				"the planner's part of a saved state, %d sources with seek points, carry auto: ≤ 16 KiB",
				sources,
			),
			fmt.Sprintf("%d bytes", most),
			atMost(float64(most), 16<<10),
			fmt.Sprintf(
				"%d carried at most; 10^10 documents of each source consumed; "+
					"a table of the order has 8–10 bytes a sample",
				carried,
			),
		},
		{
			"G10", "plans continue from every saved state with equal digests; every topology holds the same segments",
			"yes", met, fmt.Sprintf("%d states, %d topologies", steps, topologies),
		},
	}, nil
}

// stateAfter returns the state of a run that has drawn the given number of documents from each source.
func stateAfter(sources int, documents uint64) progress.State {
	state := progress.New(sources)
	for i := range state.Sources {
		src := &state.Sources[i]
		src.Ordinal, src.Samples, src.Tokens = millrace.Ordinal(documents+uint64(i)), documents, 915*documents
		state.Tokens += src.Tokens
	}
	return state
}

// follows returns an error if a selector from a saved state does not select the wanted next step.
func follows(spec *planner.Spec, saved string, offers planner.Offers, want *planner.Selection) error {
	if saved == "" {
		return nil
	}
	state, err := progress.Parse(saved)
	if err != nil {
		return err
	}
	s, err := planner.NewSelector(spec, state)
	if err != nil {
		return err
	}
	next, err := workload.Advance(s, offers, 1)
	if err == nil && (next[0].Content != want.Content || !next[0].After.Equal(want.After)) {
		err = fmt.Errorf(
			"select step %s from a saved state: content %s, the run had %s", want.Step, next[0].Content, want.Content,
		)
	}
	return err
}

// sameSets places a step under several topologies. It returns an error if one of them does not hold the selected
// segments.
func (b *bench) sameSets() (n int, err error) {
	s := b.pretrain8K()
	sels, err := b.selected(s)
	if err != nil {
		return 0, err
	}
	sel := &sels[0]
	names := make([]string, len(workload.FourSources()))
	for i := range names {
		names[i] = workload.SourceName(i)
	}
	for _, ranks := range []int{1, 8, 64, 512, s.bins()} {
		for _, layout := range []millrace.Layout{millrace.Packed, millrace.Varlen} {
			plan, err := place.Plan(
				sel, workload.DataParallel(ranks), s.placement(overhead.Dense8B(), layout, millrace.BalanceFSDP),
			)
			if err != nil {
				return n, err
			}
			segments := make([]millrace.Segment, len(plan.Assignments))
			for i := range plan.Assignments {
				segments[i] = plan.Assignments[i].Segment
			}
			if got := seal.Content(names, segments); got != sel.Content {
				return n, fmt.Errorf(
					"place step %s over %d ranks: content %s, selected was %s", sel.Step, ranks, got, sel.Content,
				)
			}
			n++
		}
	}
	return n, nil
}
