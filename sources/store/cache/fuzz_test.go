package cache

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/values"
)

// entryFile is an entry in memory.
type entryFile struct {
	File
	*bytes.Reader
}

func (f entryFile) Size() (int64, error)                    { return f.Reader.Size(), nil }
func (f entryFile) ReadAt(p []byte, off int64) (int, error) { return f.Reader.ReadAt(p, off) }
func (f entryFile) Name() string                            { return "entry" }

// TestARecordKeepsItsNote: a document that was too long is one when it comes from the cache, with ids of either width.
func TestARecordKeepsItsNote(t *testing.T) {
	for _, tokens := range [][]uint32{nil, {1, 2}, {70_000}} {
		for _, long := range []bool{false, true} {
			b, err := appendRecord(nil, &sources.Record{Number: 3, TooLong: long, MadeOf: 9}, tokens)
			if err != nil {
				t.Fatal(err)
			}
			var d decoded
			r, err := d.record(3, b)
			if err != nil || r.TooLong != long || !slices.Equal(r.Tokens, tokens) || r.MadeOf != 9 {
				t.Errorf("%v, too long %v, comes back as %+v: %v", tokens, long, r, err)
			}
		}
	}
	for _, kind := range []byte{kindBad | flagTooLong, kindMissing | flagTooLong, kindNarrow | 16} {
		var d decoded
		if _, err := d.record(3, []byte{kind, 0, 0, 0, 0}); !errors.Is(err, errDamaged) {
			t.Errorf("a record of kind %d is read: %v", kind, err)
		}
	}
}

// FuzzRecord decodes records of an entry whose checksums are right.
func FuzzRecord(f *testing.F) {
	for _, r := range []sources.Record{{Offset: 7, Raw: 30, MadeOf: 12, TooLong: true,
		Others: []any{"a", 1, 2.5, nil, true, []any{"x", values.Object{Keys: []string{"k"}, Values: []any{[]byte{1}}},
			values.Number("1.50")}, []uint32{1, 2}}},
		{Err: millrace.Errorf(millrace.ErrBadSample, "no")}} {
		b, err := appendRecord(nil, &r, []uint32{1, 70_000, 3})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d decoded
		r, err := d.record(3, b)
		if err == nil && r.Number != 3 {
			t.Fatalf("record 3 has number %d", r.Number)
		}
	})
}

// FuzzEntry reads entries whose head, list and tail have their checksums. A record is read, or the entry is damaged.
func FuzzEntry(f *testing.F) {
	key := millrace.Digest{7}
	f.Add([]byte{}, uint64(0))
	f.Add(bytes.Repeat([]byte{40, 0, 0, 0, 0, 0, 0, 0}, 700), uint64(300))
	f.Fuzz(func(t *testing.T, body []byte, count uint64) {
		groups := min((count%(4*groupSize)+groupSize-1)/groupSize, uint64(len(body)/8))
		count = min(count%(4*groupSize), groups*groupSize)
		if groups*groupSize >= count+groupSize {
			return
		}
		var tables []uint64
		for i := range groups {
			tables = append(tables, uint64(body[8*i])|uint64(body[8*i+1])<<8|uint64(body[8*i+2])<<56)
		}
		b := append(appendHead(nil, key), body...)
		b = appendTail(b, key, tables, uint64(len(b)), count)
		e, err := openEntry(entryFile{Reader: bytes.NewReader(b)}, key)
		if err != nil || e.count != count {
			t.Fatalf("%d records: got %+v, %v", count, e, err)
		}
		c := newCursor(e)
		for n := range count {
			r, err := c.record(n, count-n)
			if err != nil && !errors.Is(err, errDamaged) || err == nil && r.Number != n {
				t.Fatalf("record %d: got %d, %v", n, r.Number, err)
			}
		}
	})
}

var _ io.ReaderAt = entryFile{}
