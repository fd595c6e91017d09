package progress_test

import (
	"errors"
	"strings"
	"testing"

	"millrace"
	"millrace/orchestrator/planner/progress"
)

// bigState is close to the largest state in practice: 64 sources, trillions of tokens, every source with a seek point.
func bigState() progress.State {
	st := progress.New(64)
	st.Step = 3_000_000
	for i := range st.Sources {
		deficit := int64(1) << 54
		if i%2 == 0 {
			deficit = -deficit
		}
		st.Sources[i] = progress.Source{
			Ordinal: 123_456_789_012, Offset: 1<<24 - 1, Epoch: 1234, Tokens: 98_765_432_109_876,
			Samples: 123_456_700_000, Deficit: deficit, Finished: i%3 == 0,
			SeekPoint: millrace.SeekPoint{
				Ordinal:    123_456_700_000,
				Epoch:      1234,
				EpochStart: 123_400_000_000,
				Shard:      99_999,
				Block:      123_456,
				Record:     9_999_999_999,
			},
		}
		st.Tokens += st.Sources[i].Tokens
	}
	return st
}

// hugeState has the largest numbers that fit, everywhere.
func hugeState() progress.State {
	st := progress.New(64)
	st.Step, st.Tokens = 1<<64-1, 1<<64-1
	for i := range st.Sources {
		deficit := int64(1)<<62 - 1
		if i%2 == 0 {
			deficit = -deficit
		}
		st.Sources[i] = progress.Source{
			Ordinal:   1<<64 - 1,
			Offset:    1<<32 - 1,
			Epoch:     1<<32 - 1,
			Tokens:    1<<58 - 1,
			Deficit:   deficit,
			Finished:  true,
			SeekPoint: millrace.SeekPoint{Ordinal: 1 << 63, Shard: 1<<32 - 1, Block: 1<<32 - 1, Record: 1<<64 - 1},
		}
	}
	return st
}

// carrying adds a window under way and 512 carried segments, with large numbers.
func carrying(st progress.State) progress.State {
	st.Done = progress.Done{Steps: 63, Tokens: min((1<<64-1)-st.Tokens, 1<<40)}
	st.Tokens += st.Done.Tokens
	for i := range millrace.MostCarried {
		at := &st.Sources[i/8]
		st.Carried = append(st.Carried, progress.Carried{
			Source:  uint32(i / 8),
			Ordinal: at.Ordinal - 1_000_000 + millrace.Ordinal(i%8)*20_000,
			Offset:  1 << 20,
			Length:  1 << 20,
			Age:     8,
			More:    i%2 == 0,
		})
	}
	for i := range st.Sources {
		st.Sources[i].SeekPoint.Ordinal = min(st.Sources[i].SeekPoint.Ordinal, st.Floor(i))
	}
	return st
}

// mostState is the planner's part of the 16 KiB of a saved state. The rest are names, identity and files.
const mostState = 16<<10 - 512

func TestStateRoundTripAndSize(t *testing.T) {
	for _, c := range []struct {
		st   progress.State
		most int // bytes of a source, beside 40 for everything else
	}{
		{progress.New(1), 10}, {progress.New(3), 10}, {bigState(), 67}, {hugeState(), 128},
		{carrying(bigState()), 178}, {carrying(hugeState()), mostState/64 - 1},
	} {
		text := c.st.Compact()
		back, err := progress.Parse(text)
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

// resum returns a state's text with the right checksum.
func resum(body []byte) string {
	return progress.CompactText().EncodeToString(append(body, progress.Checksum(body)...))
}

func TestStateRefused(t *testing.T) {
	st := progress.New(2)
	st.Step, st.Tokens = 3, 7
	st.Sources[0] = progress.Source{Ordinal: 4, Tokens: 7, Samples: 3, Deficit: 5}
	st.Sources[1] = progress.Source{Deficit: -5}
	edit := func(change func(*progress.State)) string {
		s := st.Clone()
		change(&s)
		return s.Compact()
	}
	text := st.Compact()
	good, _ := progress.CompactText().DecodeString(text)
	good = good[:len(good)-progress.SumBytes]
	for _, c := range []struct{ name, text, want string }{
		{"as it is", text, ""},
		{"empty", "", "its text is no planner state"},
		{"no base64", "{}", "its text is no planner state"},
		{"cut off", text[:len(text)-4], "cut off"},
		{"edited", "B" + text[1:], "its sum does not match"},
		{"version 1", edit(func(s *progress.State) { s.Version = 1 }), ""},
		{
			"version 1 carries nothing",
			edit(func(s *progress.State) { s.Version, s.Carried = 1, []progress.Carried{{Ordinal: 2, Length: 3}} }),
			"other numbers",
		},
		{"carried twice", edit(func(s *progress.State) {
			s.Carried = []progress.Carried{{Ordinal: 2, Length: 3}, {Ordinal: 2, Length: 3}}
		}), "out of order"},
		{
			"carried nothing", edit(func(s *progress.State) { s.Carried = []progress.Carried{{Ordinal: 2}} }),
			"not drawn yet",
		},
		{
			"carried of the cursor's document",
			edit(func(s *progress.State) { s.Carried = []progress.Carried{{Ordinal: 4, Length: 3}} }), "not drawn yet",
		},
		{"seek point above a carried segment", edit(func(s *progress.State) {
			s.Carried = []progress.Carried{{Ordinal: 2, Length: 3}}
			s.Sources[0].SeekPoint = millrace.SeekPoint{Ordinal: 3}
		}), "its seek point at 3"},
		{
			"more done than there was", edit(func(s *progress.State) { s.Done = progress.Done{Steps: 4} }),
			"of its window are done",
		},
		{
			"carried beyond the sources",
			resum(append(good[:len(good):len(good)], 0, 0, 1, progress.CarriedNext, 9, 1, 1)), "other numbers",
		},
		{
			"half of something carried", resum(append(good[:len(good):len(good)], 0, 0, 1, progress.CarriedNext)),
			"other numbers",
		},
		{"nothing in nothing", resum(append(good[:len(good):len(good)], 0, 0, 0)), "other numbers"},
		{
			"another version", edit(func(s *progress.State) { s.Version = 4 }),
			"planner version 4, this binary plans version 3: go on with the program that saved it",
		},
		{"deficits", edit(func(s *progress.State) { s.Sources[1].Deficit = -6 }), "deficits"},
		{"tokens", edit(func(s *progress.State) { s.Tokens = 6 }), "placed 7 tokens"},
		{"seek point behind", edit(func(s *progress.State) { s.Sources[0].SeekPoint.Ordinal = 5 }), "other numbers"},
		{
			"epoch from behind its seek point",
			edit(func(s *progress.State) { s.Sources[0].SeekPoint = millrace.SeekPoint{Ordinal: 2, EpochStart: 3} }),
			"other numbers",
		},
		{"something follows", resum(append(good[:len(good):len(good)], 0)), "other numbers"},
		{"a number is missing", resum(good[:len(good)-1]), "other numbers"},
		{"more sources than there are", resum([]byte{1, 3, 7, 200}), "other numbers"},
	} {
		if _, err := progress.Parse(c.text); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if err := progress.New(2).Validate(3); !errors.Is(err, millrace.ErrMismatch) {
		t.Errorf("another number of sources: %v", err)
	}
}

// FuzzParseState: a text with a right checksum is refused, or becomes a state that is written back unchanged.
func FuzzParseState(f *testing.F) {
	for _, st := range []progress.State{
		progress.New(0), progress.New(3), bigState(), hugeState(), carrying(bigState()),
	} {
		b, _ := progress.CompactText().DecodeString(st.Compact())
		f.Add(b[:len(b)-progress.SumBytes])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		st, err := progress.Parse(resum(body))
		if err != nil {
			return
		}
		if again, err := progress.Parse(st.Compact()); err != nil || !again.Equal(st) {
			t.Errorf("%s comes back as %s: %v", st, again, err)
		}
	})
}
