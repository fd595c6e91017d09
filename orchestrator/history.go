package orchestrator

import (
	"fmt"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/checkpoint"
	"millrace/orchestrator/planner"
	"millrace/proto"
)

// ReadState restores a run's state from its store: the newest snapshot and the records after it, which it counts. It changes nothing.
func ReadState(store *checkpoint.Store, stream millrace.Stream) (s *State, records int, err error) {
	s, from := NewState(), uint64(1)
	snap, ok, err := store.NewestSnapshot()
	if err != nil {
		return nil, 0, err
	}
	if ok {
		var m proto.Snapshot
		if err := pbuf.Unmarshal(snap.Body, &m); err != nil {
			return nil, 0, fmt.Errorf("read snapshot %d: %w", snap.Index, err)
		}
		s, from = restore(&m), snap.Index+1
	}
	err = store.Replay(from, func(r checkpoint.Record) error {
		f := Fact{Record: &proto.Record{}}
		if err := pbuf.Unmarshal(r.Body, f.Record); err != nil {
			return fmt.Errorf("read journal record %d: %w", r.Index, err)
		}
		if sealed := f.GetSealed(); sealed != nil {
			var ok bool
			key := checkpoint.StepKey{Stream: string(stream), Attempt: sealed.Attempt, Step: sealed.Step}
			if f.Plan, ok, err = ReadPlan(store, key); err != nil {
				return err
			} else if !ok {
				return fmt.Errorf("the ledger has no plan of step %d, attempt %d, which the journal says was sealed", sealed.Step, sealed.Attempt)
			}
		}
		records++
		s.Apply(f)
		return nil
	})
	return s, records, err
}

// ReadPlan reads a step's plan from the ledger, and whether it is still kept.
func ReadPlan(store *checkpoint.Store, key checkpoint.StepKey) (*proto.Plan, bool, error) {
	body, ok, err := store.Plan(key)
	if err != nil || !ok {
		return nil, false, err
	}
	p := &proto.Plan{}
	if err := pbuf.Unmarshal(body, p); err != nil {
		return nil, false, fmt.Errorf("read plan of step %d: %w", key.Step, err)
	}
	return p, true, nil
}

// Planner is the planner's state at the watermark; its sources are those of Manifests, sorted by name.
func (s *State) Planner() (planner.State, error) {
	if len(s.Base) == 0 {
		return planner.NewState(len(s.Manifests)), nil
	}
	rs, err := ParseRunState(s.Base)
	if err != nil {
		return planner.State{}, err
	}
	return rs.state()
}
