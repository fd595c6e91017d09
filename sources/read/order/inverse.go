package order

import (
	"slices"

	"millrace"
)

// Ordinals returns the ordinals below a bound at which a source in the order of documents delivers a record: one per
// epoch, ascending. known is false for block orders and for files that were never counted: then only the plans have
// them.
func Ordinals(m *millrace.Manifest, seed uint64, id millrace.SampleID,
	below millrace.Ordinal) (at []millrace.Ordinal, known bool) {
	if m.Shuffle == millrace.Blocks || int(id.Shard) >= len(m.Shards) {
		return nil, false
	}
	counts := make([]uint64, len(m.Shards))
	for i := range m.Shards {
		if !m.Shards[i].Counted {
			return nil, false
		}
		counts[i] = m.Shards[i].Count
	}
	g := NewGlobal(Seed{Run: seed, Source: m.Source}, counts)
	return g.ordinals(id, below, m.Shuffle == millrace.Global), true
}

// ordinals returns the ordinals below a bound at which the order has a record, ascending: one in each epoch, or one for
// each piece. If permuted is false, records keep their file order.
func (g *Global) ordinals(id millrace.SampleID, below millrace.Ordinal, permuted bool) (at []millrace.Ordinal) {
	first, pieces, ok := g.positions(id)
	if !ok {
		return nil
	}
	l, total := g.Lookup(), g.Total(0)
	for epoch := uint64(0); epoch*total < uint64(below); epoch++ {
		for place := first; place < first+pieces; place++ {
			n := millrace.Ordinal(epoch*total + place)
			if permuted {
				n = millrace.Ordinal(epoch*total + l.inverse(millrace.Epoch(epoch), place))
			}
			if n < below {
				at = append(at, n)
			}
		}
	}
	slices.Sort(at)
	return at
}
