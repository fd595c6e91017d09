package facts

import (
	"fmt"

	"millrace"
	"millrace/orchestrator/planner/progress"
	"millrace/proto"
)

// keptQuarantines is how many quarantined samples a state keeps for the ledger, recentQuarantines how many status shows.
const (
	keptQuarantines   = 1000
	recentQuarantines = 20
)

// State is the run's state as the journal tells it: everything that cannot be learnt again. It changes by Apply alone.
type State struct {
	Identity       []byte // canonical JSON of the run's identity; empty before Created
	PlannerVersion uint32
	Term           uint64 // highest orchestrator term taken
	AssignTerm     uint64 // highest loader assignment term
	Manifests      map[string]*proto.Manifest
	Attempt        *proto.Opened   // the newest; nil before the first
	Base           *RunState       // at the watermark; nil before the first attempt
	Watermark      uint64          // first step that not every rank has consumed
	Sealed         map[uint64]Step // steps at or after the watermark, of the newest attempt
	Next           uint64          // first step that is not sealed
	// Begun: if the state was read while a window was under way at the watermark, the window's steps below it whose plans are kept.
	Begun       []*proto.Plan
	Ended       *proto.Ended
	Through     map[uint32]bool // ranks that have consumed the whole stream
	Recent      []*proto.Quarantine
	Quarantined map[string]uint64 // per source
	// QuarantinedBelow: of ordinals below, per source, bad records are counted; a step that is planned again counts none twice.
	QuarantinedBelow map[string]uint64
	Masks            []*proto.Mask              // segments that turned out bad after they were sealed, in the order in which that was found
	Mixed            []*proto.Mixed             // changes of the mixture, as they were journaled; an attempt drops what later ones made void
	Holders          map[Stripe]*proto.Assigned // the primary of each stripe
	Chain            []byte                     // digest chain up to the newest sealed step; empty where the attempt has none
	Consumed         map[uint32]uint64          // earlier attempts: first step that not every rank had consumed when the next was opened
	Saved            uint64                     // newest step whose model checkpoint is durable
	HasSaved         bool
}

// NewState is the state before the first record.
func NewState() *State {
	return &State{Manifests: map[string]*proto.Manifest{}, Sealed: map[uint64]Step{}, Quarantined: map[string]uint64{}, QuarantinedBelow: map[string]uint64{},
		Through: map[uint32]bool{}, Holders: map[Stripe]*proto.Assigned{}, Consumed: map[uint32]uint64{}}
}

// Apply advances the state by one fact. It cannot fail: what could be wrong was checked before the fact was journaled.
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
		clear(s.Sealed)
		clear(s.Through)
	case *proto.Record_Sealed:
		s.Sealed[r.Sealed.Step], s.Next, s.Chain = Step{f.Plan, f.At}, r.Sealed.Step+1, r.Sealed.Chain
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
		s.Mixed = append(s.Mixed, r.Mixed)
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

// Tail is the run's state after the last sealed step, nil before the first attempt.
func (s *State) Tail() *RunState {
	if step, ok := s.Sealed[s.Next-1]; s.Next > s.Watermark && ok {
		return step.After
	}
	return s.Base
}

// At is the run's state before a step: the watermark, or one behind it that is sealed.
func (s *State) At(step uint64) *RunState {
	if step > s.Watermark {
		return s.Sealed[step-1].After
	}
	return s.Base
}

// Planner is the planner's state at the watermark, or that of a run with so many sources before its first attempt.
func (s *State) Planner(sources int) *progress.State {
	if s.Base == nil {
		st := progress.New(sources)
		return &st
	}
	return &s.Base.Planner
}

// CurrentAttempt returns the number of the newest attempt, 0 before the first.
func (s *State) CurrentAttempt() millrace.Attempt { return millrace.Attempt(s.Attempt.GetAttempt()) }

func (s *State) String() string {
	return fmt.Sprintf("term %d attempt %d watermark %d next %d", s.Term, s.CurrentAttempt(), s.Watermark, s.Next)
}
