package offers

import (
	"millrace"
	"millrace/internal/tokenid"
	"millrace/proto"
)

// Batch is the next offers of one stripe of a source, in ordinal order.
type Batch struct {
	Stripe     uint32
	Metas      []millrace.SampleMeta // with Rejected if the record cannot be decoded
	Rejects    map[millrace.Ordinal]millrace.Quarantine
	Runs       map[millrace.Ordinal]tokenid.Runs // of ordinals with untrained labels that plans may cut
	SeekPoints []millrace.SeekPoint
	Ended      bool             // no offer follows
	End        millrace.Ordinal // the end of the source over all stripes; valid if Ended
}

// FromProto decodes a loader's message. Columns that a loader left out are zero.
func FromProto(m *proto.Offers) Batch {
	b := Batch{
		Stripe: m.Stripe,
		Metas:  make([]millrace.SampleMeta, len(m.Ordinal)),
		Ended:  m.End,
		End:    millrace.Ordinal(m.EndOrdinal),
	}
	for i, o := range m.Ordinal {
		b.Metas[i] = millrace.SampleMeta{
			Ordinal: millrace.Ordinal(o), Epoch: millrace.Epoch(at(m.Epoch, i)),
			ID:      millrace.SampleID{Shard: at(m.Shard, i), Record: at(m.Record, i)},
			Offset:  at(m.Offset, i),
			Lengths: millrace.Lengths{Tokens: at(m.Tokens, i), Patches: at(m.Patches, i), Bytes: at(m.Bytes, i)},
			Refused: at(m.Refused, i), Untrained: at(m.Untrained, i),
		}
	}
	if len(m.Rejects) > 0 {
		b.Rejects = make(map[millrace.Ordinal]millrace.Quarantine, len(m.Rejects))
	}
	for _, r := range m.Rejects {
		b.Rejects[millrace.Ordinal(r.Ordinal)] = millrace.Quarantine{
			Source: r.Source,
			ID:     r.Id,
			Offset: r.Offset,
			Reason: r.Reason,
		}
	}
	if len(m.Runs) > 0 {
		b.Runs = make(map[millrace.Ordinal]tokenid.Runs, len(m.Runs))
	}
	for _, r := range m.Runs {
		b.Runs[millrace.Ordinal(r.Ordinal)] = r.Runs
	}
	for i := range b.Metas {
		_, b.Metas[i].Rejected = b.Rejects[b.Metas[i].Ordinal]
	}
	for _, a := range m.SeekPoints {
		b.SeekPoints = append(b.SeekPoints, millrace.SeekPoint{
			Ordinal: millrace.Ordinal(a.Ordinal), Epoch: millrace.Epoch(a.Epoch),
			EpochStart: millrace.Ordinal(a.EpochStart), Shard: a.Shard, Block: a.Block, Record: a.Record,
		})
	}
	return b
}

func at[T any](column []T, i int) (v T) {
	if i < len(column) {
		v = column[i]
	}
	return v
}
