package facts

import (
	"cmp"
	"fmt"
	"slices"

	"millrace"
	"millrace/checkpoint"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
	"millrace/proto"
)

// A state keeps the newest keptQuarantines quarantined samples for the ledger. Status shows the newest
// recentQuarantines.
const (
	keptQuarantines   = 1000
	recentQuarantines = 20
)

// State is the run's state as the journal has it. It holds every fact that a restart cannot derive again. It changes by
// Apply alone.
type State struct {
	Identity       []byte // canonical JSON of the run's identity; empty before Created
	PlannerVersion uint32
	Term           uint64 // highest orchestrator term taken
	AssignTerm     uint64 // highest loader assignment term
	Manifests      map[string]*proto.Manifest
	Attempt        *proto.Opened         // the newest; nil before the first
	Base           *RunState             // at the watermark; nil before the first attempt
	Watermark      uint64                // first step that not every rank has consumed
	Sealed         map[uint64]SealedStep // steps at or after the watermark, of the newest attempt
	Next           uint64                // first step that is not sealed
	FirstUp        string                // the `up` under which the run's first step was sealed; empty before
	Ended          *proto.Ended
	Through        map[uint32]bool // ranks that have consumed the whole stream
	Recent         []*proto.Quarantine
	Quarantined    map[string]uint64 // per source
	// QuarantinedBelow has, per source, the ordinal below which bad records are counted already. So a step that is
	// planned again counts no record twice.
	QuarantinedBelow map[string]uint64
	// segments that were found bad after they were sealed, in the order of discovery
	Masks []*proto.Mask
	// Changes of the mixture in the order of the journal, without superseded ones. The ledger has those that are
	// settled.
	Mixed   []*proto.Mixed
	Changes uint64                     // of the mixture that were journaled, all together
	Settled uint64                     // the first step above all settled changes
	Cuts    []*proto.Cut               // of settled changes
	Holders map[Stripe]*proto.Assigned // the primary of each stripe
	// digest chain up to the newest sealed step; empty if the attempt has none
	Chain    []byte
	Consumed map[uint32]uint64 // earlier attempts: the watermark when the next attempt was opened
	Saved    uint64            // newest step whose model checkpoint is durable
	HasSaved bool

	stream millrace.Stream
	// index calls f with the ledger's index entries in [from, to), in key order; nil: there are none.
	index func(from, to checkpoint.StepKey, f func(checkpoint.IndexEntry) error) error
}

// NewState returns the state before the first record.
func NewState() *State {
	return &State{
		Manifests:        map[string]*proto.Manifest{},
		Sealed:           map[uint64]SealedStep{},
		Quarantined:      map[string]uint64{},
		QuarantinedBelow: map[string]uint64{},
		Through:          map[uint32]bool{},
		Holders:          map[Stripe]*proto.Assigned{},
		Consumed:         map[uint32]uint64{},
	}
}

// Apply applies one fact. It cannot fail: everything that could be wrong was checked before the fact was journaled.
func (s *State) Apply(f Fact) {
	switch r := f.Record.GetFact().(type) {
	case *proto.Record_Created:
		s.Identity, s.PlannerVersion = r.Created.Identity, r.Created.PlannerVersion
	case *proto.Record_Term:
		s.Term = max(s.Term, r.Term.Term)
	case *proto.Record_Assigned:
		s.AssignTerm = max(s.AssignTerm, r.Assigned.Term)
		if !r.Assigned.Standby {
			s.Holders[Stripe{r.Assigned.Source, r.Assigned.Stripe}] = r.Assigned
		}
	case *proto.Record_Pinned:
		s.Manifests[r.Pinned.Manifest.Source] = r.Pinned.Manifest
	case *proto.Record_Opened:
		if s.Attempt != nil {
			s.Consumed[s.Attempt.Attempt] = s.Watermark
		}
		s.Attempt, s.Base, s.Watermark, s.Next = r.Opened, f.At, r.Opened.Step, r.Opened.Step
		s.Ended, s.Chain = nil, nil
		s.Mixed = inAttempt(s.Mixed, r.Opened)
		if r.Opened.Forgets {
			s.cut(0, r.Opened.Step)
		}
		clear(s.Sealed)
		clear(s.Through)
	case *proto.Record_Sealed:
		s.Sealed[r.Sealed.Step], s.Next, s.Chain = SealedStep{f.Plan, f.At}, r.Sealed.Step+1, r.Sealed.Chain
		if s.FirstUp == "" {
			s.FirstUp = cmp.Or(r.Sealed.Up, s.Attempt.GetUp()) // an earlier program wrote only the latter
		}
	case *proto.Record_Acknowledged:
		s.acknowledge(r.Acknowledged.Below)
		for _, rank := range r.Acknowledged.Through {
			s.Through[rank] = true
		}
	case *proto.Record_Quarantined:
		for _, q := range r.Quarantined.Samples {
			s.Quarantined[q.Source]++
			s.QuarantinedBelow[q.Source] = max(s.QuarantinedBelow[q.Source], q.Ordinal+1)
			s.Recent = append(s.Recent, q)
		}
		s.Recent = s.Recent[max(0, len(s.Recent)-keptQuarantines):]
	case *proto.Record_Ended:
		s.Ended = r.Ended
	case *proto.Record_Masked:
		s.mask(r.Masked.Masks)
	case *proto.Record_Mixed:
		s.Mixed, s.Changes = append(s.Mixed, r.Mixed), s.Changes+1
	case *proto.Record_Saved:
		s.Saved, s.HasSaved = max(s.Saved, r.Saved.Step), true
	}
}

func (s *State) acknowledge(below uint64) {
	for ; s.Watermark < below; s.Watermark++ {
		if step, ok := s.Sealed[s.Watermark]; ok {
			s.Base = step.After
			delete(s.Sealed, s.Watermark)
		}
	}
}

// Inside returns the microbatches of the first step of the newest attempt that its ranks had consumed before it, and
// the placement under which they had. They are zero once the step is consumed.
func (s *State) Inside() (microbatch uint32, placement string) {
	if s.Attempt == nil || s.Watermark != s.Attempt.Step {
		return 0, ""
	}
	saved, err := ReadSaved(s.Attempt.State)
	if err != nil {
		return 0, "" // a state without records, in a test
	}
	return saved.Microbatch, saved.Placement
}

// Tail returns the run's state after the last sealed step, nil before the first attempt.
func (s *State) Tail() *RunState {
	if step, ok := s.Sealed[s.Next-1]; s.Next > s.Watermark && ok {
		return step.After
	}
	return s.Base
}

// At returns the run's state before a step: the watermark, or a later sealed step.
func (s *State) At(step uint64) *RunState {
	if step > s.Watermark {
		return s.Sealed[step-1].After
	}
	return s.Base
}

// PlannerState returns the planner's state at the watermark, or before the first attempt the initial state of a run
// with that number of sources.
func (s *State) PlannerState(sources int) *progress.State {
	if s.Base == nil {
		st := progress.NewOf(s.PlannerVersion, sources)
		return &st
	}
	return &s.Base.Planner
}

// CurrentAttempt returns the number of the newest attempt, 0 before the first.
func (s *State) CurrentAttempt() millrace.Attempt { return millrace.Attempt(s.Attempt.GetAttempt()) }

func (s *State) String() string {
	return fmt.Sprintf("term %d attempt %d watermark %d next %d", s.Term, s.CurrentAttempt(), s.Watermark, s.Next)
}

// IsMasked reports whether a segment is masked. A mask holds in every attempt, so that every reading gives the same
// bytes.
func (s *State) IsMasked(source string, ordinal uint64, offset uint32) bool {
	return slices.ContainsFunc(s.Masks,
		func(m *proto.Mask) bool { return m.Source == source && m.Ordinal == ordinal && m.Offset == offset })
}

// mask adds masked segments. Each of their documents counts as one that could not be decoded.
func (s *State) mask(masks []*proto.Mask) {
	for _, q := range s.NewlyBad(masks) {
		s.Quarantined[q.Source]++
		s.Recent = append(s.Recent, q)
	}
	s.Recent = s.Recent[max(0, len(s.Recent)-keptQuarantines):]
	for _, mask := range masks {
		if !s.IsMasked(mask.Source, mask.Ordinal, mask.Offset) {
			s.Masks = append(s.Masks, mask)
		}
	}
}

// NewlyBad lists the documents of masks that have no masked segment yet, each once.
func (s *State) NewlyBad(masks []*proto.Mask) (out []*proto.Quarantine) {
	for i, mask := range masks {
		known := func(o *proto.Mask) bool { return o.Source == mask.Source && o.Ordinal == mask.Ordinal }
		if !slices.ContainsFunc(s.Masks, known) && !slices.ContainsFunc(masks[:i], known) {
			out = append(out, mask.Sample)
		}
	}
	return out
}

// RecentQuarantines returns the newest quarantined samples for people, the newest last.
func (s *State) RecentQuarantines() []*proto.Quarantine {
	return s.Recent[max(0, len(s.Recent)-recentQuarantines):]
}

// Overrides returns the overrides of the newest attempt: those of the state at the watermark, and the changes that were
// journaled since.
func (s *State) Overrides(file *planner.Spec) (Overrides, error) {
	if s.Base == nil {
		return Overrides{}, nil
	}
	return s.overridesAfter(s.Base.Overrides, file, s.Watermark, ^uint64(0))
}

// overridesAfter adds the changes of the newest attempt that were journaled while a step from `from` to `to` was the
// next to seal.
func (s *State) overridesAfter(o Overrides, file *planner.Spec, from, to uint64) (Overrides, error) {
	return withAll(o, file, s.Mixed, func(c *proto.Mixed) bool {
		return c.Attempt == s.Attempt.GetAttempt() && c.Known >= from && c.Known <= to
	})
}

// Forward returns the state with the changes that stay in force in an attempt that begins at the state.
func (s *State) Forward(at *RunState) (*RunState, error) {
	next := &proto.Opened{Attempt: uint32(s.CurrentAttempt()) + 1, Step: at.NextStep()}
	settled, err := s.settledAt(s.Attempt.GetAttempt(), at.NextStep(), s.Settled)
	if err != nil {
		return nil, err
	}
	o, err := withAll(at.Overrides, at.Spec, inAttempt(append(settled, s.Mixed...), next),
		func(c *proto.Mixed) bool { return c.AtStep >= at.NextStep() })
	return at.WithOverrides(o), err
}

// IsInForce reports whether a change is in force in the newest attempt; before the first attempt, in the first one.
func (s *State) IsInForce(c *proto.Mixed) bool { return c.Attempt <= max(1, s.Attempt.GetAttempt()) }
