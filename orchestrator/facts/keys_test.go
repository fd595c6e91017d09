package facts

import (
	"errors"
	"strings"
	"testing"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/progress"
)

// classify has the classes of the keys that tests change.
func classify(key string) millrace.KeyClass {
	root, _, _ := strings.Cut(key, ".")
	switch {
	case key == "mixture.unit":
		return millrace.KeyUnit
	case root == "mixture":
		return millrace.KeyMixture
	case root == "sources":
		return millrace.KeySource
	case key == "stop.epochs":
		return millrace.KeyEnd
	case root == "seed", root == "tokenizer":
		return millrace.KeyDocuments
	}
	return millrace.KeySteps
}

// TestAnotherMixtureDropsOverrides: changes of `mix set` belong to the mixture that was in the file at the
// time.
func TestAnotherMixtureDropsOverrides(t *testing.T) {
	schedule := func(weights ...string) *mixing.Schedule {
		w, err := ParseWeights(weights)
		if err != nil {
			t.Fatal(err)
		}
		out, err := mixing.NewSchedule(3, []mixing.Milestone{{Weights: w}})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	spec := &planner.Spec{Schedule: schedule("1", "2", "3")}
	run := runOf("b", "d", "g")
	run.Spec = spec
	o := Overrides{
		schedule: schedule("5", "1", "1"),
		skips:    []planner.Skip{{From: 11, To: 13}},
		costs:    []costsAt{{2, cost.Cost{Linear: 3}}},
	}
	text := NewRunState(run, 1, savedState(), o).Encode()
	for key, stays := range map[string]bool{
		"mixture.weights.web": false, "mixture.schedule[0]": false, "mixture.groups.books": false,
		"mixture.sizes.web": false, "mixture.floor": false,
		"mixture.unit": false, "mixture": false, "sources.web": false,
		"seed": true, "carry": true, "stop.epochs": true, "tokenizer": true,
	} {
		saved, err := ReadSaved(text)
		if err != nil {
			t.Fatal(err)
		}
		out, err := saved.Migrate(run,
			Rules{
				Changed:  func([]byte) ([]string, error) { return []string{key + ": 1 -> 2"}, nil },
				Classify: classify,
			},
			[]string{"*"},
		)
		if err != nil {
			t.Fatal(err)
		}
		if got := out.Overrides; (got.schedule != nil) != stays || len(got.skips) != 1 || len(got.costs) != 1 {
			t.Errorf("with another %s: the schedule stays %v, want %v; skips %v, costs %v", key, got.schedule != nil,
				stays, got.skips, got.costs)
		}
	}
}

// TestStatesThatCannotChange: a state inside a window, or with segments of a source that was removed, is refused.
func TestStatesThatCannotChange(t *testing.T) {
	inside, carries := savedState(), savedState()
	inside.Done, inside.Tokens = progress.Done{Steps: 2, Tokens: 5}, 65
	carries.Carried = []progress.Carried{{Source: 1, Ordinal: 2, Length: 5}}
	for _, c := range []struct {
		name    string
		st      progress.State
		now     string
		changed string
		want    string
	}{
		{"inside a window, unchanged", inside, "b d g", "", ""},
		{
			"inside a window, weights", inside, "b d g", "mixture.weights.b: 1 -> 2",
			"the window of steps that begins at step 7",
		},
		{"inside a window, its length", inside, "b d g", "window: 4 -> 2", "the window of steps that begins at step 7"},
		{"inside a window, files", inside, "b/new d g", "", "the window of steps that begins at step 7"},
		{"inside a window, a source more", inside, "b d g z", "", "the window of steps that begins at step 7"},
		{"carries, unchanged", carries, "b d g", "", ""},
		{"carries, weights", carries, "b d g", "mixture.weights.d: 1 -> 0", ""},
		{"carries of a source that is gone", carries, "b g", "", `source "d"`},
		{"carries, another is gone", carries, "b d", "", ""},
	} {
		changed := func([]byte) ([]string, error) {
			return strings.FieldsFunc(c.changed, func(r rune) bool { return r == ';' }), nil
		}
		st, err := migrate(stateOf(runOf("b", "d", "g"), 1, c.st), runOf(strings.Fields(c.now)...), changed, "*")
		switch {
		case c.want == "" && err != nil,
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)),
			c.want != "" && !errors.Is(err, millrace.ErrInvalid):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		case err == nil && len(st.Carried) != len(c.st.Carried):
			t.Errorf("%s: %d segments wait, want %d", c.name, len(st.Carried), len(c.st.Carried))
		}
	}
}
