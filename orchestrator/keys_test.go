package orchestrator

import (
	"errors"
	"strings"
	"testing"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/proto"
)

// classify knows the classes of the keys that tests change.
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

// TestAnotherMixtureDropsWhatWasChangedOfTheOld: `mix set` was said of the mixture that was in the file then.
func TestAnotherMixtureDropsWhatWasChangedOfTheOld(t *testing.T) {
	w := newMixWorld(t, 1)
	w.connect()
	w.join(0, "fresh", nil)
	w.must(&proto.MixRequest{Change: &proto.MixRequest_Set{Set: setWeights("5", "1")}})
	w.must(&proto.MixRequest{HasFrom: true, From: 9, Change: &proto.MixRequest_Skip{Skip: &proto.Skipped{To: 11}}})
	w.consume(4)
	rs, err := ParseRunState(state(t, w, 4))
	if err != nil {
		t.Fatal(err)
	}
	for key, stays := range map[string]bool{
		"mixture.weights.web": false, "mixture.schedule[0]": false, "mixture.groups.books": false, "mixture.sizes.web": false, "mixture.floor": false,
		"mixture.unit": false, "mixture": false, "sources.web": false,
		"seed": true, "carry": true, "stop.epochs": true, "tokenizer": true,
	} {
		m := newMixWorld(t, 1).m
		m.s.Manifests = w.m.s.Manifests
		m.cfg.Changed = func([]byte) ([]string, error) { return []string{key + ": 1 -> 2"}, nil }
		_, live, err := m.fit(rs, []string{"*"})
		if err != nil {
			t.Fatal(err)
		}
		if (live.schedule != nil) != stays || len(live.skips) != 1 {
			t.Errorf("with another %s: the schedule stays %v, want %v; skips %v", key, live.schedule != nil, stays, live.skips)
		}
	}
}

// TestAStateThatNothingCanChange: inside a window, or with segments of a source that was removed.
func TestAStateThatNothingCanChange(t *testing.T) {
	inside, carries := savedState(), savedState()
	inside.Done, inside.Tokens = planner.Done{Steps: 2, Tokens: 5}, 65
	carries.Carried = []planner.Carried{{Source: 1, Ordinal: 2, Length: 5}}
	for _, c := range []struct {
		name    string
		st      planner.State
		now     string
		changed string
		want    string
	}{
		{"inside a window, unchanged", inside, "b d g", "", ""},
		{"inside a window, weights", inside, "b d g", "mixture.weights.b: 1 -> 2", "the window of steps that begins at step 7"},
		{"inside a window, its length", inside, "b d g", "window: 4 -> 2", "the window of steps that begins at step 7"},
		{"inside a window, files", inside, "b/new d g", "", "the window of steps that begins at step 7"},
		{"inside a window, a source more", inside, "b d g z", "", "the window of steps that begins at step 7"},
		{"carries, unchanged", carries, "b d g", "", ""},
		{"carries, weights", carries, "b d g", "mixture.weights.d: 1 -> 0", ""},
		{"carries of a source that is gone", carries, "b g", "", `source "d"`},
		{"carries, another is gone", carries, "b d", "", ""},
	} {
		before, m := runOf(t, "b", "d", "g"), runOf(t, strings.Fields(c.now)...)
		rs, err := ParseRunState(before.runState(1, c.st))
		if err != nil {
			t.Fatal(err)
		}
		m.cfg.Changed = func([]byte) ([]string, error) {
			return strings.FieldsFunc(c.changed, func(r rune) bool { return r == ';' }), nil
		}
		st, _, err := m.fit(rs, []string{"*"})
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, millrace.ErrInvalid)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		case err == nil && len(st.Carried) != len(c.st.Carried):
			t.Errorf("%s: %d segments wait, want %d", c.name, len(st.Carried), len(c.st.Carried))
		}
	}
}

// TestARankThatGoesBackSaysWhoHasToStartToo: the others live and wait for steps that do not come.
func TestARankThatGoesBackSaysWhoHasToStartToo(t *testing.T) {
	w := newWorld(t, 4)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(5)
	w.m.Left(0)
	w.turn()
	w.sidecar.take()
	waiting := func() (text string) {
		for _, msg := range w.sidecar.got {
			if o, ok := msg.(*proto.SidecarOrder); ok && o.GetWaiting() != nil {
				text = o.GetWaiting().Text
			}
		}
		return text
	}
	w.join(0, "state", state(t, w, 2))
	const first = "rank 0 starts again at step 2, and the run goes on when all ranks do: restart ranks 1, 2, 3 too, from the same checkpoint"
	if got := waiting(); got != first {
		t.Errorf("ranks that live are told %q, want %q", got, first)
	}
	w.m.Left(2)
	w.m.Left(3)
	w.join(1, "state", state(t, w, 2))
	if got := waiting(); got != "waiting for rank 2, 3 to connect and say where it starts" {
		t.Errorf("with ranks 2 and 3 away they are told %q", got)
	}
	w.join(2, "state", state(t, w, 2))
	w.join(3, "state", state(t, w, 2))
	if w.m.s.attempt() != 2 || w.m.Waiting() != "" {
		t.Errorf("attempt %d, waiting for %q", w.m.s.attempt(), w.m.Waiting())
	}
}
