package facts

import (
	"fmt"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/checkpoint"
	"millrace/orchestrator/ledger"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
	"millrace/proto"
)

// Read restores a run's state from its store: from the newest snapshot and the records after it. It returns the number
// of these records. Its time grows with that number, not with the length of the run. It checks the digest chain and
// changes nothing.
func Read(store *checkpoint.Store, stream millrace.Stream, spec *planner.Spec) (s *State, records int, err error) {
	r, err := replayJournal(store, stream, spec)
	if err != nil {
		return nil, 0, err
	}
	return r.s, r.records, r.materialise()
}

// ReadCounters restores the state without a spec: it has no run states and no plans. It also returns the planner's
// state at the watermark, without meaningful deficits. Its sources are those of Manifests, sorted by name.
func ReadCounters(store *checkpoint.Store, stream millrace.Stream) (*State, progress.State, error) {
	r, err := replayJournal(store, stream, nil)
	if err != nil {
		return nil, progress.State{}, err
	}
	clear(r.s.Sealed)
	if r.s.Attempt == nil {
		return r.s, progress.NewOf(r.s.PlannerVersion, len(r.s.Manifests)), nil
	}
	return r.s, r.at, r.advance()
}

// replay follows the journal. Run states are large, and few of them are needed at the end, so on the way it keeps only
// deltas and stubs of plans.
type replay struct {
	store   *checkpoint.Store
	stream  string
	spec    *planner.Spec // of the mixture file; nil: not known
	differ  *progress.Differ
	s       *State
	records int
	live    Overrides        // in force in the state `at`
	at      progress.State   // at s.Base, or later after advance
	known   uint64           // live has the changes that were journaled before this was the next step
	deltas  []progress.Delta // of all sealed steps after `at`
}

// replayJournal applies the whole journal.
func replayJournal(store *checkpoint.Store, stream millrace.Stream, spec *planner.Spec) (*replay, error) {
	r := &replay{store: store, stream: string(stream), spec: spec, differ: planner.NewDiffer(nil), s: NewState()}
	snap, ok, err := store.NewestSnapshot()
	if err != nil {
		return nil, err
	}
	if ok {
		if err := r.restore(snap); err != nil {
			return nil, fmt.Errorf("read snapshot of journal record %d: %w", snap.Index, err)
		}
	}
	r.s.stream, r.s.index = stream, store.IndexEntries
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

// restore starts from a snapshot.
func (r *replay) restore(snap checkpoint.Snapshot) error {
	var m proto.Snapshot
	if err := pbuf.Unmarshal(snap.Body, &m); err != nil {
		return err
	}
	err := readFiles(r.store, r.stream, m.Manifests)
	if err != nil {
		return err
	}
	if r.s, err = Restore(&m, r.spec); err != nil || m.Attempt == nil {
		return err
	}
	if err := r.begin(); err != nil {
		return err
	}
	if r.s.Watermark > m.Attempt.Step {
		before, _, err := r.entry(r.s.Watermark - 1)
		if err != nil {
			return err
		}
		r.s.Chain = before.Chain[:]
	}
	for _, p := range m.Sealed {
		e, _, err := r.entry(p.Step)
		if err != nil {
			return err
		}
		sealed := &proto.Sealed{
			Attempt: m.Attempt.Attempt,
			Step:    p.Step,
			Content: p.Content,
			Delta:   p.Delta,
			Chain:   e.Chain[:],
		}
		if err := r.apply(Fact{Record: &proto.Record{Fact: &proto.Record_Sealed{Sealed: sealed}}}); err != nil {
			return err
		}
	}
	if string(r.s.Chain) != string(m.Chain) {
		return r.broken(r.s.Next-1, "the snapshot has another chain")
	}
	return nil
}

// begin starts an attempt at its base.
func (r *replay) begin() error {
	r.deltas, r.at = nil, r.s.Base.Planner.Clone()
	if uint64(r.at.Step) != r.s.Watermark {
		return r.broken(r.s.Watermark, fmt.Sprintf("the attempt's state stands at step %s", r.at.Step))
	}
	return nil
}

// apply advances by one fact.
func (r *replay) apply(f Fact) error {
	if sealed := f.GetSealed(); sealed != nil {
		if err := r.seal(sealed); err != nil {
			return err
		}
		f.Plan = &proto.Plan{Step: sealed.Step, Content: sealed.Content, Delta: sealed.Delta}
	}
	if below := f.GetAcknowledged().GetBelow(); below > r.s.Next {
		return r.broken(below-1, "it was consumed before it was sealed")
	}
	if o := f.GetOpened(); o != nil {
		var err error
		if f.At, err = readOwn(o.State, r.spec); err != nil {
			return err
		}
	}
	base := r.s.Base
	r.s.Apply(f)
	if f.GetOpened() != nil {
		return r.begin()
	}
	r.s.Base = base // acknowledging has replaced it by the state of a stub
	return nil
}

// seal checks a sealed step against the ledger and the chain.
func (r *replay) seal(sealed *proto.Sealed) error {
	e, ok, err := r.entry(sealed.Step)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("the ledger has no step %d of attempt %d, which the journal says was sealed: %w", sealed.Step,
			sealed.Attempt, checkpoint.ErrCorrupt)
	case sealed.Step != r.s.Next || sealed.Attempt != r.s.Attempt.GetAttempt():
		return r.broken(sealed.Step,
			fmt.Sprintf("step %d of attempt %d was expected", r.s.Next, r.s.Attempt.GetAttempt()))
	}
	want := ledger.Chain(r.s.Chain, sealed.Attempt, e.Content[:], e.Placement[:], sealed.Delta)
	if string(want) != string(sealed.Chain) || string(want) != string(e.Chain[:]) ||
		string(sealed.Content) != string(e.Content[:]) {
		return r.broken(sealed.Step, "its chain does not follow from the step before and its own digests")
	}
	r.deltas = append(r.deltas, sealed.Delta)
	return nil
}

func (r *replay) broken(step uint64, why string) error {
	return fmt.Errorf("the digest chain breaks at step %d of attempt %d: %s: %w: "+
		"restore the run directory from a copy, or start a new one from the trainer's newest checkpoint",
		step, r.s.Attempt.GetAttempt(), why, checkpoint.ErrCorrupt)
}

func (r *replay) stepKey(step uint64) checkpoint.StepKey {
	return checkpoint.StepKey{Stream: r.stream, Attempt: r.s.Attempt.GetAttempt(), Step: step}
}

// entry reads the ledger entry of a step of the newest attempt.
func (r *replay) entry(step uint64) (*ledger.Entry, bool, error) {
	return ledger.ReadEntry(r.store, r.stepKey(step))
}

// advance moves the planner's state to the watermark.
func (r *replay) advance() error {
	for uint64(r.at.Step) < r.s.Watermark {
		if err := r.applyNext(); err != nil {
			return err
		}
	}
	return nil
}

// applyNext moves the planner's state over the next sealed step.
func (r *replay) applyNext() error {
	delta := r.deltas[0]
	r.deltas = r.deltas[1:]
	return r.differ.Apply(&r.at, delta)
}

// materialise makes the run states from the watermark on and reads their plans.
func (r *replay) materialise() (err error) {
	if r.s.Attempt == nil {
		return nil
	}
	if err := r.startOverrides(); err != nil {
		return err
	}
	if r.s.Watermark > uint64(r.at.Step) {
		if err := r.advance(); err != nil {
			return err
		}
		if r.s.Base, err = r.runState(); err != nil {
			return err
		}
	}
	for step := r.s.Watermark; step < r.s.Next; step++ {
		p, ok, err := ledger.ReadPlan(r.store, r.stepKey(step))
		if err != nil {
			return err
		}
		if !ok || string(p.Content) != string(r.s.Sealed[step].Plan.Content) {
			return fmt.Errorf("the ledger has no plan of step %d, attempt %d, as the journal says it was sealed: %w",
				step, r.s.CurrentAttempt(), checkpoint.ErrCorrupt)
		}
		if err := r.applyNext(); err != nil {
			return err
		}
		after, err := r.runState()
		if err != nil {
			return err
		}
		p.State = after.Encode()
		r.s.Sealed[step] = SealedStep{Plan: p, After: after}
	}
	return nil
}

// startOverrides begins with the overrides of the base. The deltas after it were made with all changes that were
// journaled.
func (r *replay) startOverrides() error {
	r.live = r.s.Base.Overrides
	all, err := r.s.overridesAfter(r.live, r.spec, uint64(r.at.Step), ^uint64(0))
	r.known, r.differ = uint64(r.at.Step), planner.NewDiffer(all.Spec(r.spec))
	return err
}

// runState returns the run's state at the planner's state, as it was sealed with the plan of the step before: with the
// changes of the mixture that were journaled by then.
func (r *replay) runState() (_ *RunState, err error) {
	if r.live, err = r.s.overridesAfter(r.live, r.spec, r.known, uint64(r.at.Step)-1); err != nil {
		return nil, err
	}
	r.known = uint64(r.at.Step)
	return NewRunState(r.s.Base.Run, r.s.Attempt.Attempt, r.at.Clone(), r.live), nil
}
