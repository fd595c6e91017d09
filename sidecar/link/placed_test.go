package link

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace"
	"millrace/proto"
)

// testFiles are files whose ids testFiles knows from the places: the offset is the first id.
type testFiles struct {
	mu    sync.Mutex
	fails error // of every read
	takes time.Duration
	reads int // rows
}

// Read implements Files.
func (f *testFiles) Read(_ context.Context, rows *proto.PlacedRows, into func(int) []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	time.Sleep(f.takes)
	if f.fails != nil {
		return f.fails
	}
	for k := range rows.Row {
		b := into(k)
		if len(b) != 2*int(rows.Count[k]) {
			return errors.New("the room has another size")
		}
		for t := range rows.Count[k] {
			binary.LittleEndian.PutUint16(b[2*t:], uint16(rows.Offset[k])+uint16(t))
		}
		f.reads++
	}
	return nil
}

// placedOf is a reply with the place of a row. Its ids fit in 16 bits.
func placedOf(r *proto.FetchReply) *proto.FetchReply {
	first := idsOf(r)[0]
	return &proto.FetchReply{Placed: []*proto.PlacedRows{{
		Path: "/data/a.bin", Width: 2, Row: r.Row, Count: r.Count, Offset: []uint64{uint64(first)},
	}}}
}

// inPlace returns a world with one loader, whose odd documents lie in a file, and a plan over them.
func inPlace(t *testing.T) (*world, *store, *millrace.Plan) {
	w, x := newWorld(t, 1)
	x.welcome("code")
	s := newStore(w, "l0", 0, 3)
	s.lies = func(ordinal uint64) bool { return ordinal%2 == 1 }
	x.directory(stripe("code", 0, 1, 3, "l0"))
	eventually(t, func() bool { return w.link.dir.served("code") == 1 })
	p := &millrace.Plan{Stream: millrace.Train, Attempt: 1, Ranks: 1, Microbatches: 1}
	for i := range uint64(12) {
		p.Assignments = append(p.Assignments, millrace.Assignment{Row: uint32(i), Segment: millrace.Segment{
			Ordinal: millrace.Ordinal(i), Offset: uint32(i), Length: uint32(1 + i%5), More: i%3 == 0,
		}})
	}
	s.more = func(ordinal uint64) bool { return ordinal%3 == 0 }
	return w, s, p
}

// TestRowsAreReadInPlace: the payload is the one of a loader that sends every row.
func TestRowsAreReadInPlace(t *testing.T) {
	w, s, p := inPlace(t)
	payload, err := w.fetch(p)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, p, payload, true)
	if w.files.reads != 6 || s.calls.Load() != 1 {
		t.Errorf("%d rows were read in place, %d requests", w.files.reads, s.calls.Load())
	}
}

// TestTheLoaderSendsWhatCannotBeReadInPlace: at once, and for a while without a place.
func TestTheLoaderSendsWhatCannotBeReadInPlace(t *testing.T) {
	w, s, p := inPlace(t)
	w.files.fails = errors.New("the file has another identity")
	for n, want := range [][][]uint64{
		{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {1, 3, 5, 7, 9, 11}},
		{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
	} {
		payload, err := w.fetch(p)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, p, payload, true)
		if got := s.requests(); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("fetch %d asked for %v, want %v", n, got, want)
		}
		s.set(func() { s.asked = nil })
	}
	for _, r := range s.reqs[1:] {
		if r.InPlace {
			t.Errorf("%v may be read in place", r)
		}
	}
}

// TestSlowReadsAreLeftToTheLoader: the rows that were read slowly count, and the loader sends the next ones.
func TestSlowReadsAreLeftToTheLoader(t *testing.T) {
	w, s, p := inPlace(t)
	w.files.takes = slowLeast + 12*slowRow + time.Millisecond
	for range 2 {
		payload, err := w.fetch(p)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, p, payload, true)
	}
	first, second := s.reqs[0], s.reqs[1]
	if w.files.reads == 0 || s.calls.Load() != 2 || !first.InPlace || second.InPlace {
		t.Errorf("%d rows were read in place; the requests are %v and %v", w.files.reads, first, second)
	}
}

// TestADocumentThatTheLoaderCannotReadEither is masked, as if it had never been placed.
func TestADocumentThatTheLoaderCannotReadEither(t *testing.T) {
	w, s, p := inPlace(t)
	w.files.fails = errors.New("the file has another identity")
	s.fault = func(answered int) error {
		if answered > 11 { // never: the first request has twelve rows
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.asked) > 1 {
			return millrace.Errorf(millrace.ErrMismatch, "file /data/a.bin changed while it was read")
		}
		return nil
	}
	_, err := w.fetch(p)
	if !errors.Is(err, millrace.ErrMismatch) || !strings.Contains(err.Error(), "changed while it was read") {
		t.Error(err)
	}
}

// TestWrongPlacesEndTheFetch: each is an error, and nothing is read.
func TestWrongPlacesEndTheFetch(t *testing.T) {
	for name, spoil := range map[string]func(*proto.PlacedRows){
		"another row":    func(r *proto.PlacedRows) { r.Row[0] = 99 },
		"a longer row":   func(r *proto.PlacedRows) { r.Count[0]++ },
		"a shorter row":  func(r *proto.PlacedRows) { r.Count[0] = 0 },
		"no offset":      func(r *proto.PlacedRows) { r.Offset = nil },
		"no row":         func(r *proto.PlacedRows) { r.Row, r.Count, r.Offset = nil, nil, nil },
		"another width":  func(r *proto.PlacedRows) { r.Width = 4 },
		"a row that was": func(r *proto.PlacedRows) { r.Row[0] = 1 },
	} {
		w, s, p := inPlace(t)
		for i := range p.Assignments { // so that rows have equal lengths
			p.Assignments[i].Length, p.Assignments[i].More = 3, false
		}
		s.more, s.lies = nil, func(uint64) bool { return true }
		s.spoil = func(r *proto.FetchReply) *proto.FetchReply {
			if r.Placed[0].Row[0] == 5 {
				spoil(r.Placed[0])
			}
			return r
		}
		if _, err := w.fetch(p); !errors.Is(err, millrace.ErrMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestALoaderOfAnotherHostNamesNoPlaces: its call has no memory for rows that are read in place.
func TestALoaderOfAnotherHostNamesNoPlaces(t *testing.T) {
	c, plan, _ := three()
	places := placedOf(rowOf(0, 1, 2, 3)).Placed[0]
	if err := c.checkPlaced(plan, places); err != nil {
		t.Fatal(err)
	}
	c.tokens = nil
	if err := c.checkPlaced(plan, places); !errors.Is(err, millrace.ErrMismatch) {
		t.Errorf("got %v", err)
	}
}
