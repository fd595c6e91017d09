package facts

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"millrace"
	"millrace/orchestrator/planner/progress"
	"millrace/proto"
)

// runOf is a run with these sources. The files of a source are given after a slash; the default is its name.
func runOf(sources ...string) *Run {
	var list []SourceFiles
	for _, s := range sources {
		name, files, given := strings.Cut(s, "/")
		if !given {
			files = name
		}
		list = append(list,
			FilesOf(name, &proto.Manifest{Source: name, Fingerprint: []byte(files + "----------------")[:16]}))
	}
	return NewRun(nil, []byte(`{"seed":"1"}`), list)
}

// stateOf returns the text of a run's state.
func stateOf(run *Run, attempt uint32, st progress.State) []byte {
	return NewRunState(run, attempt, st, Overrides{}).Encode()
}

// migrate reads and migrates a state.
func migrate(text []byte, to *Run, changed func([]byte) ([]string, error), override ...string) (progress.State, error) {
	saved, err := ReadSaved(text)
	if err != nil {
		return progress.State{}, err
	}
	out, err := saved.Migrate(to, Rules{Changed: changed, Classify: classify}, override)
	if err != nil {
		return progress.State{}, err
	}
	return out.Planner, nil
}

// savedState is a state of the sources b, d and g: b is inside a document, d has ended, g has a positive deficit.
func savedState() progress.State {
	st := progress.New(3)
	st.Step, st.Tokens = 9, 60
	st.Sources[0] = progress.Source{
		Ordinal:   7,
		Offset:    64,
		Tokens:    10,
		Samples:   8,
		Deficit:   -70,
		SeekPoint: millrace.SeekPoint{Ordinal: 5, Record: 1},
	}
	st.Sources[1] = progress.Source{Ordinal: 3, Tokens: 20, Samples: 3, Deficit: 30, Finished: true}
	st.Sources[2] = progress.Source{Ordinal: 4, Tokens: 30, Samples: 4, Deficit: 40}
	return st
}

func TestAStateOfAnotherIdentity(t *testing.T) {
	const (
		b, cutB  = "[7,64,0,10,8,-70,0,2,0,5,0,0,1]", "[8,0,0,10,8,-70,0]"
		d, openD = "[3,0,0,20,3,30,1]", "[3,0,0,20,3,30,0]"
		g        = "[4,0,0,30,4,40,0]"
	)
	for _, c := range []struct {
		name     string
		now      string   // sources of the run that loads it
		identity []string // the differences, as the configuration names them
		override string
		want     string // the sources in the state, or the error
	}{
		{"nothing", "b d g", nil, "", b + d + g},
		{
			"files", "b/new d g", nil, "",
			"sources.b.files: their names, sizes or contents, or `seekable_copies`: restore the old values, " +
				`or pass override=["sources.b.files"]`,
		},
		{"files", "b/new d g", nil, "sources.b.files", cutB + d + g},
		{"files, by the source", "b/new d g", nil, "sources.b", cutB + d + g},
		{"files of one that left: it is asked again", "b d/new g", nil, "sources", b + openD + g},
		{"seed", "b d g", []string{"seed: 1 -> 2"}, "", "seed: 1 -> 2: restore"},
		{"seed", "b d g", []string{"seed: 1 -> 2"}, "sources", "seed: 1 -> 2: restore"},
		{"seed", "b d g", []string{"seed: 1 -> 2"}, "seed", cutB + d + g},
		{"tokenizer", "b d g", []string{"tokenizer.add_eos: true -> false"}, "tokenizer", cutB + d + g},
		{
			"weights", "b d g", []string{"mixture.weights.b: 1 -> 2", "mixture.weights.d: 1 -> 2"}, "mixture.weights.b",
			`override=["mixture.weights.d"]`,
		},
		{
			"weights", "b d g", []string{"mixture.weights.b: 1 -> 2", "mixture.weights.d: 1 -> 2"}, "mixture.weights",
			b + d + g,
		},
		{
			"schedule", "b d g",
			[]string{"mixture.schedule[0]: added (step 0)", "mixture.weights.b: removed (it was 1)"}, "mixture",
			b + d + g,
		},
		{
			"unit", "b d g", []string{"mixture.unit: tokens -> samples"}, "mixture.unit",
			"[7,64,0,10,8,0,0,2,0,5,0,0,1][3,0,0,20,3,0,1][4,0,0,30,4,0,0]",
		},
		{"epochs", "b d g", []string{"stop.epochs: 1 -> 2"}, "stop.epochs", b + openD + g},
		{
			"more", "b d g", []string{"packing: best_fit -> pad", "sequence_length: 8 -> 16"},
			"packing,sequence_length", b + d + g,
		},
		{
			"everything", "b/new d g", []string{"seed: 1 -> 2", "mixture.unit: tokens -> samples"}, "*",
			"[8,0,0,10,8,0,0]" + "[3,0,0,20,3,0,1]" + "[4,0,0,30,4,0,0]",
		},

		{
			"added", "a b d g", []string{"mixture.weights.a: added (2)", "sources.a: added (jsonl)"}, "",
			`override=["mixture.weights.a", "sources.a"]`,
		},
		{
			"added", "a b d g", []string{"mixture.weights.a: added (2)", "sources.a: added (jsonl)"}, "sources.a",
			"[0,0,0,0,0,0,0]" + b + d + g,
		},
		{
			"added among folded ones", "b d g z", []string{"sources: #1 -> #2"}, "sources.z",
			`sources: #1 -> #2: restore`,
		},
		{
			"added with other weights", "b d g z",
			[]string{"mixture.weights.z: added (2)", "sources.z: added (jsonl)", "mixture.weights.b: 1 -> 2"},
			"sources.z", `override=["mixture.weights.b"]`,
		},
		{
			"removed", "b g", []string{"mixture.weights.d: removed (it was 2)", "sources.d: removed (it was jsonl)"},
			"sources.d", "[7,64,0,10,8,-55,0,2,0,5,0,0,1]" + "[4,0,0,30,4,55,0]",
		},
		{"removed and added", "b d x", nil, "", `override=["sources.g", "sources.x"]`},
		{"removed and added", "b d x", nil, "sources", "[7,64,0,10,8,-30,0,2,0,5,0,0,1]" + d + "[0,0,0,0,0,0,0]"},
		{"renamed: another one", "c d g", nil, "sources", "[0,0,0,0,0,0,0]" + d + "[4,0,0,30,4,-30,0]"},
	} {
		text, now := stateOf(runOf("b", "d", "g"), 1, savedState()), runOf(strings.Fields(c.now)...)
		st, err := migrate(
			text,
			now,
			func([]byte) ([]string, error) { return c.identity, nil },
			strings.FieldsFunc(c.override, func(r rune) bool { return r == ',' })...)
		if !strings.HasPrefix(c.want, "[") {
			if !errors.Is(err, millrace.ErrMismatch) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, override %q: %v\nwant %s", c.name, c.override, err, c.want)
			}
			continue
		}
		want := `{"planner":3,"step":9,"tokens":60,"sources":[` + strings.ReplaceAll(c.want, "][", "],[") + `]}`
		if err != nil || st.String() != want {
			t.Errorf("%s, override %q: %v\n got %s\nwant %s", c.name, c.override, err, st, want)
		} else if err := st.Validate(len(now.sources)); err != nil {
			t.Errorf("%s, override %q: %v", c.name, c.override, err)
		}
	}
}

func TestAnErrorNamesAFewChangesOfMany(t *testing.T) {
	run := runOf("b", "d", "g")
	text := stateOf(run, 1, savedState())
	changed := func([]byte) (lines []string, err error) {
		for i := range 1000 {
			lines = append(lines, fmt.Sprintf("mixture.weights.source-%03d: 1 -> 2", i))
		}
		return lines, nil
	}
	if _, err := migrate(text, run, changed); err == nil || len(err.Error()) > 1000 ||
		!strings.Contains(err.Error(), "and 992 more") {
		t.Errorf("got %v", err)
	}
	if _, err := migrate(text, run, changed, "mixture"); err != nil {
		t.Error(err)
	}
}

func TestUnreadableStates(t *testing.T) {
	run := runOf("b", "d", "g")
	changed := func(stored []byte) ([]string, error) {
		if len(stored) == 0 || stored[0] != '{' {
			return nil, errors.New("read identity: it is none")
		}
		return nil, nil
	}
	good := string(stateOf(run, 1, savedState()))
	field := func(name, value string) string { // replaces a field's value
		_, rest, _ := strings.Cut(good, `"`+name+`":`)
		old := rest[:strings.IndexAny(rest, ",}")]
		if strings.HasPrefix(rest, `"`) {
			old = rest[:strings.Index(rest[1:], `"`)+2]
		} else if strings.HasPrefix(rest, "{") {
			old = rest[:strings.Index(rest, "}")+1]
		}
		return strings.Replace(good, `"`+name+`":`+old, `"`+name+`":`+value, 1)
	}
	other := savedState()
	other.Version = 7
	for _, c := range []struct{ name, text, want string }{
		{"as it is", good, ""},
		{"not JSON", good[:len(good)/2], "no state of a run"},
		{"a list", "[]", "no state of a run"},
		{"null", "null", "no state of a run"},
		{"another object", `{"epoch": 3}`, "no state of a run"},
		{"of another kind", field("millrace", `"2"`), "no state of a run"},
		{
			"older", field("millrace", "1"),
			"its format is version 1, this program reads version 2: go on with the program that saved it",
		},
		{
			"newer", field("millrace", "3"),
			"its format is version 3, this program reads version 2: go on with the program that saved it",
		},
		{
			"another planner", field("planner", `"`+other.Compact()+`"`),
			"planner version 7, this binary plans version 3: go on with the program that saved it",
		},
		{"no planner", field("planner", "null"), "planner state: its text is no planner state"},
		{"planner of another kind", field("planner", "5"), "not a "},
		{"step edited", field("step", "10"), "step 10, but its planner stands at 9"},
		{"step negative", field("step", "-1"), "not a "},
		{"sources of another kind", field("sources", "{}"), "an object, not a string"},
		{"sources missing", field("sources", `""`), "its sources are not readable"},
		{"sources cut off", field("sources", `"0AAAAAAb"`), "it names 1 sources and holds 3"},
		{
			"sources that share with nothing", field("sources", `"1AAAAAAb,0AAAAAAd,0AAAAAAg"`),
			`its sources are not readable at "1AAAAAAb"`,
		},
		{"no identity", field("identity", "null"), "read identity"},
		{"microbatch of another kind", field("step", `9,"microbatch":"x"`), "a string, not a whole number"},
	} {
		_, err := migrate([]byte(c.text), run, changed)
		switch {
		case (err == nil) != (c.want == "") || c.want == "" && err != nil:
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		case err != nil && (!strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "read state: ")):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		case err != nil && !strings.Contains(err.Error(), "program that saved it") &&
			!strings.Contains(err.Error(), "pass the value of state_dict() unchanged"):
			t.Errorf("%s: %v says no cure", c.name, err)
		}
	}
}

func TestSourcesPack(t *testing.T) {
	for _, names := range [][]string{
		{"web"}, {"a", "a,b", "a/b", "a b", "aé中", "ab", "abc", "b%"},
		{strings.Repeat("x", 80) + "1", strings.Repeat("x", 80) + "2"}, {""},
	} {
		var list []SourceFiles
		for i, name := range names {
			list = append(list, SourceFiles{Name: name, Files: [4]byte{byte(i), 255, 62, 63}})
		}
		text := packSources(list)
		if back, err := unpackSources(text); err != nil || !reflect.DeepEqual(back, list) {
			t.Errorf("%v comes back as %v: %v", list, back, err)
		}
	}
}

// TestRunStateIsSmall: states have the promised sizes, with sources of blocks that all have a seek point. Beyond 64
// sources the sizes hold if names differ in a few characters and a source has less than 10^8 documents and 10^12
// tokens.
func TestRunStateIsSmall(t *testing.T) {
	crawled := progress.Source{
		Ordinal: 99_999_999, Offset: 1<<17 - 1, Epoch: 100, Tokens: 999_999_999_999, Samples: 98_000_000,
		Deficit: 1 << 48,
		SeekPoint: millrace.SeekPoint{
			Ordinal: 99_000_000, Epoch: 99, EpochStart: 9_000_000, Shard: 9999, Block: 9999, Record: 99_000_000,
		},
	}
	for _, c := range []struct {
		sources, most, identity int // config gives it at most 5 KiB; with many sources it has digests only
		name                    string
		of                      progress.Source
	}{
		{64, 16 << 10, 5 << 10, "a-source-with-a-name-of-sixty-four-letters-to-show-what-fits--%02d", progress.Source{
			Ordinal: 1<<64 - 1, Offset: 1<<32 - 1, Epoch: 1<<32 - 1, Tokens: 1 << 57, Deficit: 1<<62 - 1,
			SeekPoint: millrace.SeekPoint{Ordinal: 1 << 63, Shard: 1<<32 - 1, Block: 1<<32 - 1, Record: 1<<64 - 1},
		}},
		{1000, 16<<10 + 936*64, 1 << 10, "common-crawl-2024-%04d", crawled},
		{4096, 16<<10 + 4032*64, 1 << 10, "common-crawl-2024-%04d", crawled},
	} {
		var names []string
		st := progress.New(c.sources)
		st.Step, st.Tokens = 9_999_999, 1<<64-1
		for i := range st.Sources {
			names = append(names, fmt.Sprintf(c.name, i))
			st.Sources[i] = c.of
			if i%2 == 0 {
				st.Sources[i].Deficit = -c.of.Deficit
			}
		}
		run := runOf(names...)
		if list := run.sources; c.sources == 64 { // the most that a growth may take
			for len(packEras(list)) <= mostEras+mostErasOfOne*len(list)-16 {
				list[0].Eras.From = append(list[0].Eras.From, millrace.Epoch(len(list[0].Eras.From)))
				list[0].Eras.Runs = append(list[0].Eras.Runs, millrace.FileRun{Files: 1})
			}
			if err := checkErasFit(list); err != nil {
				t.Fatal(err)
			}
			run = NewRun(nil, nil, list)
		}
		run.Identity = []byte(`"` + strings.Repeat("x", c.identity-2) + `"`)
		text := stateOf(run, 99, st)
		if most := c.most - len(`,"microbatch":9999,"placement":""`) - 32; len(text) > most {
			t.Errorf("%d sources: %d bytes, want at most %d", c.sources, len(text), most)
		}
		t.Logf("%d sources: %d bytes", c.sources, len(text))
		if back, err := ReadSaved(text); err != nil || !back.Planner.Equal(st) {
			t.Errorf("%d sources do not come back: %v", c.sources, err)
		}
	}
}

// FuzzReadSaved: any text that a trainer loads is refused with an error, or goes on.
func FuzzReadSaved(f *testing.F) {
	run := runOf("b", "d", "g")
	text := string(stateOf(run, 3, savedState()))
	f.Add([]byte(text))
	f.Add([]byte(strings.Replace(text, `"step"`, `"microbatch":1,"placement":"`+strings.Repeat("0", 32)+`","step"`, 1)))
	f.Add([]byte(`{"millrace":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		st, err := migrate(text, run, func([]byte) ([]string, error) { return nil, nil }, "*")
		if err == nil && st.Validate(3) != nil {
			t.Errorf("%s gives a state that no run goes on from: %v", text, st.Validate(3))
		}
	})
}

// TestStatesOfAnOlderPlannerAreTheSame: a store and a checkpoint of planner version 1 go on as those of version 2.
func TestStatesOfAnOlderPlannerAreTheSame(t *testing.T) {
	run, now := runOf("b", "d", "g"), savedState()
	now.Version = 2
	old := now.Clone()
	old.Version = 1
	read := func(st progress.State) *RunState {
		out, err := readOwn(stateOf(run, 1, st), nil)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if string(stateOf(run, 1, old)) == string(stateOf(run, 1, now)) {
		t.Fatal("the states of both versions have the same text")
	}
	if !read(old).IsAlike(read(now)) || string(read(old).Encode()) != string(stateOf(run, 1, now)) {
		t.Error("a state of version 1 differs from the same state of version 2")
	}
	other := old.Clone()
	other.Sources[0].Ordinal++
	if read(other).IsAlike(read(now)) {
		t.Error("two different states compare as equal")
	}
}

// TestRunsKeepTheirPlanner: a run directory that an earlier planner created packs by its rule, from the first step on.
func TestRunsKeepTheirPlanner(t *testing.T) {
	for version, pooled := range map[uint32]bool{0: true, 1: false, 2: false, 3: true} {
		s := NewState()
		s.PlannerVersion = version
		if got := s.PlannerState(2).IsPooled(); got != pooled {
			t.Errorf("version %d: packs from a pool: %v", version, got)
		}
	}
}
