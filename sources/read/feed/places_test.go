package feed

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/read/order"
)

// Place implements sources.Placer: an id is one byte.
func (s fakePieces) Place(record uint64) (sources.DocumentPlace, bool) {
	return sources.DocumentPlace{Offset: s.offs[record], Tokens: uint32(s.lens[record]), Width: 1}, s.lens[record] != 31
}

// readPlaces reads the placed requests from their files.
func readPlaces(t *testing.T, placed []Placed, got [][]uint32) {
	t.Helper()
	for _, p := range placed {
		data, err := os.ReadFile(p.Path)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := sources.OSFS().Identity(p.Path); err != nil || id != p.Identity || p.Width != 1 {
			t.Fatalf("%s is %+v with ids of %d bytes: %v", p.Path, p.Identity, p.Width, err)
		}
		for k, i := range p.Requests {
			got[i] = []uint32{}
			for _, b := range data[p.Offsets[k] : p.Offsets[k]+int64(p.Counts[k])] {
				got[i] = append(got[i], uint32(b))
			}
		}
	}
}

// TestPlacesHaveTheTokensOfFetch: each request has a place with its tokens, or is left for Fetch.
func TestPlacesHaveTheTokensOfFetch(t *testing.T) {
	c := longCorpus(false)
	x := fixture{
		format:  fakeFormat{lengths: true, pieces: true},
		shuffle: millrace.Global,
		epochs:  2,
		index:   t.TempDir(),
	}
	src := x.open(t, c.write(t))
	for _, piece := range []uint32{16, 1000} {
		s, err := src.InPieces(t.Context(), piece)
		if err != nil {
			t.Fatal(err)
		}
		docs := pieceStream(c, x, piece, 2)
		rnd := rand.New(rand.NewPCG(3, 4))
		var reqs []Request
		for n := range docs {
			if d := &docs[n]; d.end() > d.start {
				off := d.start + rnd.Uint32N(d.end()-d.start)
				reqs = append(reqs, Request{millrace.Ordinal(n), off, 1 + rnd.Uint32N(d.end()-off)})
			}
		}
		f := New(s, Position{}, order.Stripe{}, Config{})
		placed, rest := f.Places(t.Context(), reqs)
		got := make([][]uint32, len(reqs))
		readPlaces(t, placed, got)
		for i, r := range reqs {
			doc := docs[r.Ordinal].tokens
			if len(doc) == 31 != slices.Contains(rest, i) {
				t.Errorf("request %d, of a document with %d tokens, is left: %v", i, len(doc), len(doc) != 31)
			}
			want := doc[r.Offset:min(int(r.Offset+r.Length)+1, len(doc))]
			if len(doc) != 31 && !slices.Equal(got[i], want) {
				t.Fatalf("the place of %+v has %v, want %v", r, got[i], want)
			}
		}
	}
}

// TestNoPlaces: a request that Fetch refuses, or that is of a source of text, has no place.
func TestNoPlaces(t *testing.T) {
	c := longCorpus(false)
	x := fixture{format: fakeFormat{lengths: true, pieces: true}, shuffle: millrace.Global, epochs: 1}
	good := Request{Ordinal: 2, Length: 1}
	for name, reqs := range map[string][]Request{
		"released":         {good, {Ordinal: 1, Length: 1}},
		"past the end":     {good, {Ordinal: millrace.Ordinal(c.total()), Length: 1}},
		"another stripe's": {{Ordinal: millrace.StripeRun, Length: 1}},
	} {
		f := New(x.open(t, c.write(t)), Position{Ordinal: 2}, order.Stripe{Of: 2}, Config{})
		if placed, rest := f.Places(t.Context(), reqs); len(placed) > 0 || len(rest) != len(reqs) {
			t.Errorf("%s: %+v, %v", name, placed, rest)
		}
	}
	f := New(x.open(t, c.write(t)), Position{Ordinal: 2}, order.Stripe{}, Config{})
	if _, rest := f.Places(t.Context(), []Request{good, {Ordinal: 3, Length: 1 << 20}}); !slices.Equal(rest, []int{1}) {
		t.Errorf("a request beyond its document: %v is left", rest)
	}
	for _, x := range []fixture{
		{shuffle: millrace.Global, epochs: 1},
		{format: x.format, shuffle: millrace.InFileOrder, epochs: 1},
	} {
		f := New(x.open(t, c.write(t)), Position{}, order.Stripe{}, Config{})
		if placed, _ := f.Places(t.Context(), []Request{{Ordinal: 2, Length: 1}}); len(placed) > 0 {
			t.Errorf("%+v: %+v", x, placed)
		}
	}
}

// TestPlacedTokensAreNotMade: a feed whose requests have places reads no document ahead. After a Fetch it does.
func TestPlacedTokensAreNotMade(t *testing.T) {
	c := longCorpus(false)
	x := fixture{format: fakeFormat{lengths: true, pieces: true}, shuffle: millrace.Global, epochs: 4}
	f := New(x.open(t, c.write(t)), Position{}, order.Stripe{}, Config{})
	stop := running(t, f)
	defer stop()
	held := func() (n int) {
		f.mu.Lock()
		defer f.unlock()
		for _, p := range f.ahead.queue.spans {
			if p.held || p.phase == making {
				n++
			}
		}
		return n
	}
	var last []Request
	for f.Want(64); len(last) < 8; {
		b, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range b.Offers {
			if n := o.Lengths.Tokens; n > 0 && n != 31 {
				last = append(last, Request{o.Ordinal, 0, n})
			}
		}
	}
	if _, rest := f.Places(t.Context(), last); len(rest) > 0 {
		t.Fatalf("%v have no place", rest)
	}
	f.Want(128)
	for seen := 64; seen < 128; {
		b, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen += len(b.Offers)
	}
	if n := held(); n > 0 {
		t.Errorf("%d spans were made", n)
	}
	if err := f.Fetch(t.Context(), last[:1], func(int, []uint32, string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for held() == 0 {
		f.Want(256)
		if _, err := f.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Abilities implements sources.Shard.
func (s fakePieces) Abilities() sources.Abilities {
	return sources.Abilities{Lengths: s, Pieces: s, Places: s}
}

// Abilities implements sources.Shard.
func (s *fakeShard) Abilities() sources.Abilities { return sources.Abilities{} }
