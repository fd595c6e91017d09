package recent

import (
	"testing"

	"millrace"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed/decode"
)

// TestTakesOnlySpareRoom: documents of all holders together take at most a quarter of the limit, and nothing once the
// feeds have all of it. A feed is never refused because of them.
func TestTakesOnlySpareRoom(t *testing.T) {
	const limit = 1 << 20
	b := budget.New(limit)
	s := New(b, decode.Store{})
	quota := b.Open(func() {})
	holders := make([]*int, 300)
	for i := range holders {
		holders[i] = new(int)
		for n := range 10 {
			s.Put(holders[i], millrace.Ordinal(n), Document{Tokens: make([]uint32, 1000)})
		}
		if s.size > limit/4 {
			t.Fatalf("%d holders take %d bytes, more than a quarter of %d", i+1, s.size, limit)
		}
	}
	last := holders[len(holders)-1]
	if _, ok := s.Get(last, 9); !ok {
		t.Error("the newest document is gone")
	}
	if _, ok := s.Get(holders[0], 0); ok {
		t.Error("the oldest document is still kept")
	}
	s.Release(last, 5)
	if _, ok := s.Get(last, 4); ok {
		t.Error("a released document is still kept")
	}
	if _, ok := s.Get(last, 5); !ok {
		t.Error("a document that was not released is gone")
	}
	if !quota.Take(limit - 1000) {
		t.Fatal("the budget refused a feed because of spare memory")
	}
	if s.size > 1000 {
		t.Errorf("%d bytes are kept beside feeds that leave 1000", s.size)
	}
	quota.Force(1000)
	if s.Put(last, 99, Document{Tokens: make([]uint32, 8)}); s.size != 0 || len(s.documents) != 0 ||
		s.byAge.Len() != 0 {
		t.Errorf("%d bytes are kept beside feeds that leave none", s.size)
	}
}
