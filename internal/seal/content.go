package seal

import (
	"cmp"
	"encoding/binary"
	"hash"
	"slices"

	"golang.org/x/crypto/blake2b"

	"millrace"
)

// flushAt is the number of encoded bytes that are collected before they are hashed.
const flushAt = 16 << 10

// hasher reuses one hash and its output.
type hasher struct {
	hash.Hash
	out []byte
}

func newHasher() *hasher {
	h, err := blake2b.New(len(millrace.Digest{}), nil)
	if err != nil {
		panic("blake2b has no 16-byte digest without a key") // it has, as every test here shows
	}
	return &hasher{h, make([]byte, 0, len(millrace.Digest{}))}
}

// digest hashes b alone.
func (h *hasher) digest(b []byte) millrace.Digest {
	h.Reset()
	h.Write(b)
	return h.sum()
}

func (h *hasher) sum() (d millrace.Digest) {
	h.out = h.Sum(h.out[:0])
	copy(d[:], h.out)
	return d
}

// Content returns the content digest of a step. names are the run's sources in sorted order, which Segment.Source
// indexes. The segments may have any order and are not changed.
func Content(names []string, segments []millrace.Segment) millrace.Digest {
	h := newHasher()
	buf := make([]byte, 0, flushAt+256)
	for _, i := range contentOrder(len(names), segments) {
		s := &segments[i]
		buf = append(buf, names[s.Source]...)
		buf = append(buf, 0)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(s.Ordinal))
		buf = binary.LittleEndian.AppendUint64(buf, uint64(s.Offset))
		buf = binary.LittleEndian.AppendUint64(buf, uint64(s.Length))
		if len(buf) >= flushAt {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	h.Write(buf)
	return h.sum()
}

// contentOrder returns the segments' indices by (source, ordinal, offset). Segments in draw order are in order within
// their source, so contentOrder only groups them by source.
func contentOrder(sources int, segments []millrace.Segment) []uint32 {
	starts, newest, sorted := make([]int, sources+1), make([]*millrace.Segment, sources), true
	for i := range segments {
		s := &segments[i]
		starts[s.Source+1]++
		sorted = sorted && (newest[s.Source] == nil || compare(newest[s.Source], s) <= 0)
		newest[s.Source] = s
	}
	for s := range sources {
		starts[s+1] += starts[s]
	}
	order := make([]uint32, len(segments))
	for i := range segments {
		at := &starts[segments[i].Source]
		order[*at] = uint32(i)
		*at++
	}
	if !sorted {
		slices.SortFunc(order, func(a, b uint32) int { return compare(&segments[a], &segments[b]) })
	}
	return order
}

func compare(a, b *millrace.Segment) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.Offset, b.Offset))
}
