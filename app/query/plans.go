package query

import (
	"fmt"

	"millrace"
	"millrace/app/exit"
	"millrace/app/report"
	"millrace/checkpoint"
	"millrace/internal/wire"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/ledger"
)

// Plans passes the plans of the steps from to to, to excluded, that a stopped run sealed to each, in order. If several
// attempts sealed a step, each gets the newest plan.
func (r Run) Plans(from, to uint64, each func(*report.Step) error) error {
	store, err := r.open()
	if err != nil {
		return err
	}
	defer store.Close()
	state, _, err := facts.ReadCounters(store, millrace.Train)
	if err != nil {
		return err
	}
	var ms []*millrace.Manifest
	for _, name := range report.Names(state.Manifests) {
		ms = append(ms, wire.ManifestFromProto(state.Manifests[name]))
	}
	for step := from; step < to; step++ {
		found, err := newestPlan(store, uint32(state.Attempt.GetAttempt()), step)
		if err != nil {
			return exit.Failuref("run directory %s: %v", r.Dir, err)
		}
		changes, err := state.ChangesAt(report.Names(state.Manifests), uint32(found.Attempt), step)
		if err != nil {
			return exit.Failuref("run directory %s: %v", r.Dir, err)
		}
		if err := each(report.NewStep(found, ms, report.NewChanges(changes))); err != nil {
			return err
		}
	}
	return nil
}

// newestPlan finds the plan of a step in the newest attempt that sealed it.
func newestPlan(store *checkpoint.Store, attempt uint32, step uint64) (*millrace.Plan, error) {
	for ; attempt > 0; attempt-- {
		key := checkpoint.StepKey{Stream: string(millrace.Train), Attempt: attempt, Step: step}
		m, kept, err := ledger.ReadPlan(store, key)
		if err != nil {
			return nil, err
		}
		if kept {
			return wire.PlanFromProto(m)
		}
		if _, sealed, err := store.Entry(key); err != nil {
			return nil, err
		} else if sealed {
			return nil, fmt.Errorf("the plan of step %d was dropped: `millrace plan MIXTURE` computes it from "+
				"the mixture file", step)
		}
	}
	return nil, fmt.Errorf("no plan of step %d was sealed", step)
}
