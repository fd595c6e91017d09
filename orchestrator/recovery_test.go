package orchestrator

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/orchestrator/facts"
	"millrace/proto"
)

// TestCrashAfterEveryFact: an orchestrator that dies after any prefix of its journal goes on to the same plans.
func TestCrashAfterEveryFact(t *testing.T) {
	golden := newWorld(t, 2)
	golden.connect()
	golden.joinAll("fresh", nil)
	golden.consume(6)
	want := golden.contents()[1]
	for cut := 1; cut <= len(golden.journal); cut++ {
		w := newWorld(t, 2)
		w.journal = append([]facts.Fact(nil), golden.journal[:cut]...)
		w.restart()
		w.connect()
		w.joinAll("latest", nil)
		w.consume(6)
		for attempt, steps := range w.contents() {
			for step, digest := range steps {
				if want[step] != "" && digest != want[step] {
					t.Fatalf("cut after %d facts: step %d of attempt %d differs", cut, step, attempt)
				}
			}
		}
		if w.m.s.Watermark != 6 {
			t.Fatalf("cut after %d facts: watermark %d", cut, w.m.s.Watermark)
		}
	}
}

func TestAFiniteRunEndsOnceEveryRankHasEverything(t *testing.T) {
	w := newWorld(t, 2)
	w.records = 40
	w.connect()
	w.joinAll("fresh", nil)
	for range 100 {
		if w.m.Done() {
			break
		}
		w.consume(w.m.s.Watermark + 1)
	}
	if !w.m.Done() || !has(w.sidecar.take(), "ended after") {
		t.Fatal("the run did not end")
	}
	var tokens, want uint64
	for _, f := range w.journal {
		if f.Plan != nil {
			for _, n := range f.Plan.Assignments.Length {
				tokens += uint64(n)
			}
		}
	}
	for _, name := range sourceNames {
		for o := range w.records {
			want += uint64(length(name, o))
		}
	}
	if tokens != want {
		t.Fatalf("%d tokens were planned, the sources hold %d", tokens, want)
	}
	// After a restart now, there is no rank to wait for.
	w.restart()
	w.connect()
	if !w.m.Done() {
		t.Fatal("a new orchestrator of the same up waits for ranks that have everything")
	}
	// The same directory again: a rank that starts at the end has consumed the stream.
	w.cfg.Up = "another"
	w.restart()
	w.connect()
	if w.m.Done() {
		t.Fatal("a finished run ended before any rank declared a start")
	}
	w.joinAll("latest", nil)
	if !w.m.Done() || !has(w.sidecar.take(), "ended after") {
		t.Fatal("a finished run did not end again")
	}
}

func TestAReplacedLoaderIsFenced(t *testing.T) {
	w := newWorld(t, 1)
	w.connect()
	w.joinAll("fresh", nil)
	old, terms := w.loader, reader(w.m, "web", 0).Term
	w.loader = &box{}
	hello := &proto.LoaderHello{Version: testVersion(), Name: "loader-0", Pid: 2, Identity: "2"}
	if err := w.m.roster.Connect(w.loader, hello); err != nil {
		t.Fatal(err)
	}
	w.turn()
	if !has(old.take(), "bye: ") {
		t.Error("the old process was not told to leave")
	}
	before := w.queue("web").Next()
	hearOffers(
		w.m,
		old,
		"loader-0",
		terms,
		&proto.Offers{
			Source:  "web",
			Ordinal: []uint64{uint64(before)},
			Epoch:   []uint32{0},
			Shard:   []uint32{0},
			Record:  []uint64{0},
			Tokens:  []uint32{1},
		},
	)
	hearOffers(
		w.m,
		w.loader,
		"loader-0",
		terms,
		&proto.Offers{
			Source:  "web",
			Ordinal: []uint64{uint64(before)},
			Epoch:   []uint32{0},
			Shard:   []uint32{0},
			Record:  []uint64{0},
			Tokens:  []uint32{1},
		},
	)
	if w.queue("web").Next() != before {
		t.Error("an offer of an old session or term was taken")
	}
	w.m.roster.Disconnect(old, "loader-0") // late news of the old session
	if !isConnected(w.m, "loader-0") {
		t.Error("late news of an old session removed the new one")
	}
}

func TestAFactThatChangesFailsTheRun(t *testing.T) {
	w := newWorld(t, 1)
	w.connect()
	w.joinAll("fresh", nil)
	first := uint64(w.queue("web").First())
	hearOffers(
		w.m,
		w.loader,
		"loader-0",
		reader(w.m, "web", 0).Term,
		&proto.Offers{
			Source:  "web",
			Ordinal: []uint64{first},
			Epoch:   []uint32{0},
			Shard:   []uint32{0},
			Record:  []uint64{first},
			Tokens:  []uint32{9999},
		},
	)
	if err := w.m.Failed(); !errors.Is(err, millrace.ErrMismatch) ||
		!strings.Contains(err.Error(), "changed during the run") {
		t.Fatalf("got %v", err)
	}
	w.turn()
	if !has(w.sidecar.take(), "failed: source web") {
		t.Error("the trainers were not told")
	}
	late := &box{}
	w.m.SidecarUp(late, &proto.SidecarHello{Version: testVersion(), Name: "sidecar-1"})
	w.turn()
	if !has(late.take(), "failed: ") {
		t.Error("a sidecar that came late was not told")
	}
}

func TestChangedFilesAreRefusedAfterARestart(t *testing.T) {
	w := newWorld(t, 1)
	w.connect()
	w.restart()
	b := &box{}
	if err := w.m.roster.Connect(b, &proto.LoaderHello{Version: testVersion(), Name: "loader-0"}); err != nil {
		t.Fatal(err)
	}
	hearManifest(w.m, b, "loader-0", &proto.Manifest{Source: "web", Fingerprint: append(make([]byte, 15), 1)})
	if err := w.m.Failed(); err == nil || !strings.Contains(err.Error(), "its files changed") {
		t.Fatalf("got %v", err)
	}
}

func TestTheQuarantineBudgetEndsTheRun(t *testing.T) {
	w := newWorld(t, 1)
	w.reject = func(source string, o uint64) string {
		if source == "web" && o%10 == 3 {
			return "invalid UTF-8"
		}
		return ""
	}
	w.connect()
	w.joinAll("fresh", nil)
	next := uint64(0)
	for range 50 {
		if w.m.Failed() != nil {
			break
		}
		next = w.m.s.Next
		w.consume(w.m.s.Watermark + 1)
	}
	if w.m.s.Watermark != next || w.m.s.Next != next || next < 2 {
		t.Errorf("the run failed at step %d, and its ranks had consumed %d: not at its place", next, w.m.s.Watermark)
	}
	err := w.m.Failed()
	if !errors.Is(err, millrace.ErrBadSample) || !strings.Contains(err.Error(), "its quarantine budget takes 3") ||
		!strings.Contains(err.Error(), "a.jsonl#") {
		t.Fatalf("got %v", err)
	}
	if n := w.m.s.Quarantined["web"]; n > 3 {
		t.Errorf("%d were journaled, the budget takes 3", n)
	}
}

// TestARankThatIsThroughIsNotWaitedFor: a rank that has consumed the whole stream leaves, and no sidecar may be left
// that knows of it. So the journal has it before the rank is answered.
func TestARankThatIsThroughIsNotWaitedFor(t *testing.T) {
	w := newWorld(t, 2)
	w.records = 200
	w.connect()
	w.joinAll("fresh", nil)
	for step := uint64(0); w.m.s.Ended == nil; step++ {
		w.consume(step + 1)
	}
	steps := w.m.s.Ended.Steps
	w.sidecar.take()
	for step := w.m.s.Watermark; step < steps; step++ {
		w.m.Committed(w.sidecar, &proto.Commit{Rank: 0, Attempt: 1, Step: step})
	}
	answered := func() bool {
		return slices.ContainsFunc(w.sidecar.got, func(msg any) bool {
			c := msg.(*proto.SidecarOrder).GetCommitted()
			return c != nil && c.Rank == 0 && c.Below == steps
		})
	}
	if w.perform(); answered() {
		t.Fatal("the last commit was answered before it was journaled")
	}
	if w.turn(); !answered() {
		t.Fatal("the last commit was not answered")
	}
	if w.m.Done() {
		t.Fatal("done while rank 1 has consumed nothing of it")
	}
	w.restart()
	w.connect()
	w.m.Joined(w.sidecar, &proto.Join{Rank: 1, Start: "continue", Attempt: 1, Step: w.m.s.Watermark})
	w.turn()
	for step := w.m.s.Watermark; step < steps; step++ {
		w.m.Committed(w.sidecar, &proto.Commit{Rank: 1, Attempt: 1, Step: step})
	}
	w.turn()
	if !w.m.Done() {
		t.Fatalf("rank 0 is waited for: %v, %s", w.m.s, w.m.Waiting().Text)
	}
}
