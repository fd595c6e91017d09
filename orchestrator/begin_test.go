package orchestrator

import (
	"fmt"
	"strings"
	"testing"

	"millrace/orchestrator/facts"
	"millrace/proto"
)

// TestAnUnansweredAttemptIsNoHistory: the orchestrator is lost between opening the first attempt and answering. The
// ranks declare the same starts again.
func TestAnUnansweredAttemptIsNoHistory(t *testing.T) {
	for _, start := range []string{"", "fresh", "latest"} {
		w := newWorld(t, 2)
		w.connect()
		w.joinAll("", nil)
		w.restart()
		w.connect()
		w.joinAll(start, nil)
		if got := w.sidecar.take(); !has(got, "begin rank 0") || !has(got, "begin rank 1") || has(got, "refuse") {
			t.Fatalf("start %q: %v", start, got)
		}
	}
}

// TestARankWhoseAnswerWasLostBeginsAlone: the orchestrator is lost after it answered one rank of two.
func TestARankWhoseAnswerWasLostBeginsAlone(t *testing.T) {
	for _, start := range []string{"", "fresh", "latest"} {
		w := newWorld(t, 2)
		w.connect()
		w.joinAll(start, nil)
		w.restart()
		w.connect()
		w.reconnect(&proto.RankPosition{Rank: 0, Attempt: 1, Serving: true})
		w.turn()
		w.sidecar.take()
		if waits := w.m.Waiting().Text; !strings.Contains(waits, "rank 1") {
			t.Errorf("start %q: status says %q", start, waits)
		}
		w.join(1, start, nil)
		if got := w.sidecar.take(); !has(got, "begin rank 1 attempt 1 step 0") || has(got, "begin rank 0") {
			t.Fatalf("start %q: %v", start, got)
		}
		w.consume(2)
		if w.m.s.Watermark != 2 {
			t.Fatalf("start %q: the run stands at %d", start, w.m.s.Watermark)
		}
	}
}

// TestARankWhoseAnswerWasLostOnTheWayBeginsAlone: the sidecar or its stream is lost after one rank of two received its
// answer.
func TestARankWhoseAnswerWasLostOnTheWayBeginsAlone(t *testing.T) {
	for _, start := range []string{"fresh", "latest"} {
		for _, ahead := range []uint64{0, 2} {
			w := newWorld(t, 2)
			w.connect()
			w.joinAll(start, nil)
			for step := range ahead {
				w.m.Committed(w.sidecar, &proto.Commit{Rank: 0, Attempt: 1, Step: step})
			}
			w.m.SidecarDown(w.sidecar, "sidecar-0")
			w.reconnect(&proto.RankPosition{Rank: 0, Attempt: 1, Below: ahead, Serving: true})
			w.turn()
			w.sidecar.take()
			w.join(1, start, nil)
			if got := w.sidecar.take(); !has(got, "begin rank 1 attempt 1 step 0") || has(got, "begin rank 0") {
				t.Fatalf("start %q, rank 0 at step %d: %v", start, ahead, got)
			}
		}
	}
}

// TestARankWhoseAnswerInsideAStepWasLostBeginsAlone: as before, and the ranks start from a state inside a step. The
// rank begins where the others have begun.
func TestARankWhoseAnswerInsideAStepWasLostBeginsAlone(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		w := newWorld(t, 2)
		w.connect()
		w.joinAll("fresh", nil)
		w.consume(3)
		placement, microbatch := strings.Fields(w.contents()[1][2])[1], 2
		if elsewhere {
			placement, microbatch = strings.Repeat("0", len(placement)), 0
		}
		saved := insideStep(state(t, w, 2), 2, placement)
		w.joinAll("state", saved)
		w.restart()
		w.connect()
		w.reconnect(&proto.RankPosition{Rank: 0, Attempt: 2, Below: 2, Serving: true})
		w.turn()
		w.sidecar.take()
		w.lines = nil
		w.join(1, "state", saved)
		got, want := w.sidecar.take(), fmt.Sprintf("begin rank 1 attempt 2 step 2 microbatch %d", microbatch)
		if !has(got, want) || has(got, "begin rank 0") || has(got, want+" (") != elsewhere {
			t.Fatalf("under another placement: %t: %v", elsewhere, got)
		}
		if len(w.lines) > 0 {
			t.Errorf("people were told again: %q", w.lines)
		}
	}
}

// TestARankInsideAStepDoesNotBeginAtAnotherMicrobatch: the attempt began inside its first step, and one rank comes back
// at the beginning of the step. Alone it would train on microbatches that the others have left out.
func TestARankInsideAStepDoesNotBeginAtAnotherMicrobatch(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(3)
	placement := strings.Fields(w.contents()[1][2])[1]
	w.joinAll("state", insideStep(state(t, w, 2), 2, placement))
	restored, err := facts.Restore(w.m.s.Snapshot(), w.cfg.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if microbatch, of := restored.Inside(); microbatch != 2 || of != placement {
		t.Errorf("a snapshot has microbatch %d of placement %q", microbatch, of)
	}
	w.restart()
	w.connect()
	w.reconnect(&proto.RankPosition{Rank: 0, Attempt: 2, Below: 2, Serving: true})
	w.turn()
	w.sidecar.take()
	w.join(1, "latest", nil)
	if got := w.sidecar.take(); has(got, "begin") {
		t.Fatalf("rank 1 began alone: %v", got)
	}
}

// TestWaitingNamesTheRanksToStartAgain: one rank that goes back needs all others to do so.
func TestWaitingNamesTheRanksToStartAgain(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(4)
	w.join(1, "state", state(t, w, 2))
	if waits := w.m.Waiting().Text; !strings.Contains(waits, "restart rank 0 too") {
		t.Errorf("status says %q", waits)
	}
	w.join(0, "state", state(t, w, 2))
	if w.m.s.CurrentAttempt() != 2 || w.m.Waiting().Text != "" {
		t.Errorf("attempt %d, %q", w.m.s.CurrentAttempt(), w.m.Waiting().Text)
	}
}

// TestEverySidecarKnowsTheReasonForWaiting checks the sidecar that came last and the sidecars that were there.
func TestEverySidecarKnowsTheReasonForWaiting(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	late := &box{}
	w.m.SidecarUp(late, &proto.SidecarHello{Version: testVersion(), Name: "sidecar-1"})
	w.turn()
	if got := late.take(); !has(got, "Waiting") {
		t.Errorf("the late one heard %v", got)
	}
	w.joinAll("fresh", nil)
	for _, b := range []*box{w.sidecar, late} {
		var last string
		for _, msg := range b.got {
			if o, ok := msg.(*proto.SidecarOrder); ok && o.GetWaiting() != nil {
				last = o.GetWaiting().Text
			}
		}
		if last != "" {
			t.Errorf("one still hears %q", last)
		}
	}
}

// TestARankThatGoesBackNamesTheOthers: the other ranks live and wait for steps that do not come.
func TestARankThatGoesBackNamesTheOthers(t *testing.T) {
	w := newWorld(t, 4)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(5)
	w.m.ranks.Leave(w.sidecar, 0)
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
	const first = "rank 0 starts again at step 2, and the run goes on when all ranks do: restart ranks 1, 2, 3 " +
		"too, from the same checkpoint"
	if got := waiting(); got != first {
		t.Errorf("ranks that live are told %q, want %q", got, first)
	}
	w.m.ranks.Leave(w.sidecar, 2)
	w.m.ranks.Leave(w.sidecar, 3)
	w.join(1, "state", state(t, w, 2))
	if got := waiting(); got != "waiting for ranks 2, 3 to connect and say where they start" {
		t.Errorf("with ranks 2 and 3 away they are told %q", got)
	}
	w.join(2, "state", state(t, w, 2))
	if got := waiting(); got != "waiting for rank 3 to connect and say where it starts" {
		t.Errorf("with rank 3 away they are told %q", got)
	}
	w.join(3, "state", state(t, w, 2))
	if w.m.s.CurrentAttempt() != 2 || w.m.Waiting().Text != "" {
		t.Errorf("attempt %d, waiting for %q", w.m.s.CurrentAttempt(), w.m.Waiting().Text)
	}
}
