package orchestrator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"millrace"
	"millrace/proto"
)

// recentQuarantines is how many quarantined samples status shows.
const recentQuarantines = 20

// State is what the journal says: all that cannot be learnt again. It changes by Apply alone.
type State struct {
	Identity       []byte // canonical JSON of the run's identity; empty before Created
	PlannerVersion uint32
	Term           uint64 // highest orchestrator term taken
	AssignTerm     uint64 // highest loader assignment term
	Manifests      map[string]*proto.Manifest
	Attempt        *proto.Opened          // newest attempt; its State is the planner's at its Step
	Base           []byte                 // run state at the watermark
	Watermark      uint64                 // first step that not every rank has consumed
	Sealed         map[uint64]*proto.Plan // steps at or after the watermark, of the newest attempt
	Begun          []*proto.Plan          // steps below the watermark of the window that was under way there when the state was read, as far as they are kept
	Next           uint64                 // first step that is not sealed
	Ended          *proto.Ended
	Through        map[uint32]bool // ranks that have consumed the whole stream
	Recent         []*proto.Quarantine
	Quarantined    map[string]uint64 // per source
	// QuarantinedBelow: of ordinals below, per source, bad records are counted; a step that is planned again counts none twice.
	QuarantinedBelow map[string]uint64
	Masks            []*proto.Mask                 // segments that turned out bad after they were sealed, in the order in which that was found
	Mixed            []*proto.Mixed                // changes of the mixture, as they were journaled; an attempt drops what later ones made void
	Holders          map[stripeKey]*proto.Assigned // the primary of each stripe
	Chain            []byte                        // digest chain up to the newest sealed step; empty where the attempt has none
	Consumed         map[uint32]uint64             // earlier attempts: first step that not every rank had consumed when the next was opened
	Saved            uint64                        // newest step whose model checkpoint is durable
	HasSaved         bool
}

// NewState is the state before the first record.
func NewState() *State {
	return &State{Manifests: map[string]*proto.Manifest{}, Sealed: map[uint64]*proto.Plan{}, Quarantined: map[string]uint64{}, QuarantinedBelow: map[string]uint64{},
		Through: map[uint32]bool{}, Holders: map[stripeKey]*proto.Assigned{}, Consumed: map[uint32]uint64{}}
}

// Fact is a record with the plan it sealed, which the ledger keeps apart from the journal.
type Fact struct {
	*proto.Record
	Plan *proto.Plan // only of Sealed
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
			s.Holders[stripeKey{r.Assigned.Source, r.Assigned.Stripe}] = r.Assigned
		}
	case *proto.Record_Pinned:
		s.Manifests[r.Pinned.Manifest.Source] = r.Pinned.Manifest
	case *proto.Record_Opened:
		if s.Attempt != nil {
			s.Consumed[s.Attempt.Attempt] = s.Watermark
		}
		s.Attempt, s.Base, s.Watermark, s.Next = r.Opened, r.Opened.State, r.Opened.Step, r.Opened.Step
		s.Ended, s.Chain = nil, nil
		s.Mixed = remixed(s.Mixed, r.Opened)
		clear(s.Sealed)
		clear(s.Through)
	case *proto.Record_Sealed:
		s.Sealed[r.Sealed.Step], s.Next, s.Chain = f.Plan, r.Sealed.Step+1, r.Sealed.Chain
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
		s.Recent = s.Recent[max(0, len(s.Recent)-recentQuarantines):]
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

// Masked tells whether a segment is masked. Masks hold for every attempt: whoever reads it again must get the same bytes.
func (s *State) Masked(source string, ordinal uint64, offset uint32) bool {
	return slices.ContainsFunc(s.Masks, func(m *proto.Mask) bool { return m.Source == source && m.Ordinal == ordinal && m.Offset == offset })
}

// mask remembers masked segments for every attempt. Each of their documents counts as one that could not be decoded.
func (s *State) mask(masks []*proto.Mask) {
	for _, q := range s.newlyBad(masks) {
		s.Quarantined[q.Source]++
		s.Recent = append(s.Recent, q)
	}
	s.Recent = s.Recent[max(0, len(s.Recent)-recentQuarantines):]
	for _, mask := range masks {
		if !s.Masked(mask.Source, mask.Ordinal, mask.Offset) {
			s.Masks = append(s.Masks, mask)
		}
	}
}

// newlyBad lists the documents of masks of which nothing was masked before, each once.
func (s *State) newlyBad(masks []*proto.Mask) (out []*proto.Quarantine) {
	for i, mask := range masks {
		known := func(o *proto.Mask) bool { return o.Source == mask.Source && o.Ordinal == mask.Ordinal }
		if !slices.ContainsFunc(s.Masks, known) && !slices.ContainsFunc(masks[:i], known) {
			out = append(out, mask.Sample)
		}
	}
	return out
}

func (s *State) acknowledge(below uint64) {
	for ; s.Watermark < below; s.Watermark++ {
		if p := s.Sealed[s.Watermark]; p != nil {
			s.Base = p.State
			delete(s.Sealed, s.Watermark)
		}
	}
}

// snapshot is the state as a message. Of plans it holds what the ledger cannot tell as quickly.
func (s *State) snapshot() *proto.Snapshot {
	out := &proto.Snapshot{Identity: s.Identity, PlannerVersion: s.PlannerVersion, Term: s.Term, AssignTerm: s.AssignTerm,
		Acknowledged: s.Watermark, Ended: s.Ended, Recent: s.Recent, Quarantined: s.Quarantined, QuarantinedBelow: s.QuarantinedBelow, Saved: s.Saved, HasSaved: s.HasSaved,
		Masks: s.Masks, Chain: s.Chain, Consumed: s.Consumed, Mixed: s.Mixed}
	for _, name := range sortedKeys(s.Manifests) {
		out.Manifests = append(out.Manifests, s.Manifests[name])
	}
	for _, h := range s.Holders {
		out.Holders = append(out.Holders, h)
	}
	slices.SortFunc(out.Holders, func(a, b *proto.Assigned) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Stripe, b.Stripe))
	})
	if s.Attempt != nil {
		out.Attempt = &proto.Opened{Attempt: s.Attempt.Attempt, Step: s.Attempt.Step, State: s.Base, Placing: s.Attempt.Placing, Up: s.Attempt.Up}
	}
	for rank := range s.Through {
		out.Through = append(out.Through, rank)
	}
	slices.Sort(out.Through)
	for step := s.Watermark; step < s.Next; step++ {
		p := s.Sealed[step]
		out.Sealed = append(out.Sealed, &proto.Plan{Step: step, Content: p.Content, Delta: p.Delta})
	}
	return out
}

// restore is the state that snapshot wrote, as it was at the watermark: what was sealed beyond is applied by whoever has the ledger.
func restore(m *proto.Snapshot) *State {
	s := NewState()
	s.Identity, s.PlannerVersion, s.Term, s.AssignTerm = m.Identity, m.PlannerVersion, m.Term, m.AssignTerm
	s.Watermark, s.Next, s.Ended, s.Recent, s.Saved, s.HasSaved = m.Acknowledged, m.Acknowledged, m.Ended, m.Recent, m.Saved, m.HasSaved
	s.Attempt, s.Masks, s.Mixed = m.Attempt, m.Masks, m.Mixed
	for _, h := range m.Holders {
		s.Holders[stripeKey{h.Source, h.Stripe}] = h
	}
	if m.Attempt != nil {
		s.Base = m.Attempt.State
	}
	for _, mf := range m.Manifests {
		s.Manifests[mf.Source] = mf
	}
	maps.Copy(s.Quarantined, m.Quarantined)
	maps.Copy(s.QuarantinedBelow, m.QuarantinedBelow)
	maps.Copy(s.Consumed, m.Consumed)
	for _, rank := range m.Through {
		s.Through[rank] = true
	}
	return s
}

// tail is the run state after the last sealed step.
func (s *State) tail() []byte {
	if p := s.Sealed[s.Next-1]; s.Next > s.Watermark && p != nil {
		return p.State
	}
	return s.Base
}

// attempt returns the newest attempt's number, 0 before the first.
func (s *State) attempt() millrace.Attempt { return millrace.Attempt(s.Attempt.GetAttempt()) }

func (s *State) String() string {
	return fmt.Sprintf("term %d attempt %d watermark %d next %d", s.Term, s.attempt(), s.Watermark, s.Next)
}
