package facts

import (
	"slices"

	"millrace/proto"
)

// IsMasked reports whether a segment is masked. A mask holds in every attempt, so that every reading gives the same bytes.
func (s *State) IsMasked(source string, ordinal uint64, offset uint32) bool {
	return slices.ContainsFunc(s.Masks, func(m *proto.Mask) bool { return m.Source == source && m.Ordinal == ordinal && m.Offset == offset })
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
