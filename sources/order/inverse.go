package order

import "millrace"

// Ordinals returns the ordinals below a bound at which a source delivers a record: one per epoch, ascending. known is
// false for block orders and for files that were never counted: then only the plans have them.
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
	if id.Record >= counts[id.Shard] {
		return nil, true
	}
	l := NewGlobal(Seed{Run: seed, Source: m.Source}, counts).Lookup()
	total := l.order.Total()
	for epoch := uint64(0); epoch*total < uint64(below); epoch++ {
		place := l.order.starts[id.Shard] + id.Record
		if m.Shuffle == millrace.Global {
			place = l.inverse(millrace.Epoch(epoch), place)
		}
		if n := millrace.Ordinal(epoch*total + place); n < below {
			at = append(at, n)
		}
	}
	return at, true
}
