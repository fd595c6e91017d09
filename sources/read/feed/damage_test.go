package feed

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/facts/identity"
	"millrace/sources/facts/kept"
	"millrace/sources/read/order"
)

// holedFS loses the bytes behind an offset as soon as the test sets it.
type holedFS struct{ from atomic.Int64 }

type holedFile struct {
	sources.OpenFile
	fs *holedFS
}

func (*holedFS) Identity(path string) (identity.File, error) { return sources.OSFS().Identity(path) }

func (h *holedFS) Open(path string) (sources.OpenFile, error) {
	f, err := sources.OSFS().Open(path)
	return &holedFile{f, h}, err
}

func (f *holedFile) ReadAt(p []byte, off int64) (int, error) {
	if from := f.fs.from.Load(); from > 0 && off+int64(len(p)) > from {
		return 0, io.EOF
	}
	return f.OpenFile.ReadAt(p, off)
}

// TestDamageAfterLengths: if lengths are known, damaged records are bad one by one, and all others are served, by a
// primary and by a standby. If lengths are not known, a damaged file ends the feed.
func TestDamageAfterLengths(t *testing.T) {
	c := corpus{}
	c.add("a.jsonl", "one", "two", "three", "four", "five")
	const whole = 3 // records before the damage
	for _, known := range []bool{true, false} {
		for _, standby := range []bool{false, true} {
			fs := &holedFS{}
			x := fixture{shuffle: millrace.Global, epochs: 1, fs: fs}
			if known {
				x.index = t.TempDir()
			}
			s := x.open(t, c.write(t))
			if known {
				var found []kept.Length
				for i, n := range []uint32{4, 4, 6, 5, 5} {
					found = append(found, kept.Length{Record: uint64(i), Tokens: n})
				}
				s.Remember(0, found)
			}
			if _, err := s.Acquire(t.Context(), 0); err != nil { // open it before the damage
				t.Fatal(err)
			}
			fs.from.Store(int64(len("one\ntwo\nthree\n")))
			served, bad, err := serveAll(t, s, standby)
			if !known && !standby {
				if !errors.Is(err, millrace.ErrDamaged) {
					t.Errorf("lengths were not known: %v", err)
				}
				continue
			}
			slices.Sort(served)
			slices.Sort(bad)
			if !slices.Equal(served, []uint64{0, 1, 2}) || !slices.Equal(bad, []uint64{whole, whole + 1}) {
				t.Errorf("known %v, standby %v: served %v, bad %v: %v", known, standby, served, bad, err)
			}
		}
	}
}

// serveAll requests the first tokens of every document. It returns the served records and the bad ones.
func serveAll(t *testing.T, s *sources.Source, standby bool) (served, bad []uint64, err error) {
	ctx, cancel := context.WithCancel(t.Context())
	f := New(s, Position{}, order.Stripe{}, Config{Standby: standby})
	ran := make(chan error, 1)
	go func() {
		if standby {
			<-ctx.Done()
		} else {
			f.Want(s.Global().End())
			ran <- f.Run(ctx)
		}
		close(ran)
	}()
	walk := s.Global().Lookup()
	var reqs []Request
	for n := range s.Global().End() {
		reqs = append(reqs, Request{Ordinal: n, Length: 2})
	}
	record := func(n millrace.Ordinal) uint64 { _, id := walk.At(n); return id.Record }
	err = f.Fetch(ctx, reqs,
		func(i int, _ []uint32, _ string) error { served = append(served, record(reqs[i].Ordinal)); return nil })
	for _, e := range samplesOf(err) {
		bad = append(bad, record(e.Ordinal))
	}
	cancel()
	<-ran
	return served, bad, err
}

// samplesOf returns the bad samples of a joined error.
func samplesOf(err error) (out []*SampleError) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			out = append(out, samplesOf(e)...)
		}
	} else if sample := (*SampleError)(nil); errors.As(err, &sample) {
		out = append(out, sample)
	}
	return out
}
