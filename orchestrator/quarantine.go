package orchestrator

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/internal/wire"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/offers"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/roster"
	pb "millrace/proto"
)

// quarantine counts bad records against the budgets of their sources, and lets the queues keep them.
type quarantine struct {
	sources []Source
	s       *facts.State
	queues  offers.Queues
}

// restore gives the queues the records that were quarantined before their step was sealed.
func (b *quarantine) restore() { b.apply(b.s.Recent) }

// apply takes up records that steps have passed. They stay rejected, even if a later reading can decode them. A record
// with a mask was planned with its length.
func (b *quarantine) apply(durable []*pb.Quarantine) {
	for _, q := range durable {
		isMasked := func(m *pb.Mask) bool { return m.Source == q.Source && m.Ordinal == q.Ordinal }
		if i := sourceNamed(b.sources, q.Source); i >= 0 && !slices.ContainsFunc(b.s.Masks, isMasked) {
			b.queues[i].SetRejected(millrace.Ordinal(q.Ordinal),
				millrace.Quarantine{Source: q.Source, ID: q.Id, Offset: q.Offset, Reason: q.Reason})
		}
	}
}

// rejected lists the bad records that a step passed, except those that an earlier attempt counted. It returns nil for
// none.
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
		q := &pb.Quarantine{
			Source: name, Id: r.ID.String(), Offset: -1, Reason: "it cannot be decoded", Ordinal: uint64(r.Ordinal),
		}
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
					"source %s: %d records could not be decoded, its quarantine budget takes %d; the last is %s at "+
						"byte %d: %s: %s", q.Source, n, allowed, q.Id, q.Offset, q.Reason, cure)
			}
		}
	}
	return nil
}

// allowed returns how many bad records the budget of a source takes up to an ordinal. If the records are counted, the
// budget is a part of those of all passes up to the ordinal's; else it is a part of the ordinals.
func (b *quarantine) allowed(source int, ordinal uint64) uint64 {
	src := &b.sources[source]
	n, counted := wire.CountRecords(b.s.Manifests[src.Name])
	if !counted {
		n = ordinal + 1
	} else if n > 0 {
		n *= ordinal/n + 1
	}
	return src.Allowed(counted, n)
}

// nearlySpent lists the sources whose budget is nearly used up.
func (b *quarantine) nearlySpent() (out []condition) {
	for i := range b.sources {
		name := b.sources[i].Name
		n := b.s.Quarantined[name]
		if n == 0 {
			continue
		}
		if allowed := b.allowed(i, uint64(b.queues[i].First())); n >= allowed-allowed/5 {
			text := fmt.Sprintf("source %s: %d records could not be decoded, its quarantine budget takes %d", name, n,
				allowed)
			out = append(out, condition{"quarantine", name, text, 0})
		}
	}
	return out
}

// masking collects the segments of sealed plans that could not be read, until they are journaled as masked.
type masking struct {
	names  []string // of the sources
	s      *facts.State
	queues offers.Queues
	out    *roster.Actions
	found  []*pb.Mask // not yet journaled
}

// observe observes that a segment of a sealed plan could not be decoded by two readings. It is masked once, for every
// attempt.
func (k *masking) observe(b *pb.Bad) {
	p := k.s.Sealed[b.Step].Plan
	if p == nil || int(b.Source) >= len(k.names) {
		return // no sidecar builds this step any more
	}
	source, planned := k.names[b.Source], segment(p.Assignments, b)
	isSame := func(o *pb.Mask) bool { return o.Source == source && o.Ordinal == b.Ordinal && o.Offset == b.Offset }
	if planned.Length == 0 || slices.ContainsFunc(k.s.Masks, isSame) || slices.ContainsFunc(k.found, isSame) {
		return
	}
	sample := b.Sample
	if sample == nil {
		sample = &pb.Quarantine{
			Id:     fmt.Sprintf("ordinal %d", b.Ordinal),
			Offset: -1,
			Reason: "two readings could not decode it",
		}
	}
	sample.Source, sample.Ordinal = source, b.Ordinal
	k.found = append(k.found, &pb.Mask{Source: source, Ordinal: b.Ordinal, Offset: b.Offset, Length: planned.Length,
		Sample: sample, Attempt: k.s.Attempt.GetAttempt(), Step: b.Step, Tokens: k.plannedLength(b.Source, b.Ordinal),
		Untrained: planned.Untrained})
}

// segment returns the length and the labels of a plan's segment, the zero segment if it has no such one.
func segment(as *pb.Assignments, b *pb.Bad) (out millrace.Segment) {
	for i, o := range as.GetOrdinal() {
		if o == b.Ordinal && as.Source[i] == b.Source && as.Offset[i] == b.Offset {
			out.Length = as.Length[i]
			if len(as.Untrained) > 0 {
				out.Untrained = as.Untrained[i]
			}
			break
		}
	}
	return out
}

// setPlanned gives a queue the planned length of a masked document.
func setPlanned(q *offers.Queue, mask *pb.Mask) {
	q.SetPlanned(millrace.Segment{Ordinal: millrace.Ordinal(mask.Ordinal), Offset: mask.Offset, Length: mask.Length,
		More: mask.Offset+mask.Length < mask.Tokens, Untrained: mask.Untrained}, mask.Tokens)
}

// plannedLength returns the length that a document was planned with: the offered length, or as much as sealed plans
// show.
func (k *masking) plannedLength(source uint32, ordinal uint64) (tokens uint32) {
	if meta, known := k.queues.Peek(int(source), millrace.Ordinal(ordinal)); known == planner.Ready &&
		!meta.Rejected {
		return meta.Lengths.Tokens
	}
	for _, mask := range k.s.Masks {
		if mask.Source == k.names[source] && mask.Ordinal == ordinal {
			return mask.Tokens
		}
	}
	for _, step := range k.s.Sealed {
		as := step.Plan.Assignments
		for i, o := range as.GetOrdinal() {
			if o == ordinal && as.Source[i] == source {
				end := as.Offset[i] + as.Length[i]
				if as.More[i] {
					end++
				}
				tokens = max(tokens, end)
			}
		}
	}
	return tokens
}

// restore gives the queues the lengths of documents with journaled masks.
func (k *masking) restore() {
	for _, mask := range k.s.Masks {
		if i := slices.Index(k.names, mask.Source); i >= 0 {
			setPlanned(k.queues[i], mask)
		}
	}
}

// apply takes up masks that are durable. The queues keep the planned lengths of these documents, however they are
// offered again.
func (k *masking) apply(durable []*pb.Mask) {
	var left []*pb.Mask // in new memory: the record has the old
	for _, found := range k.found {
		if !slices.Contains(durable, found) {
			left = append(left, found)
		}
	}
	k.found = left
	for _, mask := range durable {
		setPlanned(k.queues[slices.Index(k.names, mask.Source)], mask)
		k.out.Say("quarantined %s %s at byte %d: %s (tokens %d to %d were in step %d already: they are masked)",
			mask.Source, mask.Sample.Id, mask.Sample.Offset, mask.Sample.Reason, mask.Offset, mask.Offset+mask.Length,
			mask.Step)
	}
}
