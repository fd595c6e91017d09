package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"millrace/orchestrator/facts"
	"millrace/proto"
)

// has reports whether a line with this beginning was sent.
func has(lines []string, prefix string) bool {
	return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) })
}

func TestARunBeginsWhenEveryRankHasJoined(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.join(0, "", nil)
	if got := w.sidecar.take(); has(got, "begin") || has(got, "plan") {
		t.Fatalf("one rank of two began: %v", got)
	}
	if waits := w.m.Waiting().Text; !strings.Contains(waits, "rank 1") {
		t.Errorf("status says %q", waits)
	}
	w.join(1, "fresh", nil)
	got := w.sidecar.take()
	for _, want := range []string{"begin rank 0 attempt 1 step 0", "begin rank 1 attempt 1 step 0", "plan 1/0",
		"plan 1/1", "plan 1/2"} {
		if !has(got, want) {
			t.Errorf("%q is missing in %v", want, got)
		}
	}
	if has(got, "plan 1/3") {
		t.Error("planned beyond the runway")
	}
}

func TestTheWatermarkIsTheSlowestRank(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.m.Committed(w.sidecar, &proto.Commit{Rank: 0, Attempt: 1, Step: 2})
	w.turn()
	if w.m.s.Watermark != 0 {
		t.Fatalf("watermark %d while rank 1 has consumed nothing", w.m.s.Watermark)
	}
	w.m.Committed(w.sidecar, &proto.Commit{Rank: 1, Attempt: 1, Step: 0})
	w.m.Committed(w.sidecar, &proto.Commit{Rank: 1, Attempt: 9, Step: 2}) // of an attempt that does not exist
	w.turn()
	if w.m.s.Watermark != 1 || w.m.s.Next != 4 {
		t.Fatalf("watermark %d, next %d: want 1 and 4", w.m.s.Watermark, w.m.s.Next)
	}
	if !strings.Contains(strings.Join(w.loader.take(), "\n"), "release web below") {
		t.Error("the loader was not told to release ordinals")
	}
}

func TestWrongStartsAreRefused(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(3)
	after2, after3 := state(t, w, 2), state(t, w, 3)
	foreign := strings.Replace(string(after3), `"1"`, `"2"`, 1)
	for _, c := range []struct {
		name, start string
		states      [2][]byte
		want        string
	}{
		{"no start on a run with history", "", [2][]byte{}, "this run has history"},
		{"not JSON", "state", [2][]byte{[]byte("{"), []byte("{")}, "read state"},
		{"another identity", "state", [2][]byte{[]byte(foreign), []byte(foreign)}, "another identity: seed: 1 -> 2"},
		{"ranks differ", "state", [2][]byte{after2, after3}, "ranks start at different places"},
		{"unknown word", "newest", [2][]byte{}, `start "newest"`},
	} {
		w.sidecar.take()
		for r := range 2 {
			w.m.Joined(w.sidecar, &proto.Join{Rank: uint32(r), Start: c.start, State: c.states[r], Call: 7})
		}
		w.turn()
		got := w.sidecar.take()
		for _, rank := range []string{"refuse rank 0: ", "refuse rank 1: "} {
			if !slices.ContainsFunc(got,
				func(l string) bool { return strings.HasPrefix(l, rank) && strings.Contains(l, c.want) }) {
				t.Errorf("%s: %s%s is missing in %v", c.name, rank, c.want, got)
			}
		}
	}
	w.m.Joined(w.sidecar, &proto.Join{Rank: 9, Start: "fresh"})
	w.turn()
	if !has(w.sidecar.take(), "refuse rank 9") {
		t.Error("a rank that is none was not refused")
	}
}

// TestARunOfAnotherUpHasHistory: a rank that may have had batches, also of an unfinished step, must declare its start.
func TestARunOfAnotherUpHasHistory(t *testing.T) {
	w := newWorld(t, 1)
	w.connect()
	w.join(0, "", nil)
	w.restart()
	w.connect()
	w.join(0, "", nil)
	if got := w.sidecar.take(); !has(got, "begin rank 0 attempt 2 step 0") {
		t.Fatalf("the same up has to let a rank begin whose answer was lost: %v", got)
	}
	w.cfg.Up = "another"
	w.restart()
	w.connect()
	w.join(0, "", nil)
	if got := w.sidecar.take(); !has(got, "refuse rank 0: this run has history") {
		t.Fatalf("got %v", got)
	}
}

// TestAnAttemptWithoutAStepIsNoHistory: `up` may be killed between the first attempt and its first step. The trainers
// wait for the next `up`, and declare no start again. Its orchestrator may be killed, too, after it has sealed steps
// and before a trainer joins. A third `up` cannot know whether a trainer had a batch under the second one.
func TestAnAttemptWithoutAStepIsNoHistory(t *testing.T) {
	for _, c := range []struct {
		name  string
		lives []string // the further orchestrators, each by the `up` that starts it
		want  string
	}{
		{"the next up", []string{"second"}, "begin rank 0 attempt"},
		{"its second orchestrator", []string{"second", "second"}, "begin rank 0 attempt"},
		{"its third orchestrator", []string{"second", "second", "second"}, "begin rank 0 attempt"},
		{"a third up", []string{"second", "third"}, "refuse rank 0: this run has history"},
	} {
		w := newWorld(t, 1)
		w.connect()
		w.join(0, "", nil)
		opened := slices.IndexFunc(w.journal, func(f facts.Fact) bool { return f.GetOpened() != nil })
		w.journal = w.journal[:opened+1]
		for _, up := range c.lives {
			w.cfg.Up = up
			w.restart()
			w.connect()
		}
		if w.m.s.Next == 0 {
			t.Fatalf("%s: no step is sealed before the rank joins", c.name)
		}
		w.sidecar.take()
		w.join(0, "", nil)
		if got := w.sidecar.take(); !has(got, c.want) {
			t.Errorf("%s: got %v, want %s", c.name, got, c.want)
		}
	}
}

// TestANewAttemptDoesNotEndHistory: the steps of the first `up` are history under the next one, also in an attempt that
// the next one opened.
func TestANewAttemptDoesNotEndHistory(t *testing.T) {
	w := newWorld(t, 1)
	w.connect()
	w.join(0, "", nil)
	w.cfg.Up = "another"
	w.restart()
	w.connect()
	w.join(0, "fresh", nil)
	w.restart()
	w.connect()
	w.sidecar.take()
	w.join(0, "", nil)
	if got := w.sidecar.take(); !has(got, "refuse rank 0: this run has history") {
		t.Errorf("got %v", got)
	}
}

// TestStartingBelowTheWatermarkIsANewAttemptWithEqualBytes starts from a state, fresh, and after a restart of the
// orchestrator.
func TestStartingBelowTheWatermarkIsANewAttemptWithEqualBytes(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(6)
	w.joinAll("state", state(t, w, 2))
	w.consume(6)
	w.joinAll("fresh", nil)
	w.restart()
	w.connect()
	w.joinAll("state", state(t, w, 4))
	w.consume(6)
	all := w.contents()
	if len(all) != 4 {
		t.Fatalf("%d attempts, want 4", len(all))
	}
	for attempt, steps := range all {
		for step, digest := range steps {
			if digest != all[1][step] && all[1][step] != "" {
				t.Errorf("attempt %d, step %d differs from attempt 1", attempt, step)
			}
		}
	}
}

func TestLatestGoesOnInTheSameAttemptUnlessARankIsAhead(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(2)
	w.joinAll("latest", nil)
	if w.m.s.CurrentAttempt() != 1 {
		t.Fatalf("attempt %d, want 1", w.m.s.CurrentAttempt())
	}
	w.m.Committed(w.sidecar, &proto.Commit{Rank: 0, Attempt: 1, Step: 2})
	w.turn()
	w.joinAll("latest", nil)
	if w.m.s.CurrentAttempt() != 2 || w.m.s.Attempt.Step != 2 {
		t.Fatalf("attempt %d from step %d, want 2 from 2: rank 0 would see step 2 twice", w.m.s.CurrentAttempt(),
			w.m.s.Attempt.Step)
	}
}

// TestRanksThatLeftTogetherStartTogether: ranks that died together come back one after the other. The rank at the
// watermark may not begin before the rank ahead of it has declared its start, or each would wait for the other.
func TestRanksThatLeftTogetherStartTogether(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(2)
	w.m.Committed(w.sidecar, &proto.Commit{Rank: 1, Attempt: 1, Step: 2})
	w.m.ranks.Leave(w.sidecar, 0)
	w.m.ranks.Leave(w.sidecar, 1)
	w.turn()
	w.sidecar.take()
	w.join(0, "latest", nil)
	if got := w.sidecar.take(); has(got, "begin") {
		t.Fatalf("rank 0 began without rank 1: %v", got)
	}
	w.join(1, "latest", nil)
	if got := w.sidecar.take(); !has(got, "begin rank 0 attempt 2 step 2") ||
		!has(got, "begin rank 1 attempt 2 step 2") {
		t.Fatalf("got %v", got)
	}
}

func TestAnotherPlacingIsANewAttempt(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(2)
	before := w.contents()[1]
	w.cfg = newConfig(t, 1)
	w.restart()
	w.connect()
	w.joinAll("latest", nil)
	w.consume(3)
	if w.m.s.CurrentAttempt() != 2 {
		t.Fatalf("attempt %d, want 2", w.m.s.CurrentAttempt())
	}
	for step, digest := range w.contents()[2] {
		if was := before[step]; was != "" && strings.Fields(digest)[0] != strings.Fields(was)[0] {
			t.Errorf("step %d has another content with another number of ranks", step)
		}
	}
}

func TestARankAtItsPlaceGoesOnAlone(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(2)
	w.sidecar.take()
	w.join(1, "latest", nil)
	if got := w.sidecar.take(); !has(got, "begin rank 1 attempt 1 step 2") {
		t.Fatalf("got %v", got)
	}
	w.m.Joined(w.sidecar, &proto.Join{Rank: 0, Start: "continue", Attempt: 1, Step: 2, Microbatch: 3})
	w.turn()
	if got := w.sidecar.take(); !has(got, "begin rank 0 attempt 1 step 2 microbatch 3") {
		t.Fatalf("got %v", got)
	}
	w.m.Joined(w.sidecar, &proto.Join{Rank: 0, Start: "continue", Attempt: 4, Step: 2})
	w.turn()
	if got := w.sidecar.take(); !has(got, "refuse rank 0") {
		t.Fatalf("a position in an unknown attempt was accepted: %v", got)
	}
}

// TestARankGoesOnFromAStateAheadOfItsCommits: a trainer saves its state after a step and dies before it asks for
// the next, so its commit was never sent. The others have gone on. The state shows that the step was consumed.
func TestARankGoesOnFromAStateAheadOfItsCommits(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(2)
	saved := state(t, w, 3)
	w.m.Committed(w.sidecar, &proto.Commit{Rank: 0, Attempt: 1, Step: 2})
	w.m.ranks.Leave(w.sidecar, 1)
	w.turn()
	w.sidecar.take()
	w.join(1, "state", saved)
	if got := w.sidecar.take(); !has(got, "begin rank 1 attempt 1 step 3") {
		t.Fatalf("got %v", got)
	}
	if w.m.s.Watermark != 3 {
		t.Errorf("the watermark is %d, and every rank stands at 3", w.m.s.Watermark)
	}
}

// TestRanksThatAllLeftStartTogether: the first rank that comes back does not go on alone: the others may declare
// another start.
func TestRanksThatAllLeftStartTogether(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(2)
	for _, c := range []struct{ second, want string }{
		{"fresh", "refuse rank %: ranks start at different places"},
		{"latest", "begin rank % attempt 1 step 2"},
	} {
		w.m.ranks.Leave(w.sidecar, 0)
		w.m.ranks.Leave(w.sidecar, 1)
		w.sidecar.take()
		w.join(0, "latest", nil)
		if got := w.sidecar.take(); has(got, "begin") {
			t.Fatalf("rank 0 went on alone: %v", got)
		}
		w.join(1, c.second, nil)
		got := w.sidecar.take()
		for _, r := range []string{"0", "1"} {
			if want := strings.Replace(c.want, "%", r, 1); !has(got, want) {
				t.Errorf("%s: %q is missing in %v", c.second, want, got)
			}
		}
	}
}

// insideStep returns a state after some microbatches of its step.
func insideStep(state []byte, microbatch int, placement string) []byte {
	return fmt.Appendf(nil, `%s,"microbatch":%d,"placement":%q}`, state[:len(state)-1], microbatch, placement)
}

// TestMidStepStatesUnderAnotherPlacementGoBack: a state from inside a step continues there under its placement, and at
// the beginning of the step under another. People and trainers are told.
func TestMidStepStatesUnderAnotherPlacementGoBack(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(3)
	saved := state(t, w, 2)
	placement := strings.Fields(w.contents()[1][2])[1]
	w.sidecar.take()
	w.joinAll("state", insideStep(saved, 2, placement))
	if got := w.sidecar.take(); !has(got, "begin rank 1 attempt 2 step 2 microbatch 2") ||
		has(got, "begin rank 1 attempt 2 step 2 microbatch 2 (") {
		t.Fatalf("got %v", got)
	}
	w.lines = nil
	w.joinAll("state", insideStep(saved, 2, strings.Repeat("0", 32)))
	got := w.sidecar.take()
	for _, rank := range []string{"0", "1"} {
		if !has(got, "begin rank "+rank+" attempt 3 step 2 microbatch 0 (the state was saved inside step 2, "+
			"after 2 of its microbatches") {
			t.Fatalf("rank %s: got %v", rank, got)
		}
	}
	if n := strings.Count(strings.Join(w.lines, "\n"), "warning: the state was saved inside step 2"); n != 1 {
		t.Errorf("people were told %d times: %q", n, w.lines)
	}
	w.joinAll("latest", nil)
	if got := w.sidecar.take(); !has(got, "begin rank 0 attempt 3 step 2 microbatch 0") ||
		has(got, "begin rank 0 attempt 3 step 2 microbatch 0 (") {
		t.Fatalf("a later start: %v", got)
	}
}

// TestMidStepStatesBeyondTheirStepAreRefused: a state beyond the step's microbatches is refused, and one in a step that
// the run does not reach.
func TestMidStepStatesBeyondTheirStepAreRefused(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(3)
	saved := state(t, w, 2)
	placement := strings.Fields(w.contents()[1][2])[1] // of 8 sequences, 2 ranks, 1 in a microbatch
	w.sidecar.take()
	w.joinAll("state", insideStep(saved, 4, placement))
	if got := w.sidecar.take(); !has(got,
		"refuse rank 0: the state was saved inside step 2, after 4 of its microbatches, and it has 4") ||
		has(got, "begin") {
		t.Fatalf("got %v", got)
	}
	w = newWorld(t, 2)
	w.cfg.Spec.StopSteps = 2
	w.restart()
	w.connect()
	w.joinAll("state", insideStep(saved, 2, placement))
	if got := w.sidecar.take(); !has(got,
		"refuse rank 0: the state was saved inside step 2, and the run ends before it") ||
		!has(got, "refuse rank 1") ||
		has(got, "begin") {
		t.Fatalf("got %v", got)
	}
	w.joinAll("latest", nil)
	if got := w.sidecar.take(); !has(got, "begin rank 0") || !has(got, "ended after 2") {
		t.Fatalf("the run does not go on after a refused start: %v", got)
	}
}

// TestAStopBehindTheStateEndsTheRun: the run ends at once, and every rank hears so.
func TestAStopBehindTheStateEndsTheRun(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(5)
	from := state(t, w, 5)
	w = newWorld(t, 2)
	w.cfg.Spec.StopSteps = 3
	w.restart()
	w.connect()
	w.joinAll("state", from)
	if got := w.sidecar.take(); !has(got, "begin rank 1 attempt 1 step 5") || !has(got, "ended after 5") ||
		has(got, "plan") {
		t.Fatalf("got %v", got)
	}
}

// TestLatestFollowsTheWatermark: a rank that is ahead of the others and comes back alone waits for them. Then it goes
// on at its own position, in the middle of the run and at its end.
func TestLatestFollowsTheWatermark(t *testing.T) {
	for _, end := range []bool{false, true} {
		w := newWorld(t, 2)
		w.records = 40
		w.connect()
		w.joinAll("fresh", nil)
		for end && w.m.s.Ended == nil {
			w.consume(w.m.s.Watermark + 1)
		}
		from, to := w.m.s.Watermark, w.m.s.Watermark+2
		if end {
			to = w.m.s.Ended.Steps
		}
		if from == to {
			t.Fatal("rank 1 has nothing left to take")
		}
		for step := from; step < to; step++ {
			w.m.Committed(w.sidecar, &proto.Commit{Rank: 0, Attempt: 1, Step: step})
		}
		w.m.ranks.Leave(w.sidecar, 0)
		w.turn()
		w.sidecar.take()
		w.join(0, "latest", nil)
		if got := w.sidecar.take(); has(got, "begin") {
			t.Fatalf("rank 0 began below its position: %v", got)
		}
		for step := from; step < to; step++ {
			w.m.Committed(w.sidecar, &proto.Commit{Rank: 1, Attempt: 1, Step: step})
		}
		w.turn()
		got := w.sidecar.take()
		if !has(got, fmt.Sprintf("begin rank 0 attempt 1 step %d", to)) || has(got, "ended after") != end ||
			w.m.Done() != end {
			t.Fatalf("at the end %v: %v, done %v", end, got, w.m.Done())
		}
	}
}

// TestARankThatDiedBeforeTheOrchestratorGoesOn: the new orchestrator does not know the rank, and the other ranks serve.
func TestARankThatDiedBeforeTheOrchestratorGoesOn(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(2)
	w.restart()
	w.connect()
	w.m.Joined(w.sidecar, &proto.Join{Rank: 1, Start: "continue", Attempt: 1, Step: 2})
	w.m.Committed(w.sidecar, &proto.Commit{Rank: 1, Attempt: 1, Step: 3})
	w.turn()
	w.sidecar.take()
	w.join(0, "latest", nil)
	if got := w.sidecar.take(); !has(got, "begin rank 0 attempt 1 step 2") || has(got, "begin rank 1") {
		t.Fatalf("got %v", got)
	}
	w.consume(5)
	if w.m.s.CurrentAttempt() != 1 || w.m.s.Watermark != 5 {
		t.Fatalf("attempt %d, watermark %d", w.m.s.CurrentAttempt(), w.m.s.Watermark)
	}
}
