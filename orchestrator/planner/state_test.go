package planner_test

import (
	"errors"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/plannertest"
	"slices"
	"strings"
	"testing"

	"millrace"
)

// bigState is about as long as a state gets: 64 sources, trillions of tokens, every one with a seek point.
func bigState() planner.State {
	st := planner.NewState(64)
	st.Step = 3_000_000
	for i := range st.Sources {
		deficit := int64(1) << 54
		if i%2 == 0 {
			deficit = -deficit
		}
		st.Sources[i] = planner.SourceState{
			Ordinal: 123_456_789_012, Offset: 1<<24 - 1, Epoch: 1234, Tokens: 98_765_432_109_876, Samples: 123_456_700_000, Deficit: deficit, Finished: i%3 == 0,
			SeekPoint: millrace.SeekPoint{Ordinal: 123_456_700_000, Epoch: 1234, EpochStart: 123_400_000_000, Shard: 99_999, Block: 123_456, Record: 9_999_999_999},
		}
		st.Tokens += st.Sources[i].Tokens
	}
	return st
}

// hugeState has the widest numbers that fit, everywhere.
func hugeState() planner.State {
	st := planner.NewState(64)
	st.Step, st.Tokens = 1<<64-1, 1<<64-1
	for i := range st.Sources {
		deficit := int64(1)<<62 - 1
		if i%2 == 0 {
			deficit = -deficit
		}
		st.Sources[i] = planner.SourceState{Ordinal: 1<<64 - 1, Offset: 1<<32 - 1, Epoch: 1<<32 - 1, Tokens: 1<<58 - 1, Deficit: deficit, Finished: true,
			SeekPoint: millrace.SeekPoint{Ordinal: 1 << 63, Shard: 1<<32 - 1, Block: 1<<32 - 1, Record: 1<<64 - 1}}
	}
	return st
}

// carrying has as much more as a state may have: a window under way and 512 carried segments, with wide numbers.
func carrying(st planner.State) planner.State {
	st.Done = planner.Done{Steps: 63, Tokens: min((1<<64-1)-st.Tokens, 1<<40)}
	st.Tokens += st.Done.Tokens
	for i := range millrace.MostCarried {
		at := &st.Sources[i/8]
		st.Carried = append(st.Carried, planner.Carried{Source: uint32(i / 8), Ordinal: at.Ordinal - 1_000_000 + millrace.Ordinal(i%8)*20_000, Offset: 1 << 20, Length: 1 << 20, Age: 8, More: i%2 == 0})
	}
	for i := range st.Sources {
		st.Sources[i].SeekPoint.Ordinal = min(st.Sources[i].SeekPoint.Ordinal, st.Floor(i))
	}
	return st
}

// mostState is the part of CONTRACT §5's 16 KiB that the planner may take: the rest are names, identity and files.
const mostState = 16<<10 - 512

func TestStateRoundTripAndSize(t *testing.T) {
	for _, c := range []struct {
		st   planner.State
		most int // bytes of a source beside the 40 of the rest
	}{{planner.NewState(1), 10}, {planner.NewState(3), 10}, {bigState(), 67}, {hugeState(), 128}, {carrying(bigState()), 178}, {carrying(hugeState()), mostState/64 - 1}} {
		text := c.st.Compact()
		back, err := planner.ParseState(text)
		if err != nil || !back.Equal(c.st) || back.Compact() != text {
			t.Fatalf("%.999s comes back as %.999s: %v", c.st, back, err)
		}
		if most := 40 + c.most*len(c.st.Sources); len(text) > most {
			t.Errorf("%d bytes with %d sources, want at most %d", len(text), len(c.st.Sources), most)
		}
		clone := c.st.Clone()
		clone.Sources[0].Tokens++
		if clone.Equal(c.st) {
			t.Error("a clone shares its sources")
		}
	}
}

// resum writes a state's bytes with the sum that they need.
func resum(body []byte) string {
	return planner.CompactText().EncodeToString(append(body, planner.Sum(body)...))
}

func TestStateRefused(t *testing.T) {
	st := planner.NewState(2)
	st.Step, st.Tokens = 3, 7
	st.Sources[0] = planner.SourceState{Ordinal: 4, Tokens: 7, Samples: 3, Deficit: 5}
	st.Sources[1] = planner.SourceState{Deficit: -5}
	edit := func(change func(*planner.State)) string {
		s := st.Clone()
		change(&s)
		return s.Compact()
	}
	text := st.Compact()
	good, _ := planner.CompactText().DecodeString(text)
	good = good[:len(good)-planner.SumBytes]
	for _, c := range []struct{ name, text, want string }{
		{"as it is", text, ""},
		{"empty", "", "it is not one"},
		{"no base64", "{}", "it is not one"},
		{"cut off", text[:len(text)-4], "cut off"},
		{"edited", "B" + text[1:], "its sum does not match"},
		{"version 1", edit(func(s *planner.State) { s.Version = 1 }), ""},
		{"version 1 carries nothing", edit(func(s *planner.State) { s.Version, s.Carried = 1, []planner.Carried{{Ordinal: 2, Length: 3}} }), "other numbers"},
		{"carried twice", edit(func(s *planner.State) {
			s.Carried = []planner.Carried{{Ordinal: 2, Length: 3}, {Ordinal: 2, Length: 3}}
		}), "out of order"},
		{"carried nothing", edit(func(s *planner.State) { s.Carried = []planner.Carried{{Ordinal: 2}} }), "not drawn yet"},
		{"carried of the cursor's document", edit(func(s *planner.State) { s.Carried = []planner.Carried{{Ordinal: 4, Length: 3}} }), "not drawn yet"},
		{"seek point above what is carried", edit(func(s *planner.State) {
			s.Carried, s.Sources[0].SeekPoint = []planner.Carried{{Ordinal: 2, Length: 3}}, millrace.SeekPoint{Ordinal: 3}
		}), "its seek point at 3"},
		{"more done than there was", edit(func(s *planner.State) { s.Done = planner.Done{Steps: 4} }), "of its window are done"},
		{"carried beyond the sources", resum(append(good[:len(good):len(good)], 0, 0, 1, planner.CarriedNext, 9, 1, 1)), "other numbers"},
		{"half of something carried", resum(append(good[:len(good):len(good)], 0, 0, 1, planner.CarriedNext)), "other numbers"},
		{"nothing in nothing", resum(append(good[:len(good):len(good)], 0, 0, 0)), "other numbers"},
		{"another version", edit(func(s *planner.State) { s.Version = 3 }), "planner version 3, this binary plans version 2: go on with the program that saved it"},
		{"deficits", edit(func(s *planner.State) { s.Sources[1].Deficit = -6 }), "deficits"},
		{"tokens", edit(func(s *planner.State) { s.Tokens = 6 }), "placed 7 tokens"},
		{"seek point behind", edit(func(s *planner.State) { s.Sources[0].SeekPoint.Ordinal = 5 }), "other numbers"},
		{"epoch from behind its seek point", edit(func(s *planner.State) { s.Sources[0].SeekPoint = millrace.SeekPoint{Ordinal: 2, EpochStart: 3} }), "other numbers"},
		{"something follows", resum(append(good[:len(good):len(good)], 0)), "other numbers"},
		{"a number is missing", resum(good[:len(good)-1]), "other numbers"},
		{"more sources than there are", resum([]byte{1, 3, 7, 200}), "other numbers"},
	} {
		if _, err := planner.ParseState(c.text); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if err := planner.NewState(2).Validate(3); !errors.Is(err, millrace.ErrMismatch) {
		t.Errorf("another number of sources: %v", err)
	}
}

// FuzzParseState: whatever has a right sum is refused, or goes on as a state that is written back as it was.
func FuzzParseState(f *testing.F) {
	for _, st := range []planner.State{planner.NewState(0), planner.NewState(3), bigState(), hugeState(), carrying(bigState())} {
		b, _ := planner.CompactText().DecodeString(st.Compact())
		f.Add(b[:len(b)-planner.SumBytes])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		st, err := planner.ParseState(resum(body))
		if err != nil {
			return
		}
		if again, err := planner.ParseState(st.Compact()); err != nil || !again.Equal(st) {
			t.Errorf("%s comes back as %s: %v", st, again, err)
		}
	})
}

// anchored is a corpus in blocks of ten ordinals.
type anchored struct{ *plannertest.Corpus }

func (a anchored) SeekPoint(source int, at millrace.Ordinal) millrace.SeekPoint {
	start := at - at%10
	return millrace.SeekPoint{Ordinal: start, Block: uint32(start / 10), Record: 1}
}

func TestSeekPointsFollowTheCursor(t *testing.T) {
	spec := plannertest.NewSpec(t, 10, 4, "1")
	docs := make([]millrace.SampleMeta, 100)
	for i := range docs {
		docs[i] = plannertest.Document(i, 10)
	}
	steps, _, err := plannertest.Collect(t, spec, planner.NewState(1), anchored{&plannertest.Corpus{Docs: [][]millrace.SampleMeta{docs}, Epochs: []uint64{1}}}, 7)
	if err != nil {
		t.Fatal(err)
	}
	if src := steps[6].After.Sources[0]; src.Ordinal != 28 || src.SeekPoint.Ordinal != 20 || src.SeekPoint.Block != 2 {
		t.Errorf("after 28 documents the state is %+v", src)
	}
}

func TestAdapt(t *testing.T) {
	st := planner.NewState(3)
	st.Step, st.Tokens = 9, 60
	st.Sources[0] = planner.SourceState{Ordinal: 7, Offset: 64, Tokens: 10, Samples: 8, Deficit: -70, SeekPoint: millrace.SeekPoint{Ordinal: 5}}
	st.Sources[1] = planner.SourceState{Ordinal: 3, Tokens: 20, Samples: 3, Deficit: 30, Finished: true}
	st.Sources[2] = planner.SourceState{Ordinal: 4, Offset: 1, Tokens: 30, Samples: 5, Deficit: 40}
	same := st.Adapt([]planner.Fit{{From: 0}, {From: 1}, {From: 2}})
	if !same.Equal(st) {
		t.Errorf("nothing changed, and it is %s", same)
	}
	for _, c := range []struct {
		name string
		fits []planner.Fit
		want string
	}{
		{"another document", []planner.Fit{{From: 0, Other: true}, {From: 1, Other: true}, {From: 2}}, "[8,0,0,10,8,-70,0],[3,0,0,20,3,30,1],[4,1,0,30,5,40,0]"},
		{"another end", []planner.Fit{{From: 0, Other: true}, {From: 1, Again: true}, {From: 2}}, "[8,0,0,10,8,-70,0],[3,0,0,20,3,30,0],[4,1,0,30,5,40,0]"},
		{"added", []planner.Fit{{From: -1}, {From: 0, Other: true}, {From: 1}, {From: 2}}, "[0,0,0,0,0,0,0],[8,0,0,10,8,-70,0],[3,0,0,20,3,30,1],[4,1,0,30,5,40,0]"},
		{"removed: who has not left gets it", []planner.Fit{{From: 1}, {From: 2}}, "[3,0,0,20,3,30,1],[4,1,0,30,5,-30,0]"},
		{"removed: evenly", []planner.Fit{{From: 0, Other: true}, {From: 1, Again: true}}, "[8,0,0,10,8,-50,0],[3,0,0,20,3,50,0]"},
		{"removed: all who stay have left", []planner.Fit{{From: 1}}, "[3,0,0,20,3,0,1]"},
		{"replaced by others", []planner.Fit{{From: -1}, {From: -1}}, "[0,0,0,0,0,0,0],[0,0,0,0,0,0,0]"},
		{"in another order", []planner.Fit{{From: 2}, {From: -1}, {From: 1}}, "[4,1,0,30,5,-30,0],[0,0,0,0,0,0,0],[3,0,0,20,3,30,1]"},
	} {
		got := st.Adapt(c.fits)
		if want := `{"planner":2,"step":9,"tokens":60,"sources":[` + c.want + `]}`; got.String() != want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, want)
		}
		if err := got.Validate(len(c.fits)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	odd := planner.NewState(3)
	odd.Sources[0].Deficit, odd.Sources[1].Deficit, odd.Sources[2].Deficit = 5, 2, -7
	for drop := range 3 {
		fits := []planner.Fit{{From: (drop + 1) % 3}, {From: (drop + 2) % 3}}
		if err := odd.Adapt(fits).Validate(2); err != nil {
			t.Errorf("without source %d: %v", drop, err)
		}
	}
	carrying := st.Clone()
	carrying.Tokens -= 7
	carrying.Carried = []planner.Carried{{Source: 0, Ordinal: 5, Length: 3, Age: 2}, {Source: 2, Ordinal: 1, Length: 4}}
	for _, c := range []struct {
		fits []planner.Fit
		want []planner.Carried
	}{
		{[]planner.Fit{{From: 0}, {From: 1}, {From: 2}}, carrying.Carried},
		{[]planner.Fit{{From: 2}, {From: -1}, {From: 1}, {From: 0}}, []planner.Carried{{Source: 0, Ordinal: 1, Length: 4}, {Source: 3, Ordinal: 5, Length: 3, Age: 2}}},
		{[]planner.Fit{{From: 0, Other: true}, {From: 1}, {From: 2}}, carrying.Carried[1:]},
	} {
		if got := carrying.Adapt(c.fits); !slices.Equal(got.Carried, c.want) || got.Validate(len(c.fits)) != nil {
			t.Errorf("%+v: %s, %v", c.fits, got, got.Validate(len(c.fits)))
		}
	}
	names := []string{"a", "b", "c"}
	if err := carrying.Adaptable(names, func(name string) bool { return name == "b" }); err != nil {
		t.Error(err)
	}
	if err := carrying.Adaptable(names, func(name string) bool { return name == "c" }); err == nil || !strings.Contains(err.Error(), `"c" wait`) {
		t.Errorf("a source that waits is gone: %v", err)
	}
	carrying.Done = planner.Done{Steps: 2, Tokens: 5}
	if err := carrying.Adaptable(names, func(string) bool { return false }); err == nil || !strings.Contains(err.Error(), "begins at step 7") {
		t.Errorf("inside a window: %v", err)
	}
	if forgiven := st.Forgive(); forgiven.Sources[0].Deficit != 0 || st.Sources[0].Deficit != -70 || forgiven.Validate(3) != nil {
		t.Errorf("forgiven: %s", forgiven)
	}
}
