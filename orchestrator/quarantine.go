package orchestrator

import (
	"fmt"

	"millrace"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/offers"
	"millrace/orchestrator/planner"
	pb "millrace/proto"
)

// quarantine counts bad records against the budgets of their sources. It changes nothing.
type quarantine struct {
	sources []Source
	s       *facts.State
	queues  offers.Queues
}

// rejected lists the bad records that a step passed, except those that an earlier attempt counted. It returns nil for none.
func (b *quarantine) rejected(sel *planner.Selection) *pb.Quarantined {
	var out *pb.Quarantined
	for _, r := range sel.Rejects {
		name := b.sources[r.Source].Name
		if uint64(r.Ordinal) < b.s.QuarantinedBelow[name] {
			continue
		}
		if out == nil {
			out = &pb.Quarantined{Attempt: b.s.Attempt.Attempt, Step: uint64(sel.Step)}
		}
		q := &pb.Quarantine{Source: name, Id: r.ID.String(), Offset: -1, Reason: r.Reject, Ordinal: uint64(r.Ordinal)}
		if known, ok := b.queues[r.Source].Rejected(r.Ordinal); ok {
			q.Id, q.Offset, q.Reason = known.ID, known.Offset, known.Reason
		}
		out.Samples = append(out.Samples, q)
	}
	return out
}

// check returns an error if facts give a source more bad records than its budget takes. It is decided in plan order, so
// every run decides the same.
func (b *quarantine) check(made []facts.Fact) error {
	counts := map[string]uint64{}
	for _, f := range made {
		for _, q := range append(f.GetQuarantined().GetSamples(), b.s.NewlyBad(f.GetMasked().GetMasks())...) {
			counts[q.Source]++
			allowed := b.allowed(sourceNamed(b.sources, q.Source), q.Ordinal)
			if n := b.s.Quarantined[q.Source] + counts[q.Source]; n > allowed {
				cure := millrace.Quarantine{Source: q.Source, Reason: q.Reason}.Cure()
				return millrace.Errorf(millrace.ErrBadSample,
					"source %s: %d records could not be decoded, its quarantine budget takes %d; the last is %s at byte %d: %s: %s",
					q.Source, n, allowed, q.Id, q.Offset, q.Reason, cure)
			}
		}
	}
	return nil
}

// allowed returns how many bad records the budget of a source takes up to an ordinal. If the records are counted, the
// budget is a part of those of all passes up to the ordinal's; else it is a part of the ordinals.
func (b *quarantine) allowed(source int, ordinal uint64) uint64 {
	src := &b.sources[source]
	counted, n := true, uint64(0)
	for _, sh := range b.s.Manifests[src.Name].GetShards() {
		n += sh.Count
		counted = counted && sh.Counted
	}
	if !counted {
		n = ordinal + 1
	} else if n > 0 {
		n *= ordinal/n + 1
	}
	return src.Allowed(counted, n)
}

// conditions lists the sources whose budget is nearly used up.
func (b *quarantine) conditions() (out []condition) {
	for i := range b.sources {
		name := b.sources[i].Name
		n := b.s.Quarantined[name]
		if n == 0 {
			continue
		}
		if allowed := b.allowed(i, uint64(b.queues[i].First())); n >= allowed-allowed/5 {
			text := fmt.Sprintf("source %s: %d records could not be decoded, its quarantine budget takes %d", name, n, allowed)
			out = append(out, condition{"quarantine", name, text, 0})
		}
	}
	return out
}
