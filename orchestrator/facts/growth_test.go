package facts

import (
	"strings"
	"testing"

	"millrace"
	"millrace/orchestrator/planner/progress"
)

// changed is a change of files with given answers. The real one is in sources/facts/growth; e2e/test_growth.py runs it.
type changed struct {
	eras millrace.Eras
	gone map[millrace.Ordinal]bool
}

func (c changed) String() string                              { return "new files: z" }
func (c changed) Cures() []string                             { return []string{"append"} }
func (c changed) IsGone(n millrace.Ordinal) (bool, error)     { return c.gone[n], nil }
func (c changed) Describe(*millrace.Eras) string              { return "said" }
func (c changed) Grow(appends, _ bool) (millrace.Eras, error) { return c.eras, nil }

// TestOverridesOfFiles: files that are appended or masked keep the place of their source, and the state then has their
// eras. Segments that were drawn from a missing file are dropped. Everything else is refused by name.
func TestOverridesOfFiles(t *testing.T) {
	eras := millrace.Eras{From: []millrace.Epoch{0, 3},
		Runs: []millrace.FileRun{{Files: 2}, {Ordinals: 9}, {Era: 1, Files: 1}}}
	saved := savedState()
	saved.Carried = []progress.Carried{
		{Source: 0, Ordinal: 5, Length: 4}, {Source: 0, Ordinal: 6, Length: 2}, {Source: 2, Ordinal: 1, Length: 1},
	}
	saved.Sources[2].Ordinal = 4
	change := changed{eras, map[millrace.Ordinal]bool{5: true, 7: true}}
	for _, c := range []struct {
		override string
		lines    []string // differences of the identity
		want     string   // in the error; empty: the run goes on
	}{
		{"sources.b.files=append", nil, ""},
		{"sources.b.files=mask", nil, ""},
		{"", nil, `sources.b.files: new files: z: restore the old values, or pass override=["sources.b.files=append"]`},
		{"sources.d.files=append", nil, "new files: z"},
		{"sources.b.files=remove", nil, "sources.b.files=append"},
		{"sources.b.files=", nil, "sources.b.files=append"},
		{"sources.b.files=append", []string{"sources.b: jsonl -> csv"}, `"sources.b"`},
		{"sources.b.files=append sources.b", []string{"sources.b: jsonl -> csv"}, "other keys that decide its"},
		{"sources.b.files=append seed", []string{"seed: 1 -> 2"}, "other keys that decide its documents"},
	} {
		state, err := ReadSaved(stateOf(runOf("b", "d", "g"), 1, saved))
		if err != nil {
			t.Fatal(err)
		}
		rules := Rules{Classify: classify, Changed: func([]byte) ([]string, error) { return c.lines, nil },
			Files: func(at FilesAt) (FilesChange, error) {
				if at.Source != "b" || at.At.Ordinal != 7 {
					t.Errorf("asked for %+v", at)
				}
				return change, nil
			}}
		to := runOf("b/other", "d", "g")
		out, err := state.Migrate(to, rules, strings.Fields(c.override))
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: %v, want %q", c.override, err, c.want)
			}
			continue
		}
		if err != nil || string(out.ErasOf(0)) != string(eras.Encode()) || len(out.Said) != 1 {
			t.Fatalf("%q: %v, %+v", c.override, err, out)
		}
		src := out.Planner.Sources[0]
		if src.Ordinal != 8 || src.Offset != 0 || src.SeekPoint.Ordinal != 5 || len(out.Planner.Carried) != 2 {
			t.Errorf("%q: %+v, waiting %+v", c.override, src, out.Planner.Carried)
		}
		checkErasStay(t, out, to)
	}
}

// checkErasStay: a run goes on from the new state without an override and with the same eras, and an override of the
// documents drops them.
func checkErasStay(t *testing.T, out *RunState, to *Run) {
	t.Helper()
	text := out.Encode()
	if !strings.Contains(string(text), `"eras"`) {
		t.Fatalf("%s has no eras", text)
	}
	for _, c := range []struct {
		lines, override []string
		stay            bool
	}{{nil, nil, true}, {[]string{"seed: 1 -> 2"}, []string{"seed"}, false}} {
		saved, err := ReadSaved(text)
		if err != nil {
			t.Fatal(err)
		}
		rules := Rules{Classify: classify, Changed: func([]byte) ([]string, error) { return c.lines, nil }}
		again, err := saved.Migrate(to, rules, c.override)
		if err != nil || again.HasEras() != c.stay || c.stay && string(again.Encode()) != string(text) {
			t.Errorf("%v: %v, eras %v", c.lines, err, again)
		}
	}
	if own, err := readOwn(text, nil); err != nil || string(own.Encode()) != string(text) {
		t.Errorf("the journal's state does not come back: %v", err)
	}
}
