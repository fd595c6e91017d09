package wire

import (
	"millrace"
	"millrace/proto"
)

// ManifestToProto encodes a manifest.
func ManifestToProto(m *millrace.Manifest) *proto.Manifest {
	return &proto.Manifest{
		Source:      m.Source,
		Format:      m.Format,
		Shuffle:     string(m.Shuffle),
		Why:         m.Why,
		Table:       tableToProto(m.Shards),
		Fingerprint: m.Fingerprint[:],
	}
}

// ManifestFromProto decodes a manifest, also one of a run that began before there were tables.
func ManifestFromProto(m *proto.Manifest) *millrace.Manifest {
	out := &millrace.Manifest{
		Source:  m.GetSource(),
		Format:  m.GetFormat(),
		Shuffle: millrace.Shuffle(m.GetShuffle()),
		Why:     m.GetWhy(),
		Shards:  tableFromProto(m.GetTable()),
	}
	copy(out.Fingerprint[:], m.GetFingerprint())
	for _, s := range m.GetShards() {
		sh := millrace.Shard{
			Name:    s.GetName(),
			Path:    s.GetPath(),
			Size:    s.GetSize(),
			Count:   s.GetCount(),
			Counted: s.GetCounted(),
		}
		copy(sh.Digest[:], s.GetDigest())
		out.Shards = append(out.Shards, sh)
	}
	return out
}

// SeekPointToProto encodes a seek point.
func SeekPointToProto(a millrace.SeekPoint) *proto.SeekPoint {
	return &proto.SeekPoint{
		Ordinal:    uint64(a.Ordinal),
		Epoch:      uint32(a.Epoch),
		EpochStart: uint64(a.EpochStart),
		Shard:      a.Shard,
		Block:      a.Block,
		Record:     a.Record,
	}
}

// SeekPointFromProto decodes a seek point; nil is the zero seek point.
func SeekPointFromProto(a *proto.SeekPoint) millrace.SeekPoint {
	return millrace.SeekPoint{Ordinal: millrace.Ordinal(a.GetOrdinal()), Epoch: millrace.Epoch(a.GetEpoch()),
		EpochStart: millrace.Ordinal(
			a.GetEpochStart()), Shard: a.GetShard(), Block: a.GetBlock(), Record: a.GetRecord()}
}
