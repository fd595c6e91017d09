package kept

import (
	"log/slog"
	"testing"

	"millrace"
	"millrace/sources/facts/index"
)

// TestLengthsBeforeTheCount: lengths of a shard are kept as soon as the shard is counted.
func TestLengthsBeforeTheCount(t *testing.T) {
	shard := Shard{Path: "a", Digest: millrace.Digest{1}}
	store, err := index.Open(t.TempDir(), index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s := New(Config{Index: store, Log: slog.New(slog.DiscardHandler), Limit: 1 << 20,
		Keys: Keys{
			Transform: millrace.Digest{2},
			Filters:   millrace.Digest{3},
		}, Describe: func(uint32) Shard { return shard }})
	s.Remember(0, []Length{{Record: 0, Tokens: 7, Refused: 1}, {Record: 1, Bad: true}})
	if s.Lengths(0) != nil {
		t.Fatal("a shard without a count has a length store")
	}
	shard.Count, shard.Counted = 3, true
	lengths, ok := s.Lengths(0).(*Filtered)
	if !ok {
		t.Fatal("want a store with the answers of filters")
	}
	tokens, known := lengths.Get(0)
	bits, answered := lengths.Refused(0)
	if !known || tokens != 7 || !answered || bits != 1 || !lengths.Bad(1, 1<<20) {
		t.Fatalf("record 0 has %d tokens (%v) and bits %d (%v); record 1 is bad: %v", tokens, known, bits, answered,
			lengths.Bad(1, 1<<20))
	}
	if _, known := lengths.Get(2); known {
		t.Fatal("a record that was not read has a length")
	}
}

// TestNothingIsKeptWithoutADirectory: blobs live as long as the store, and there are no lengths.
func TestNothingIsKeptWithoutADirectory(t *testing.T) {
	s := New(Config{})
	if err := s.Save(millrace.Digest{1}, "kind", []byte("blob")); err != nil {
		t.Fatal(err)
	}
	if blob, ok := s.Load(millrace.Digest{1}, "kind"); !ok || string(blob) != "blob" {
		t.Fatalf("loaded %q %v", blob, ok)
	}
	s.Remember(0, []Length{{Tokens: 1}})
	if s.HasLengths() || s.Lengths(0) != nil {
		t.Fatal("lengths are kept")
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
}
