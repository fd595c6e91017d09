package orchestrator

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner"
	pb "millrace/proto"
)

// Bad observes that a segment of a sealed plan could not be decoded by two readings. It is masked once, for every attempt.
func (m *Machine) Bad(b *pb.Bad) {
	p := m.s.Sealed[b.Step].Plan
	if p == nil || int(b.Source) >= len(m.cfg.Sources) {
		return // of a step that nobody builds any more
	}
	source, length := m.cfg.Sources[b.Source].Name, segment(p.Assignments, b)
	twice := func(o *pb.Mask) bool { return o.Source == source && o.Ordinal == b.Ordinal && o.Offset == b.Offset }
	if length == 0 || slices.ContainsFunc(m.s.Masks, twice) || slices.ContainsFunc(m.toMask, twice) {
		return
	}
	sample := b.Sample
	if sample == nil {
		sample = &pb.Quarantine{Id: fmt.Sprintf("ordinal %d", b.Ordinal), Offset: -1, Reason: "two readings could not decode it"}
	}
	sample.Source, sample.Ordinal = source, b.Ordinal
	m.toMask = append(m.toMask, &pb.Mask{Source: source, Ordinal: b.Ordinal, Offset: b.Offset, Length: length, Sample: sample,
		Attempt: m.s.Attempt.GetAttempt(), Step: b.Step, Tokens: m.plannedLength(b.Source, b.Ordinal)})
}

// segment is the length of a plan's segment, 0 where it has no such segment.
func segment(as *pb.Assignments, b *pb.Bad) uint32 {
	for i, o := range as.GetOrdinal() {
		if o == b.Ordinal && as.Source[i] == b.Source && as.Offset[i] == b.Offset {
			return as.Length[i]
		}
	}
	return 0
}

// plannedLength is the length that a document was planned with: as it was offered; else as far as the sealed plans show it.
func (m *Machine) plannedLength(source uint32, ordinal uint64) (tokens uint32) {
	if meta, known := m.queues.Peek(int(source), millrace.Ordinal(ordinal)); known == planner.Ready && meta.Reject == "" {
		return meta.Lengths.Tokens
	}
	for _, mask := range m.s.Masks {
		if mask.Source == m.cfg.Sources[source].Name && mask.Ordinal == ordinal {
			return mask.Tokens
		}
	}
	for _, step := range m.s.Sealed {
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

// mask journals what was found bad, unless that is more than a quarantine budget takes.
func (m *Machine) mask() ([]facts.Fact, error) {
	if len(m.toMask) == 0 {
		return nil, nil
	}
	made := []facts.Fact{{Record: &pb.Record{Fact: &pb.Record_Masked{Masked: &pb.Masked{Masks: m.toMask}}}}}
	m.toMask = nil
	return made, m.budget(made)
}

// masked tells everybody what is masked, and has the queues take these documents as they were planned however they are offered again.
func (m *Machine) masked(masks []*pb.Mask) {
	for _, mask := range masks {
		m.queues[m.sourceNamed(mask.Source)].Planned(millrace.Ordinal(mask.Ordinal), mask.Tokens)
		m.out.Say("quarantined %s %s at byte %d: %s (tokens %d to %d were in step %d already: they are masked)", mask.Source, mask.Sample.Id, mask.Sample.Offset, mask.Sample.Reason,
			mask.Offset, mask.Offset+mask.Length, mask.Step)
	}
	m.sidecars.Broadcast(&pb.SidecarOrder{Order: &pb.SidecarOrder_Masked{Masked: &pb.Masked{Masks: masks}}})
}
