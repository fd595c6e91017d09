package activity

import (
	"testing"
	"time"
)

// TestTheCurrentActivityTakesTheMostTime, also while it is under way, and reads are no decoding.
func TestTheCurrentActivityTakesTheMostTime(t *testing.T) {
	now := time.Unix(1000, 0)
	m := New(func() time.Time { return now })
	web, code := m.Source("web"), m.Source("code")
	code.Current()
	decode := web.Begin(Decode, "a.jsonl")
	read := web.Begin(Read, "a.jsonl")
	now = now.Add(3 * time.Second)
	if c := web.Current(); c.Kind != Read || c.Shard != "a.jsonl" || c.Source != "web" {
		t.Errorf("while a read hangs: %+v", c)
	}
	if c := m.Current("code"); c.Source != "web" {
		t.Errorf("a source that nothing is done for: %+v", c)
	}
	read.End(100)
	if before := decode.Turn(Tokenise); before != Decode {
		t.Errorf("the activity before was %q", before)
	}
	for range 3 {
		now = now.Add(time.Second)
		web.Current()
	}
	if c := web.Current(); c.Kind != Tokenise {
		t.Errorf("after seconds of tokenising: %+v", c)
	}
	decode.End(0)
	f := web.Figures()
	if f.Times[Read] != 3*time.Second || f.Times[Decode] != 0 || f.Times[Tokenise] != 3*time.Second ||
		f.Bytes != 100 {
		t.Errorf("the figures are %+v", f)
	}
	for range 3 {
		now = now.Add(time.Second)
		web.Current()
	}
	if c := m.Current("web"); c != (Current{}) {
		t.Errorf("an idle process does %+v", c)
	}
}

// TestTokensCountWhenTheyAreThere: an activity of minutes makes many documents. Its time counts meanwhile, and so do
// their tokens.
func TestTokensCountWhenTheyAreThere(t *testing.T) {
	now := time.Unix(1000, 0)
	web := New(func() time.Time { return now }).Source("web")
	decode := web.Begin(Decode, "a.jsonl")
	for i := range 3 {
		now = now.Add(time.Minute)
		decode.Made(100)
		if f := web.Figures(); f.Tokens != int64(100*(i+1)) || f.Documents != int64(i+1) ||
			f.Times[Decode] != time.Duration(i+1)*time.Minute {
			t.Errorf("after %d documents, the figures are %+v", i+1, f)
		}
	}
	before := web.Figures().Total()
	decode.End(0)
	if after := web.Figures(); after.Total() != before {
		t.Errorf("the end of the activity changes the figures from %+v to %+v", before, after)
	}
}

// TestIndexIsThePlaceInKinds, so that no two kinds share a counter.
func TestIndexIsThePlaceInKinds(t *testing.T) {
	for i, k := range Kinds() {
		if k.index() != i {
			t.Errorf("%s has index %d, want %d", k, k.index(), i)
		}
	}
	if len(Kinds()) != kinds {
		t.Errorf("%d kinds, want %d", len(Kinds()), kinds)
	}
}

// TestNilMeasuresNothing: a process without a meter runs the same code.
func TestNilMeasuresNothing(t *testing.T) {
	var m *Meter
	a := m.Source("web").Begin(Read, "x")
	if a.Turn(Decode) != Decode || m.Current("web") != (Current{}) || m.All() != nil {
		t.Error("a nil meter measures")
	}
	a.Made(1)
	a.End(1)
}

// BenchmarkTurn measures the cost of a document: two turns.
func BenchmarkTurn(b *testing.B) {
	a := New(time.Now).Source("web").Begin(Decode, "x")
	for b.Loop() {
		a.Turn(a.Turn(Tokenise))
	}
}
