package index_test

import (
	"encoding/binary"
	"math/bits"
	"os"
	"path/filepath"
	"testing"

	"github.com/zeebo/xxh3"

	"millrace"
)

// olderBlob returns the file of a blob as earlier releases wrote it.
func olderBlob(shard millrace.Digest, kind string, blob []byte) []byte {
	h := binary.LittleEndian.AppendUint64([]byte("MRINDEX1"), uint64(len(blob)))
	h = append(h, shard[:]...)
	h = binary.LittleEndian.AppendUint64(h, xxh3.HashString(kind))
	sum := xxh3.Hash128(blob).Bytes()
	h = append(h, sum[:]...)
	return append(binary.LittleEndian.AppendUint64(h, xxh3.Hash(h)), blob...)
}

// olderLengths returns the file of lengths as earlier releases wrote it: of words, and of checksums if they are not
// nil.
func olderLengths(shard, transform millrace.Digest, lengths, sums map[uint64]uint32, count uint64) []byte {
	head := func(magic string) []byte {
		h := binary.LittleEndian.AppendUint64([]byte(magic), count)
		h = append(append(h, shard[:]...), transform[:]...)
		h = binary.LittleEndian.AppendUint64(h, 0)
		return binary.LittleEndian.AppendUint64(h, xxh3.Hash(h))
	}
	salt := xxh3.Hash(head("MRLENGT1"))
	word := func(key uint64, values map[uint64]uint32, record uint64) uint64 {
		value, ok := values[record]
		if !ok {
			return 0
		}
		hi, lo := bits.Mul64(key^salt, 0x9E3779B97F4A7C15)
		hi, lo = bits.Mul64(hi^lo^uint64(value), 0xD6E8FEB86659FD93)
		return (hi^lo)>>32<<32 | uint64(value+1)
	}
	out := head("MRLENGT1")
	if sums != nil {
		out = head("MRLENGT2")
	}
	for r := range count {
		out = binary.LittleEndian.AppendUint64(out, word(r, lengths, r))
		if sums != nil {
			out = binary.LittleEndian.AppendUint64(out, word(bits.Reverse64(^r), sums, r))
		}
	}
	return out
}

// TestFilesOfAnEarlierRelease: blobs and lengths that were kept in a file a shard are found, and are kept packed from
// then on.
func TestFilesOfAnEarlierRelease(t *testing.T) {
	dir := t.TempDir()
	plain := millrace.Digest{7}
	lengths, sums := map[uint64]uint32{3: 33, 9: 5}, map[uint64]uint32{3: 77}
	name := func(d millrace.Digest, rest string) string { return filepath.Join(dir, d.String()+"-"+rest) }
	for path, b := range map[string][]byte{
		name(shard, "lines.idx"):                   olderBlob(shard, "lines", []byte("kept")),
		name(plain, "lines.idx"):                   olderBlob(shard, "lines", []byte("of another shard")),
		name(shard, transform.String()+".tok"):     olderLengths(shard, transform, lengths, sums, 10),
		name(plain, transform.String()+".len"):     olderLengths(plain, transform, lengths, nil, 10),
		name(transform, transform.String()+".tok"): []byte("damaged"),
	} {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 {
		s := open(t, dir, nil)
		save(t, s, shard, "other", []byte("makes the log"))
		if got, ok := s.Load(shard, "lines"); !ok || string(got) != "kept" {
			t.Fatalf("got %q, %v", got, ok)
		}
		if got, ok := s.Load(plain, "lines"); ok {
			t.Fatalf("got %q", got)
		}
		for d, want := range map[millrace.Digest]map[uint64]uint32{shard: lengths, plain: lengths, transform: nil} {
			l, err := s.Lengths(d, transform, 10, true)
			if err != nil {
				t.Fatal(err)
			}
			for r := range uint64(10) {
				w, known := want[r]
				if n, ok := l.Get(r); ok != known || n != w {
					t.Errorf("round %d, shard %v, record %d: got %d, %v", round, d, r, n, ok)
				}
				wantSum, hasSum := sums[r]
				if sum, ok := l.Sum(r); ok != (hasSum && d == shard) || ok && sum != wantSum {
					t.Errorf("round %d, shard %v, record %d: got checksum %d, %v", round, d, r, sum, ok)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, pattern := range []string{"*.idx", "*.tok", "*.len"} { // the packed files have all of it now
			old, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range old {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
