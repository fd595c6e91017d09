package sources

import "millrace"

// Ordinals returns the ordinals below a bound at which a record of a source stands, one an epoch, rising. Known is false where the order
// is by blocks, or a file was never counted: then only the plans say where it went.
func Ordinals(m *millrace.Manifest, seed uint64, id millrace.SampleID, below millrace.Ordinal) (at []millrace.Ordinal, known bool) {
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
	w := globalWalk{order: newGlobalOrder(order{seed: seed, source: m.Source}, counts)}
	total := w.order.total()
	for epoch := uint64(0); epoch*total < uint64(below); epoch++ {
		place := w.order.starts[id.Shard] + id.Record
		if m.Shuffle == millrace.Global {
			place = w.inverse(millrace.Epoch(epoch), place)
		}
		if n := millrace.Ordinal(epoch*total + place); n < below {
			at = append(at, n)
		}
	}
	return at, true
}
