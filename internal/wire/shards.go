package wire

import (
	"encoding/binary"

	"millrace"
	"millrace/proto"
)

// texts encodes a list of texts, each by its difference from the one before.
type texts struct {
	out  []byte
	last string
}

func (t *texts) add(s string) {
	shared := 0
	for shared < min(len(s), len(t.last)) && s[shared] == t.last[shared] {
		shared++
	}
	t.out = binary.AppendUvarint(t.out, uint64(shared))
	t.out = binary.AppendUvarint(t.out, uint64(len(s)-shared))
	t.out, t.last = append(t.out, s[shared:]...), s
}

// eachText calls f with the texts of a list in turn. A text is valid until f returns. It ends at a text that is not
// whole.
func eachText(list []byte, f func(text []byte)) {
	var text []byte
	for len(list) > 0 {
		shared, n := binary.Uvarint(list)
		rest, m := binary.Uvarint(list[max(n, 0):])
		if n <= 0 || m <= 0 || shared > uint64(len(text)) || rest > uint64(len(list)-n-m) {
			return
		}
		list = list[n+m:]
		text = append(text[:shared], list[:rest]...)
		list = list[rest:]
		f(text)
	}
}

// decodeTexts returns the texts of a list. They share one piece of memory.
func decodeTexts(list []byte) []string {
	var arena []byte
	var ends []int
	eachText(list, func(text []byte) {
		arena = append(arena, text...)
		ends = append(ends, len(arena))
	})
	all, out, from := string(arena), make([]string, len(ends)), 0
	for i, end := range ends {
		out[i], from = all[from:end], end
	}
	return out
}

func tableToProto(shards []millrace.Shard) *proto.ShardTable {
	out := &proto.ShardTable{Sizes: make([]uint64, len(shards)), Counts: make([]uint64, len(shards)),
		Digests: make([]byte, 0, len(shards)*len(millrace.Digest{}))}
	var names, paths texts
	for i := range shards {
		s := &shards[i]
		names.add(s.Name)
		paths.add(s.Path)
		out.Sizes[i] = uint64(s.Size)
		out.Digests = append(out.Digests, s.Digest[:]...)
		if s.Counted {
			out.Counts[i] = s.Count + 1
		}
	}
	out.Names, out.Paths = names.out, paths.out
	return out
}

func tableFromProto(t *proto.ShardTable) []millrace.Shard {
	var out []millrace.Shard
	paths := decodeTexts(t.GetPaths())
	for i, name := range decodeTexts(t.GetNames()) {
		s := millrace.Shard{Name: name}
		if i < len(paths) {
			s.Path = paths[i]
		}
		if i < len(t.Sizes) {
			s.Size = int64(t.Sizes[i])
		}
		if i < len(t.Counts) && t.Counts[i] > 0 {
			s.Count, s.Counted = t.Counts[i]-1, true
		}
		copy(s.Digest[:], t.Digests[min(i*len(s.Digest), len(t.Digests)):])
		out = append(out, s)
	}
	return out
}

// NamesOnly returns a manifest with the names of the source and of its shards alone.
func NamesOnly(m *proto.Manifest) *proto.Manifest {
	out := &proto.Manifest{Source: m.GetSource(), Table: &proto.ShardTable{Names: m.GetTable().GetNames()}}
	if len(m.GetShards()) > 0 {
		var names texts
		for _, s := range m.Shards {
			names.add(s.GetName())
		}
		out.Table.Names = names.out
	}
	return out
}

// ShardNames returns the names of a manifest's shards.
func ShardNames(m *proto.Manifest) []string {
	if len(m.GetShards()) == 0 {
		return decodeTexts(m.GetTable().GetNames())
	}
	out := make([]string, len(m.Shards))
	for i, s := range m.Shards {
		out[i] = s.GetName()
	}
	return out
}

// CountShards returns the number of a manifest's shards.
func CountShards(m *proto.Manifest) int { return len(m.GetShards()) + len(m.GetTable().GetSizes()) }

// CountRecords returns the records of all shards; counted is false if some shard was not counted.
func CountRecords(m *proto.Manifest) (n uint64, counted bool) {
	counted = true
	for _, s := range m.GetShards() {
		n += s.GetCount()
		counted = counted && s.GetCounted()
	}
	for _, c := range m.GetTable().GetCounts() {
		n += max(c, 1) - 1
		counted = counted && c > 0
	}
	return n, counted
}
