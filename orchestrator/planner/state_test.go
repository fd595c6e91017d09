package planner

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"millrace"
)

// bigState is about as long as a state gets: 64 sources, trillions of tokens, every one with an anchor.
func bigState() State {
	st := NewState(64)
	st.Step = 3_000_000
	for i := range st.Sources {
		deficit := int64(1) << 54
		if i%2 == 0 {
			deficit = -deficit
		}
		st.Sources[i] = SourceState{
			Ordinal: 123_456_789_012, Offset: 1<<24 - 1, Epoch: 1234, Tokens: 98_765_432_109_876, Samples: 123_456_700_000, Deficit: deficit, Finished: i%3 == 0,
			Anchor: millrace.Anchor{Ordinal: 123_456_700_000, Epoch: 1234, EpochStart: 123_400_000_000, Shard: 99_999, Block: 123_456, Record: 9_999_999_999},
		}
		st.Tokens += st.Sources[i].Tokens
	}
	return st
}

func TestStateRoundTripAndSize(t *testing.T) {
	for _, st := range []State{NewState(1), NewState(3), bigState()} {
		text := st.String()
		back, err := ParseState(text)
		if err != nil || !back.Equal(st) || back.String() != text {
			t.Fatalf("%s comes back as %s: %v", text, back, err)
		}
		if len(text) > 16<<10-2048 { // 2 KiB for what others put beside it
			t.Errorf("%d bytes with %d sources", len(text), len(st.Sources))
		}
		embedded, err := json.Marshal(map[string]State{"planner": st})
		var out map[string]State
		if err != nil || json.Unmarshal(embedded, &out) != nil || !out["planner"].Equal(st) {
			t.Fatalf("embedded: %s, %v", embedded, err)
		}
		clone := st.Clone()
		clone.Sources[0].Tokens++
		if clone.Equal(st) {
			t.Error("a clone shares its sources")
		}
	}
}

func TestStateRefused(t *testing.T) {
	good := `{"planner":1,"step":3,"tokens":7,"sources":[[4,0,0,7,3,5,0],[0,0,0,0,0,-5,0]]}`
	if _, err := ParseState(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"another version":   {`"planner":1`, `"planner":2`},
		"unknown key":       {`"step"`, `"leap"`},
		"too few numbers":   {`[4,0,0,7,3,5,0]`, `[4,0,0,7,3,5]`},
		"no integer":        {`[4,`, `[4.5,`},
		"negative":          {`[4,`, `[-4,`},
		"beyond 32 bits":    {`[4,0,`, `[4,4294967296,`},
		"deficits":          {`-5`, `-6`},
		"tokens":            {`"tokens":7`, `"tokens":8`},
		"anchor behind":     {`[4,0,0,7,3,5,0]`, `[4,0,0,7,3,5,0,5,0,0,0,0,0]`},
		"trailing":          {`]}`, `]} {}`},
		"finished is a bit": {`-5,0`, `-5,2`},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		if name == "trailing" {
			bad = good + " {}"
		}
		if _, err := ParseState(bad); err == nil || bad == good {
			t.Errorf("%s: %s is taken", name, bad)
		}
	}
	if err := NewState(2).Validate(3); !errors.Is(err, millrace.ErrMismatch) {
		t.Errorf("another number of sources: %v", err)
	}
}

// anchored is a corpus in blocks of ten ordinals.
type anchored struct{ *corpus }

func (a anchored) Anchor(source int, at millrace.Ordinal) millrace.Anchor {
	start := at - at%10
	return millrace.Anchor{Ordinal: start, Block: uint32(start / 10), Record: 1}
}

func TestAnchorsFollowTheCursor(t *testing.T) {
	spec := newSpec(t, 10, 4, "1")
	docs := make([]millrace.SampleMeta, 100)
	for i := range docs {
		docs[i] = document(i, 10)
	}
	steps, _, err := collect(t, spec, NewState(1), anchored{&corpus{docs: [][]millrace.SampleMeta{docs}, epochs: []uint64{1}}}, 7)
	if err != nil {
		t.Fatal(err)
	}
	if src := steps[6].After.Sources[0]; src.Ordinal != 28 || src.Anchor.Ordinal != 20 || src.Anchor.Block != 2 {
		t.Errorf("after 28 documents the state is %+v", src)
	}
}

func TestPastCuts(t *testing.T) {
	s := NewState(2)
	s.Sources[0].Ordinal, s.Sources[0].Offset = 7, 64
	s.Sources[1].Ordinal = 7
	got := s.PastCuts()
	if got.Sources[0].Ordinal != 8 || got.Sources[0].Offset != 0 || got.Sources[1].Ordinal != 7 || s.Sources[0].Offset != 64 {
		t.Errorf("%s becomes %s", s, got)
	}
}
