package sourcetest

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"millrace/sources"
)

// unpackedFile is the copy of a packed file.
type unpackedFile struct {
	*bytes.Reader
	name string
}

// Name implements sources.File.
func (f unpackedFile) Name() string { return f.name }

// IsUnpacked implements sources.Unpacked.
func (f unpackedFile) IsUnpacked() bool { return true }

// copied opens the unpacked bytes of a shard that only streams in place of the file: every record is the same, and is
// read at random.
func (f Fixture) copied(t *testing.T, mk New, s sources.Shard, all []record) {
	t.Helper()
	u := s.Abilities().Packed
	if u == nil {
		t.Fatal("a shard that only streams gives no unpacked bytes")
	}
	r, err := u.Unpack(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	file := unpackedFile{bytes.NewReader(b), f.path()}
	var blob []byte
	for range 2 { // without an index, then with it
		x, err := mk(f.Files).Open(t.Context(), file, f.Field, f.Limits.Resolved(), blob)
		if err != nil {
			t.Fatalf("open the unpacked bytes: %v", err)
		}
		if !x.Seekable() {
			t.Fatal("the unpacked bytes only stream")
		}
		got, err := scan(t.Context(), x, 0)
		if err != nil || len(got) != len(all) {
			t.Fatalf("the unpacked bytes have %d records of %d: %v", len(got), len(all), err)
		}
		for i := range got { // a stream has to hold more of a record than a read at random
			if !got[i].equal(all[i]) && !strings.Contains(all[i].Why, "is read as a stream") {
				t.Fatalf("the unpacked bytes have %v, the file has %v", got[i], all[i])
			}
		}
		if n, counted := x.Count(); counted {
			if n != uint64(len(all)) {
				t.Fatalf("the unpacked bytes count %d records of %d", n, len(all))
			}
			f.reads(t, x, got)
		}
		if blob, err = x.Index(t.Context(), func(int64) {}); err != nil {
			t.Fatalf("index the unpacked bytes: %v", err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
