package sourcetest

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"millrace/sources"
)

// Run tests the contract of sources.Format over each fixture of a format.
func Run(t *testing.T, name string, mk New, fixtures []Fixture) {
	t.Helper()
	if got := mk(Files{}).Name(); got != name {
		t.Fatalf("the format has the name %s, want %s", got, name)
	}
	for i, f := range fixtures {
		errnos := rowErrors()
		if i == 0 {
			errnos = allErrors()
		}
		t.Run(f.Name, func(t *testing.T) { f.run(t, mk, errnos) })
	}
}

func (f Fixture) run(t *testing.T, mk New, errnos []syscall.Errno) {
	ctx := t.Context()
	s, err := f.open(ctx, f.Files, mk, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Seekable() != f.Seekable {
		t.Fatalf("seekable is %v, want %v", s.Seekable(), f.Seekable)
	}
	all, err := scan(ctx, s, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.check(t, all)
	if n, ok := s.Count(); ok && n != uint64(len(all)) {
		t.Fatalf("count is %d, want %d", n, len(all))
	}
	blob := f.index(t, s)
	x, err := f.open(ctx, f.Files, mk, blob)
	if err != nil {
		t.Fatalf("open with the index just made: %v", err)
	}
	if n, ok := x.Count(); !ok || n != uint64(len(all)) {
		t.Fatalf("indexed count is %d, %v, want %d", n, ok, len(all))
	}
	if x.Seekable() != s.Seekable() {
		t.Fatal("seekable differs with the index")
	}
	if again := f.index(t, x); !slices.Equal(blob, again) {
		t.Fatal("the index differs when made again")
	}
	f.skips(t, s, all)
	f.skips(t, x, all)
	if f.Seekable {
		f.reads(t, x, all)
	} else {
		f.copied(t, mk, s, all)
	}
	f.lengths(t, x, all)
	f.places(t, x, all)
	f.pieces(t, x, all)
	f.concurrent(t, x, all)
	f.stops(t, mk, x, all)
	f.troubles(t, mk, blob, all)
	f.hostFaults(t, mk, errnos, all)
	f.cached(t, mk)
	f.constants(t, mk, all)
	if err := errors.Join(s.Close(), x.Close()); err != nil {
		t.Fatal(err)
	}
}

func (f Fixture) index(t *testing.T, s sources.Shard) []byte {
	t.Helper()
	var reached int64
	blob, err := s.Index(t.Context(), func(n int64) {
		if n < reached || n > int64(len(f.Files[f.path()])) {
			t.Errorf("progress went from %d to %d of %d bytes", reached, n, len(f.Files[f.path()]))
		}
		reached = n
	})
	if err != nil {
		t.Fatalf("index: %v", err)
	}
	return blob
}

// skips tests that a scan from a record on gives the last records of a whole scan.
func (f Fixture) skips(t *testing.T, s sources.Shard, all []record) {
	t.Helper()
	for _, from := range append(sampleOf(all), len(all), len(all)+7) {
		got, err := scan(t.Context(), s, uint64(from))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "scan from a record", got, all[min(from, len(all)):])
	}
}

// reads tests that random reads give the records of a scan.
func (f Fixture) reads(t *testing.T, s sources.Shard, all []record) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	sets := [][]uint64{nil}
	for _, i := range sampleOf(all) {
		sets = append(sets, []uint64{uint64(i)})
	}
	for _, share := range []float64{1, 0.7, 0.2, 0.02} {
		var set []uint64
		for i := range all {
			if rng.Float64() < share {
				set = append(set, uint64(i))
			}
		}
		sets = append(sets, set)
	}
	for _, set := range sets {
		got, err := read(t.Context(), s, set)
		if err != nil {
			t.Fatalf("read %v: %v", set, err)
		}
		var want []record
		for _, n := range set {
			want = append(want, all[n])
		}
		same(t, "read at random", got, want)
	}
	if _, err := read(t.Context(), s, []uint64{uint64(len(all))}); err == nil {
		t.Fatal("read a record behind the last without an error")
	}
}

// lengths tests that the lengths known without reading are those of the records.
func (f Fixture) lengths(t *testing.T, s sources.Shard, all []record) {
	l := s.Abilities().Lengths
	ofTokens := slices.ContainsFunc(all, func(r record) bool { return len(r.Tokens) > 0 })
	if ofTokens && l == nil && s.Abilities().Sizes == nil {
		t.Fatal("documents of tokens have no lengths: give the shard Abilities.Lengths or Abilities.Sizes; " +
			"without them, sources need long_documents: consecutive")
	}
	if l == nil {
		return
	}
	for i, r := range all {
		if n, known := l.Length(uint64(i)); known && (r.Why != "" || n != uint32(len(r.Tokens))) {
			t.Fatalf("length of record %d is %d, want %v", i, n, r)
		}
	}
}

// places tests that the ids at a document's place are its tokens.
func (f Fixture) places(t *testing.T, s sources.Shard, all []record) {
	p := s.Abilities().Places
	if p == nil {
		return
	}
	for i, r := range all {
		at, ok := p.Place(uint64(i))
		if !ok {
			continue
		}
		var got []uint32
		for b := f.Files[f.Path][at.Offset:][:at.Tokens*at.Width]; len(b) > 0; b = b[at.Width:] {
			var id [8]byte
			copy(id[:], b[:at.Width])
			got = append(got, uint32(binary.LittleEndian.Uint64(id[:])))
		}
		if r.Why != "" || !slices.Equal(got, r.Tokens) {
			t.Fatalf("the place of record %d has %v, want %v", i, got, r)
		}
	}
	if _, ok := p.Place(uint64(len(all))); ok {
		t.Fatal("a record behind the last has a place")
	}
}

// pieces tests that parts of documents are the parts of whole ones.
func (f Fixture) pieces(t *testing.T, s sources.Shard, all []record) {
	r := s.Abilities().Pieces
	if r == nil {
		return
	}
	rng := rand.New(rand.NewPCG(3, 2))
	var parts []sources.DocumentPart
	for _, i := range sampleOf(all) {
		n := uint32(len(all[i].Tokens))
		length := 1 + rng.Uint32N(n/2+2)
		for start := uint32(0); start <= n+1; start += length {
			parts = append(
				parts,
				sources.DocumentPart{Record: uint64(i), Start: start, Length: length + rng.Uint32N(2)},
			)
		}
	}
	done := 0
	err := r.ReadPieces(t.Context(), parts, func(got sources.Record) error {
		p := parts[done]
		want, n := all[p.Record], uint32(len(all[p.Record].Tokens))
		done++
		if got.Err != nil || want.Why != "" {
			if want.Why == "" || got.Number != p.Record {
				t.Fatalf("part %+v is bad: %v, and the document is good", p, got.Err)
			}
			return nil
		}
		tokens := want.Tokens[min(p.Start, n):min(p.Start+p.Length, n)]
		if got.Number != p.Record || got.Start != p.Start || got.Total != n || !slices.Equal(got.Tokens, tokens) {
			t.Fatalf("part %+v is %+v, want %v of %d tokens", p, got, tokens, n)
		}
		return nil
	})
	if err != nil || done != len(parts) {
		t.Fatalf("%d of %d parts were read: %v", done, len(parts), err)
	}
	if r.ReadPieces(t.Context(), []sources.DocumentPart{{Record: uint64(len(all)), Length: 1}},
		func(sources.Record) error { return nil }) == nil {
		t.Fatal("read a part of a record behind the last without an error")
	}
}

func (f Fixture) concurrent(t *testing.T, s sources.Shard, all []record) {
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			var got []record
			var err error
			want := all[min(g, len(all)):]
			if g%2 == 0 && f.Seekable {
				var numbers []uint64
				for _, r := range want {
					numbers = append(numbers, r.Number)
				}
				got, err = read(t.Context(), s, numbers)
			} else {
				got, err = scan(t.Context(), s, uint64(g))
			}
			if err != nil || !slices.EqualFunc(got, want, record.equal) {
				t.Errorf("beside other readers: got %d records, %v, want the %d of a scan alone", len(got), err,
					len(want))
			}
		})
	}
	wait.Wait()
}

// stops tests that an error of the receiver ends the walk unchanged, and that a cancelled context ends it before the
// next record.
func (f Fixture) stops(t *testing.T, mk New, s sources.Shard, all []record) {
	t.Helper()
	walks := map[string]func(context.Context, func(sources.Record) error) error{
		"scan": func(ctx context.Context, fn func(sources.Record) error) error { return s.Scan(ctx, 0, fn) },
	}
	if f.Seekable {
		var numbers []uint64
		for _, r := range all {
			numbers = append(numbers, r.Number)
		}
		walks["read"] = func(ctx context.Context, fn func(sources.Record) error) error {
			return s.Read(ctx, numbers, fn)
		}
	}
	enough := errors.New("enough")
	for name, walk := range walks {
		for _, k := range sampleOf(all) {
			n := 0
			if err := walk(t.Context(), func(sources.Record) error {
				if n++; n == k+1 {
					return enough
				}
				return nil
			}); !errors.Is(err, enough) || n != k+1 {
				t.Fatalf("%s: the receiver failed at record %d: got %v after %d", name, k+1, err, n)
			}
			ctx, cancel := context.WithCancel(t.Context())
			n = 0
			err := walk(ctx, func(sources.Record) error {
				if n++; n == k+1 {
					cancel()
				}
				return nil
			})
			cancel()
			if n != k+1 || k+1 < len(all) && !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: cancelled at record %d: got %v after %d", name, k+1, err, n)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := scan(ctx, s, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("scan with a cancelled context: got %v", err)
	}
	if _, err := f.open(ctx, f.Files, mk, nil); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("open with a cancelled context: got %v", err)
	}
}

// troubles tests that short reads change nothing, and that the error of a failing disk is returned.
func (f Fixture) troubles(t *testing.T, mk New, blob []byte, all []record) {
	t.Helper()
	short := troubled{f.Files, func(o sources.OpenFile) sources.OpenFile { return shortFile{o} }}
	s, err := f.open(t.Context(), short, mk, nil)
	if err != nil {
		t.Fatalf("open with short reads: %v", err)
	}
	got, err := scan(t.Context(), s, 0)
	if err != nil {
		t.Fatalf("scan with short reads: %v", err)
	}
	same(t, "scan with short reads", got, all)
	broken := errors.New("input/output error")
	for after := range 12 {
		var left atomic.Int64
		left.Store(int64(after))
		s, err := f.open(t.Context(), troubled{f.Files, func(o sources.OpenFile) sources.OpenFile {
			return failingFile{o, &left, broken}
		}}, mk, blob)
		if err == nil {
			_, err = scan(t.Context(), s, 0)
		}
		if left.Load() < 0 && !errors.Is(err, broken) {
			t.Fatalf("the disk failed at read %d: got %v", after, err)
		}
	}
}
