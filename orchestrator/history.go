package orchestrator

import (
	"fmt"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/checkpoint"
	"millrace/orchestrator/planner"
	"millrace/proto"
)

// ReadState restores a run's state from its store: the newest snapshot and the records after it, which it counts. It takes as long as those
// are many, however long the run was, checks the digest chain on the way, and changes nothing.
func ReadState(store *checkpoint.Store, stream millrace.Stream, spec *planner.Spec) (s *State, records int, err error) {
	r, err := replayed(store, stream, spec)
	if err != nil {
		return nil, 0, err
	}
	return r.s, r.records, r.materialise()
}

// ReadCounters restores what can be told without knowing the run's spec: the state without its run states and plans, and the planner's state
// at the watermark, in which deficits mean nothing. Its sources are those of Manifests, sorted by name.
func ReadCounters(store *checkpoint.Store, stream millrace.Stream) (*State, planner.State, error) {
	r, err := replayed(store, stream, nil)
	if err != nil {
		return nil, planner.State{}, err
	}
	clear(r.s.Sealed)
	if r.s.Attempt == nil {
		return r.s, planner.NewState(len(r.s.Manifests)), nil
	}
	return r.s, r.states[r.s.Watermark], nil
}

// ReadPlan reads a step's plan from the ledger, and whether it is still kept. Its run state is not in it.
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

// replay follows the journal. The run states that plans carry in memory are large and few of them are needed in the end, so on the way it
// keeps the planner's states alone, and stubs of plans.
type replay struct {
	store   *checkpoint.Store
	stream  string
	differ  *planner.Differ
	s       *State
	records int
	run     *RunState                // what all run states of the attempt have in common
	base    uint64                   // the step that s.Base stands at
	states  map[uint64]planner.State // at each step from the watermark to the next
}

// replayed applies the whole journal.
func replayed(store *checkpoint.Store, stream millrace.Stream, spec *planner.Spec) (*replay, error) {
	r := &replay{store: store, stream: string(stream), differ: planner.NewDiffer(spec), s: NewState(), states: map[uint64]planner.State{}}
	snap, ok, err := store.NewestSnapshot()
	if err != nil {
		return nil, err
	}
	if ok {
		if err := r.snapshot(snap); err != nil {
			return nil, fmt.Errorf("read snapshot of journal record %d: %w", snap.Index, err)
		}
	}
	return r, store.Replay(snap.Index+1, func(rec checkpoint.Record) error {
		f := Fact{Record: &proto.Record{}}
		if err := pbuf.Unmarshal(rec.Body, f.Record); err != nil {
			return fmt.Errorf("read journal record %d: %w", rec.Index, err)
		}
		r.records++
		if err := r.apply(f); err != nil {
			return fmt.Errorf("replay journal record %d: %w", rec.Index, err)
		}
		return nil
	})
}

// snapshot puts the state where a snapshot has it.
func (r *replay) snapshot(snap checkpoint.Snapshot) error {
	var m proto.Snapshot
	if err := pbuf.Unmarshal(snap.Body, &m); err != nil {
		return err
	}
	r.s = restore(&m)
	if m.Attempt == nil {
		return nil
	}
	if err := r.begin(); err != nil {
		return err
	}
	if r.s.Watermark > m.Attempt.Step {
		before, _, err := r.entry(r.s.Watermark - 1)
		if err != nil {
			return err
		}
		r.s.Chain = before.chain[:]
	}
	for _, p := range m.Sealed {
		e, _, err := r.entry(p.Step)
		if err != nil {
			return err
		}
		sealed := &proto.Sealed{Attempt: m.Attempt.Attempt, Step: p.Step, Content: p.Content, Delta: p.Delta, Chain: e.chain[:]}
		if err := r.apply(Fact{Record: &proto.Record{Fact: &proto.Record_Sealed{Sealed: sealed}}}); err != nil {
			return err
		}
	}
	if string(r.s.Chain) != string(m.Chain) {
		return r.broken(r.s.Next-1, "the snapshot says that it is another")
	}
	return nil
}

// begin takes up an attempt at its base.
func (r *replay) begin() (err error) {
	if r.run, err = ParseRunState(r.s.Base); err != nil {
		return err
	}
	clear(r.states)
	r.base = r.s.Watermark
	r.states[r.base], err = r.run.state()
	return err
}

// apply advances by one fact.
func (r *replay) apply(f Fact) error {
	if sealed := f.GetSealed(); sealed != nil {
		if err := r.seal(sealed); err != nil {
			return err
		}
		f.Plan = &proto.Plan{Step: sealed.Step, Content: sealed.Content, Delta: sealed.Delta}
	}
	below, base := r.s.Watermark, r.s.Base
	r.s.Apply(f)
	if f.GetOpened() != nil {
		return r.begin()
	}
	r.s.Base = base // what acknowledging made of it came from a stub
	for ; below < r.s.Watermark; below++ {
		delete(r.states, below)
	}
	return nil
}

// seal checks a sealed step against the ledger and the chain, and advances the planner's state by it.
func (r *replay) seal(sealed *proto.Sealed) error {
	e, ok, err := r.entry(sealed.Step)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("the ledger has no step %d of attempt %d, which the journal says was sealed: %w", sealed.Step, sealed.Attempt, checkpoint.ErrCorrupt)
	case sealed.Step != r.s.Next || sealed.Attempt != r.s.Attempt.GetAttempt():
		return r.broken(sealed.Step, fmt.Sprintf("step %d of attempt %d was expected", r.s.Next, r.s.Attempt.GetAttempt()))
	}
	want := chained(r.s.Chain, sealed.Attempt, e.content[:], e.placement[:], sealed.Delta)
	if string(want) != string(sealed.Chain) || string(want) != string(e.chain[:]) || string(sealed.Content) != string(e.content[:]) {
		return r.broken(sealed.Step, "it does not follow from the step before and what the step holds")
	}
	r.states[sealed.Step+1], err = r.differ.Patch(r.states[sealed.Step], sealed.Delta)
	return err
}

func (r *replay) broken(step uint64, why string) error {
	return fmt.Errorf("the digest chain breaks at step %d of attempt %d: %s: %w: restore the run directory from a copy, or start a new one from the trainer's newest checkpoint",
		step, r.s.Attempt.GetAttempt(), why, checkpoint.ErrCorrupt)
}

func (r *replay) key(step uint64) checkpoint.StepKey {
	return checkpoint.StepKey{Stream: r.stream, Attempt: r.s.Attempt.GetAttempt(), Step: step}
}

// entry reads what the ledger keeps of a step of the newest attempt.
func (r *replay) entry(step uint64) (*entry, bool, error) {
	stored, ok, err := r.store.Entry(r.key(step))
	if err != nil || !ok {
		return &entry{}, false, err
	}
	e, err := decodeEntry(stored.Digest)
	if err != nil {
		return &entry{}, false, fmt.Errorf("read ledger entry %s: %w: %w", stored.Key, err, checkpoint.ErrCorrupt)
	}
	return e, true, nil
}

// materialise makes the run states and fetches the plans from the watermark on.
func (r *replay) materialise() error {
	if r.s.Attempt == nil {
		return nil
	}
	if r.s.Watermark > r.base {
		r.s.Base = r.runState(r.s.Watermark)
	}
	for step := r.s.Watermark; step < r.s.Next; step++ {
		p, ok, err := ReadPlan(r.store, r.key(step))
		if err != nil {
			return err
		}
		if !ok || string(p.Content) != string(r.s.Sealed[step].Content) {
			return fmt.Errorf("the ledger has no plan of step %d, attempt %d, as the journal says it was sealed: %w", step, r.s.attempt(), checkpoint.ErrCorrupt)
		}
		p.State = r.runState(step + 1)
		r.s.Sealed[step] = p
	}
	return nil
}

// runState is the run state at a step, as the plan of the step before it had it.
func (r *replay) runState(step uint64) []byte {
	rs := *r.run
	rs.Step, rs.Attempt, rs.Planner = step, r.s.Attempt.Attempt, r.states[step].Compact()
	return rs.encode()
}
