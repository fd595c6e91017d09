package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace"
	"millrace/sources/read/budget"
	"millrace/sources/read/order"
)

// demand fetches random documents between two ordinals, by Fetch or FetchAgain, and compares them with the reference
// version.
func demand(t testing.TB, f *Feed, rnd *rand.Rand, docs []referenceDoc, from, until int) {
	t.Helper()
	var reqs []Request
	bad := map[millrace.Ordinal]bool{}
	for range rnd.IntN(12) + 1 {
		n := millrace.Ordinal(from + rnd.IntN(max(until-from, 1)))
		if int(n) >= len(docs) || !f.stripe.Has(n) {
			continue
		}
		size := uint32(len(docs[n].tokens))
		if docs[n].reject {
			size, bad[n] = 5, true
		}
		off := rnd.Uint32N(size + 1)
		reqs = append(reqs, Request{n, off, rnd.Uint32N(size - off + 1)}, Request{n, 0, size})
	}
	got := make([]bool, len(reqs))
	fetch := f.Fetch
	if rnd.IntN(4) == 0 {
		fetch = f.FetchAgain
	}
	err := fetch(context.Background(), reqs, func(i int, tokens []uint32, _ string) error {
		r := reqs[i]
		doc := docs[r.Ordinal].tokens
		if want := doc[r.Offset:min(int(r.Offset+r.Length)+1, len(doc))]; !slices.Equal(tokens, want) || got[i] {
			return fmt.Errorf("tokens of %+v: %v, want %v once", r, tokens, want)
		}
		got[i] = true
		return nil
	})
	var sample *SampleError
	if err != nil && !errors.As(err, &sample) || sample != nil && !bad[sample.Ordinal] || err == nil && len(bad) > 0 {
		t.Fatalf("fetch: %v, with bad %v", err, bad)
	}
	for i, r := range reqs {
		if !got[i] && !bad[r.Ordinal] {
			t.Fatalf("request %+v was not served", r)
		}
	}
}

// readsAtRandom reports whether a feed still reads requested documents at random.
func readsAtRandom(f *Feed) bool {
	f.mu.Lock()
	defer f.unlock()
	return f.shelf != nil
}

func newestSeekPoint(seekPoints []millrace.SeekPoint, n int) (a millrace.SeekPoint) {
	for _, x := range seekPoints {
		if int(x.Ordinal) <= n {
			a = x
		}
	}
	return a
}

// TestStandbySameTokens: a standby serves the documents of the reference version, before and after it follows, and
// after it is promoted. Then it offers the stream from its cursor on.
func TestStandbySameTokens(t *testing.T) {
	c := randomCorpus(11, 4, 60)
	c.shards[1] = append(c.shards[1], "", "bad", "s1 boom", "last")
	streamed := randomCorpus(12, 2, 40)
	streamed.add("stream.jsonl", "a", "bad", "c", "dd", "eee")
	for _, corpus := range []corpus{c, streamed} {
		dir := corpus.write(t)
		for _, shuffle := range shuffles() {
			for _, of := range []uint32{1, 3} {
				x := fixture{shuffle: shuffle, epochs: 2, limit: 300}
				s := x.open(t, dir)
				docs, seekPoints := referenceStream(corpus, x, s, 2)
				rnd := rand.New(rand.NewPCG(uint64(of), 5))
				for round := range 3 {
					name := fmt.Sprintf("%d shards/%s/of %d/round %d", len(corpus.shards), shuffle, of, round)
					src := s
					if round%2 == 0 { // a source without remembered blocks
						src = x.open(t, dir)
					}
					at := rnd.IntN(len(docs) / 2)
					f := New(src, Position{millrace.Ordinal(at), newestSeekPoint(seekPoints, at)},
						order.Stripe{Index: uint32(round) % of, Of: of},
						Config{Budget: budget.New(1 << 20), Parallel: 2, Standby: true})
					for range 5 {
						demand(t, f, rnd, docs, at, at+1+rnd.IntN(len(docs)))
						at = min(at+rnd.IntN(10), len(docs)-1)
						f.Follow(millrace.Ordinal(at), newestSeekPoint(seekPoints, at))
						if err := f.Warm(t.Context(), 1<<20); err != nil {
							t.Fatalf("%s: %v", name, err)
						}
					}
					stop := running(t, f)
					demand(t, f, rnd, docs, at, len(docs))
					f.Want(millrace.Ordinal(at + 40))
					for of == 1 && at+40 < len(docs) && readsAtRandom(f) { // until its spans hold most documents
						demand(t, f, rnd, docs, at, at+40)
					}
					drain(t, f, millrace.Ordinal(at), 40, docs)
					stop()
				}
			}
		}
	}
}

// TestStandbyReadsOnlyRequests: a standby reads no document before or after the requested ones.
func TestStandbyReadsOnlyRequests(t *testing.T) {
	c := randomCorpus(13, 4, 400)
	dir := c.write(t)
	for _, shuffle := range []millrace.Shuffle{millrace.Global} {
		x := fixture{shuffle: shuffle, epochs: 1, limit: 600}
		s := x.open(t, dir)
		docs, _ := referenceStream(c, x, s, 1)
		var made atomic.Int64
		f := New(s, Position{}, order.Stripe{}, Config{Standby: true, Progress: func() { made.Add(1) }})
		far := millrace.Ordinal(len(docs) - 10)
		ignore := func(int, []uint32, string) error { return nil }
		for range 3 {
			err := f.Fetch(t.Context(), []Request{{far, 0, 1}}, ignore)
			if err != nil && !errors.Is(err, millrace.ErrBadSample) {
				t.Fatal(err)
			}
		}
		if n := made.Load(); n > 1 {
			t.Errorf("%s: %d records were made for one, asked three times", shuffle, n)
		}
		made.Store(0)
		for range 3 {
			if err := f.Warm(t.Context(), 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		if n := made.Load(); n == 0 || n > warmRecords {
			t.Errorf("%s: %d records were made to keep the head warm", shuffle, n)
		}
		made.Store(0)
		if err := f.FetchAgain(t.Context(), []Request{{far, 0, 1}}, ignore); err != nil || made.Load() != 1 {
			t.Errorf("%s: read again: %v, %d records made", shuffle, err, made.Load())
		}
		f.Follow(far+1, millrace.SeekPoint{})
		if err := f.Fetch(t.Context(), []Request{{far, 0, 1}}, ignore); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("%s: a released document is served: %v", shuffle, err)
		}
	}
}

// TestAStandbyEndsAReadThatIsPassed: its cursor moves past the documents of a read at random while the read goes on.
func TestAStandbyEndsAReadThatIsPassed(t *testing.T) {
	c := randomCorpus(19, 2, 60)
	dir := c.write(t)
	for _, shuffle := range []millrace.Shuffle{millrace.Blocks, millrace.InFileOrder} {
		x := fixture{shuffle: shuffle, epochs: 1, limit: 300}
		s := x.open(t, dir)
		docs, seekPoints := referenceStream(c, x, s, 1)
		f := New(s, Position{}, order.Stripe{}, Config{Standby: true})
		if err := f.Warm(t.Context(), 1<<20); err != nil {
			t.Fatal(err)
		}
		past := seekPoints[len(seekPoints)-1]
		if past.Ordinal == 0 || int(past.Ordinal) >= len(docs) {
			t.Fatalf("%s: the last block begins at %d of %d", shuffle, past.Ordinal, len(docs))
		}
		read := make(chan error, 1)
		f.shelf.clear()
		f.Follow(past.Ordinal, past)
		go func() { read <- f.readRandom(t.Context(), f.shelf, []wanted{{ordinal: 0}}, nil) }() // waited for below
		select {
		case err := <-read:
			if !errors.Is(err, errPassed) || !errors.Is(err, millrace.ErrInvalid) {
				t.Errorf("%s: %v, want %v", shuffle, err, errPassed)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the read goes on for ever", shuffle)
		}
		if err := f.Warm(t.Context(), 1<<20); err != nil {
			t.Errorf("%s: then %v", shuffle, err)
		}
	}
}

// TestNoTokensBeforeARequest: if lengths are known, a feed makes offers without tokens. It makes the first requested
// documents alone, and then reads ahead. All of them equal the reference version.
func TestNoTokensBeforeARequest(t *testing.T) {
	c := randomCorpus(17, 4, 400)
	x := fixture{shuffle: millrace.Global, epochs: 2, limit: 600, index: t.TempDir()}
	dir := c.write(t)
	s := x.open(t, dir)
	docs, _ := referenceStream(c, x, s, 2)
	learn := New(s, Position{}, order.Stripe{}, Config{})
	stop := running(t, learn)
	drain(t, learn, 0, len(docs), docs)
	stop()

	var made atomic.Int64
	f := New(s, Position{}, order.Stripe{}, Config{Budget: budget.New(1 << 20), Progress: func() { made.Add(1) }})
	defer running(t, f)()
	f.Want(millrace.Ordinal(len(docs)))
	for end := false; !end; {
		b, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		end = b.End
	}
	if n := made.Load(); n > 0 {
		t.Errorf("%d records were made before the first request", n)
	}
	rnd := rand.New(rand.NewPCG(17, 5))
	for range 50 {
		demand(t, f, rnd, docs, 0, len(docs))
	}
	for readsAtRandom(f) { // until its spans hold most documents
		demand(t, f, rnd, docs, 0, 40)
	}
	demand(t, f, rnd, docs, 0, len(docs))
}

// TestAKnownBlockIsNotReadBeforeARequest: the offers of one document of a shard make its block known. A feed of a later
// run offers the whole block without reading it.
func TestAKnownBlockIsNotReadBeforeARequest(t *testing.T) {
	c := randomCorpus(21, 1, 60)
	dir := c.write(t)
	x := fixture{shuffle: millrace.Blocks, epochs: 1, limit: 1 << 20, index: t.TempDir()}
	s := x.open(t, dir)
	docs, _ := referenceStream(c, x, s, 1)
	learn := New(s, Position{}, order.Stripe{}, Config{})
	stop := running(t, learn)
	learn.Want(1)
	if _, err := learn.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = x.open(t, dir)
	if _, _, known, _ := s.BlockAt(millrace.SeekPoint{}); !known {
		t.Fatal("the block is not known after a run that read it")
	}
	var made atomic.Int64
	f := New(s, Position{}, order.Stripe{}, Config{Progress: func() { made.Add(1) }})
	defer running(t, f)()
	f.Want(millrace.Ordinal(len(docs)))
	for offered := 0; offered < len(docs); {
		b, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		offered += len(b.Offers)
	}
	if n := made.Load(); n > 0 {
		t.Errorf("%d records were made before the first request", n)
	}
	demand(t, f, rand.New(rand.NewPCG(21, 5)), docs, 0, len(docs))
}

// TestFirstStepNeedsNoOtherLengths: before the first fetch, a feed without known lengths makes the wanted documents and
// no others.
func TestFirstStepNeedsNoOtherLengths(t *testing.T) {
	var c corpus
	for i := range 4 {
		var lines []string
		for r := range 500 {
			lines = append(lines, fmt.Sprintf("s%d r%d", i, r))
		}
		c.add(fmt.Sprintf("part-%d.jsonl", i), lines...)
	}
	s := fixture{shuffle: millrace.Global}.open(t, c.write(t))
	var made atomic.Int64
	f := New(s, Position{}, order.Stripe{}, Config{Budget: budget.New(1 << 20), Progress: func() { made.Add(1) }})
	defer running(t, f)()
	offered := 0
	for _, want := range []int{3, 10, 400} {
		f.Want(millrace.Ordinal(want))
		for offered < want {
			b, err := f.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			offered += len(b.Offers)
		}
		if n := made.Load(); n != int64(want) {
			t.Errorf("%d documents were made for the lengths of %d", n, want)
		}
	}
}

// TestWarmEndsWithItsBytes: a standby makes no more documents at its cursor than have about the given bytes of tokens,
// and at least one.
func TestWarmEndsWithItsBytes(t *testing.T) {
	c := corpus{}
	line := strings.Repeat("x", 100)
	c.add("stream.jsonl", line, line, line, line)
	for _, want := range []int{1, 2} {
		var made atomic.Int32
		s := fixture{shuffle: millrace.Blocks, limit: 1 << 20}.open(t, c.write(t))
		f := New(s, Position{}, order.Stripe{}, Config{Standby: true, Progress: func() { made.Add(1) }})
		if err := f.Warm(t.Context(), int64(want-1)*4*110+1); err != nil {
			t.Fatal(err)
		}
		if n := int(made.Load()); n != want {
			t.Errorf("%d documents were made, want %d", n, want)
		}
	}
}
