package link

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/proto"
	"millrace/sidecar"
)

func TestARankJoinsAndBegins(t *testing.T) {
	w, x := newWorld(t, 2)
	if len(x.hello.Ranks) != 0 {
		t.Errorf("a new link says where ranks stand: %v", x.hello.Ranks)
	}
	answer := w.join(1,
		sidecar.Start{Kind: millrace.StartState, State: []byte("{}"), Override: []string{"seed"}, Step: 3})
	j := x.event().GetJoin()
	if j.Rank != 1 || j.Start != "state" || string(j.State) != "{}" || j.Override[0] != "seed" || j.Step != 3 {
		t.Fatalf("join %v", j)
	}
	x.order(1, &proto.SidecarOrder{
		Order: &proto.SidecarOrder_Begin{
			Begin: &proto.Begin{Rank: 1, Call: j.Call, Attempt: 2, Step: 9, Microbatch: 1, State: []byte("s")},
		},
	})
	a := <-answer
	if b := a.begin; a.err != nil || b.Attempt != 2 || b.Term != 1 || b.Step != 9 || b.Microbatch != 1 ||
		string(b.State) != "s" ||
		b.Topology.Ranks != 2 ||
		b.PadMultiple != 4 ||
		b.Shapes[0].SequenceLength != 64 {
		t.Fatalf("%v: %+v", a.err, a.begin)
	}
	if w.term.Load() != 1 {
		t.Error("the term was not reported")
	}
	answer = w.join(0, sidecar.Start{})
	j = x.event().GetJoin()
	x.order(1, &proto.SidecarOrder{
		Order: &proto.SidecarOrder_Refusal{
			Refusal: &proto.Refusal{Rank: 0, Call: j.Call, Reason: "this run has history"},
		},
	})
	var start *sidecar.StartError
	if a := <-answer; !errors.As(a.err, &start) || start.Reason != "this run has history" {
		t.Fatalf("a refused start: %v", a.err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := w.link.Join(ctx, 0, sidecar.Start{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("a trainer that is gone: %v", err)
	}
	w.link.Left(0)
	late := x.event().GetJoin()
	if x.event().GetLeft().GetRank() != 0 {
		t.Error("that it left was not said")
	}
	// no call waits for it
	x.order(1, &proto.SidecarOrder{
		Order: &proto.SidecarOrder_Refusal{Refusal: &proto.Refusal{Call: late.Call, Reason: "late"}},
	})
	w.begin(x, 0, 2, 9)
}

// TestAHostNamesItsPresentRanks: these are the ranks that have begun, without ranks that left or were gone before their
// answer came.
func TestAHostNamesItsPresentRanks(t *testing.T) {
	w, x := newWorld(t, 3)
	x.welcome("web")
	for rank := range uint32(2) {
		w.begin(x, rank, 1, 0)
	}
	x.order(1,
		&proto.SidecarOrder{Order: &proto.SidecarOrder_Begin{Begin: &proto.Begin{Rank: 2, Call: 99, Attempt: 1}}})
	w.link.Left(1)
	x.order(1, &proto.SidecarOrder{Order: &proto.SidecarOrder_RollCall{RollCall: &proto.RollCall{Call: 7}}})
	if rank := x.event().GetLeft().GetRank(); rank != 1 {
		t.Fatalf("rank %d left", rank)
	}
	if p := x.event().GetPresent(); p.GetCall() != 7 || !slices.Equal(p.GetRanks(), []uint32{0}) {
		t.Errorf("it says %v", p)
	}
}

func TestPlansAreGivenOnce(t *testing.T) {
	w, x := newWorld(t, 1)
	x.welcome("web")
	w.begin(x, 0, 1, 0)
	got := make(chan *sidecar.StepPlan, 1)
	go func() { // ends with the plan
		p, err := w.link.Plan(w.ctx(), 1, 1)
		if err != nil {
			t.Error(err)
		}
		got <- p
	}()
	x.plan(planOf(1, 0))
	x.plan(planOf(1, 1))
	if p := <-got; p.Step != 1 || string(p.State) != `{"step":1}` || len(p.Sources) != 1 ||
		p.Sources[0].Shards[0] != "a.jsonl" {
		t.Fatalf("plan %+v", p)
	}
	x.plan(planOf(1, 1)) // a new orchestrator repeats its plans
	x.order(1, &proto.SidecarOrder{Order: &proto.SidecarOrder_Ended{Ended: &proto.Ended{Attempt: 1, Steps: 2}}})
	if _, err := w.link.Plan(w.ctx(), 1, 2); err != io.EOF {
		t.Fatalf("beyond the end: %v", err)
	}
	x.plan(planOf(2, 1)) // the next attempt: the link drops the plans and the end of the last one
	eventually(t, func() bool { _, err := w.link.Plan(w.ctx(), 1, 1); return err != nil })
	var run *sidecar.RunError
	if _, err := w.link.Plan(w.ctx(), 1, 1); !errors.As(err, &run) ||
		!strings.Contains(run.Reason, "attempt 1 was replaced by attempt 2") {
		t.Fatalf("an attempt that is over: %v", err)
	}
	short, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := w.link.Plan(short, 2, 5); !errors.Is(err, context.Canceled) {
		t.Fatalf("the end of attempt 1 is taken for that of attempt 2: %v", err)
	}
	x.plan(planOf(1, 4)) // late, of an attempt that is over
	other := planOf(2, 1)
	other.Placement = []byte("another placing!")
	x.plan(other)
	eventually(t, func() bool { _, err := w.link.Plan(w.ctx(), 2, 1); return err != nil })
	if _, err := w.link.Plan(w.ctx(), 2, 1); !errors.As(err, &run) || !strings.Contains(run.Reason, "planned twice") {
		t.Fatalf("a second copy that differs: %v", err)
	}
	if f := x.event().GetFatal(); f.GetReason() != run.Reason {
		t.Errorf("the orchestrator was told %v", f)
	}
}

// TestCommitsSurviveTheOrchestrator: unanswered commits are repeated, and a new orchestrator learns the positions.
func TestCommitsSurviveTheOrchestrator(t *testing.T) {
	w, x := newWorld(t, 2)
	w.begin(x, 0, 3, 5)
	w.begin(x, 1, 3, 5)
	done := make(chan error, 1)
	go func() { done <- w.link.Commit(w.ctx(), 0, 3, 5) }() // read below
	if c := x.event().GetCommit(); c.Rank != 0 || c.Attempt != 3 || c.Step != 5 {
		t.Fatalf("commit %v", c)
	}
	x.committed(0, 3, 6)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := w.link.Commit(w.ctx(), 0, 3, 5); err != nil { // repeated, and known already
		t.Fatal(err)
	}
	go func() { done <- w.link.Commit(w.ctx(), 0, 3, 7) }() // read below
	x.event()
	pending := w.join(1, sidecar.Start{Kind: millrace.StartLatest})
	call := x.event().GetJoin().Call
	w.orchestrate()
	x = w.orch.next(t)
	below := map[uint32]uint64{}
	for _, p := range x.hello.Ranks {
		if p.Attempt != 3 || !p.Serving {
			t.Errorf("position %v", p)
		}
		below[p.Rank] = p.Below
	}
	if len(below) != 2 || below[0] != 8 || below[1] != 5 {
		t.Fatalf("the ranks stand at %v", below)
	}
	if j := x.event().GetJoin(); j.GetCall() != call || j.Start != "latest" {
		t.Fatalf("a join without an answer is said again: %v", j)
	}
	if c := x.event().GetCommit(); c.GetRank() != 0 || c.Step != 7 {
		t.Fatalf("a commit without an answer is said again: %v", c)
	}
	x.committed(0, 2, 9) // of another attempt
	x.committed(0, 3, 8)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	x.order(1, &proto.SidecarOrder{
		Order: &proto.SidecarOrder_Begin{Begin: &proto.Begin{Rank: 1, Call: call, Attempt: 4, Step: 2}},
	})
	if a := <-pending; a.err != nil || a.begin.Attempt != 4 {
		t.Fatal(a)
	}
	if err := w.link.Commit(w.ctx(), 1, 3, 9); err != nil { // of an attempt that is over: it does not wait
		t.Fatal(err)
	}
	if err := w.link.CheckpointSaved(w.ctx(), 1, 4, 1); err != nil {
		t.Fatal(err)
	}
	for {
		if s := x.event().GetSaved(); s != nil {
			if s.Step != 1 {
				t.Errorf("saved %v", s)
			}
			break
		}
	}
}

func TestAFailedRunIsToldToEverybody(t *testing.T) {
	w, x := newWorld(t, 2)
	w.begin(x, 0, 1, 0)
	pending := w.join(1, sidecar.Start{})
	x.event()
	x.order(1,
		&proto.SidecarOrder{Order: &proto.SidecarOrder_Failed{Failed: &proto.Fatal{Reason: "source web is gone"}}})
	var run *sidecar.RunError
	if a := <-pending; !errors.As(a.err, &run) || run.Reason != "source web is gone" {
		t.Fatalf("a join: %v", a.err)
	}
	if _, err := w.link.Plan(w.ctx(), 1, 0); !errors.As(err, &run) {
		t.Fatalf("a plan: %v", err)
	}
	if _, err := w.link.Join(w.ctx(), 0, sidecar.Start{}); !errors.As(err, &run) {
		t.Fatalf("a late join: %v", err)
	}
	if err := w.link.Commit(w.ctx(), 0, 1, 0); err != nil {
		t.Fatal(err)
	}
	w.orchestrate()
	x = w.orch.next(t)
	if c := x.event().GetCommit(); c == nil { // no join without a waiting call
		t.Error("the commit was not said again")
	}
}

func TestWaitingIsSaidInWords(t *testing.T) {
	w, x := newWorld(t, 1)
	x.order(1,
		&proto.SidecarOrder{Order: &proto.SidecarOrder_Waiting{Waiting: &proto.Waiting{Text: "opening sources web"}}})
	eventually(t, func() bool { return w.link.Waiting().Text == "opening sources web" })
	w.orch.server.Stop()
	eventually(t, func() bool { return strings.Contains(w.link.Waiting().Text, "the orchestrator is not there") })
	w.orchestrate()
	w.orch.next(t)
	eventually(t, func() bool { return w.link.Waiting().Text == "" })
}

// TestAStoppedOrchestratorIsNamed although its streams stay open.
func TestAStoppedOrchestratorIsNamed(t *testing.T) {
	w, _ := newWorld(t, 1)
	w.orch.stopped.Store(true)
	eventually(
		t,
		func() bool { return strings.Contains(w.link.Waiting().Text, "the orchestrator has not answered for") },
	)
	w.orch.stopped.Store(false)
	eventually(t, func() bool { return w.link.Waiting().Text == "" })
}

// TestOrdersOfAnOldTermAreRefused, including an order to leave.
func TestOrdersOfAnOldTermAreRefused(t *testing.T) {
	w, x := newWorld(t, 1)
	x.order(5, &proto.SidecarOrder{Order: &proto.SidecarOrder_Waiting{Waiting: &proto.Waiting{Text: "a"}}})
	x.order(4, &proto.SidecarOrder{Order: &proto.SidecarOrder_Bye{Bye: &proto.Bye{Reason: "from the past"}}})
	x = w.orch.next(t)
	x.order(4, &proto.SidecarOrder{Order: &proto.SidecarOrder_Failed{Failed: &proto.Fatal{Reason: "from the past"}}})
	x = w.orch.next(t)
	x.order(5, &proto.SidecarOrder{Order: &proto.SidecarOrder_Waiting{Waiting: &proto.Waiting{Text: "b"}}})
	eventually(t, func() bool { return w.link.Waiting().Text == "b" })
	if w.term.Load() != 5 {
		t.Errorf("term %d was reported last", w.term.Load())
	}
}

func TestALinkThatIsReplacedLeaves(t *testing.T) {
	w, x := newWorld(t, 1)
	x.order(1, &proto.SidecarOrder{
		Order: &proto.SidecarOrder_Bye{Bye: &proto.Bye{Reason: "another process took over as sidecar-0"}},
	})
	err := <-w.ended
	w.ended <- nil
	if err == nil || !strings.Contains(err.Error(), "told to leave: another process took over") {
		t.Fatalf("it ended with %v", err)
	}
}

// TestPlansAreKeptForTheSlowestRank and for a rank that has not begun.
func TestPlansAreKeptForTheSlowestRank(t *testing.T) {
	w, x := newWorld(t, 2)
	w.begin(x, 0, 1, 0)
	for step := range uint64(6) {
		x.plan(planOf(1, step))
	}
	kept := func() (steps []uint64) {
		w.link.progress.Lock()
		defer w.link.progress.Unlock()
		for step := range uint64(6) {
			if w.link.progress.plans[millrace.Step(step)] != nil {
				steps = append(steps, step)
			}
		}
		return steps
	}
	commit := func(rank uint32, step uint64) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- w.link.Commit(w.ctx(), millrace.Rank(rank), 1, millrace.Step(step)) }() // read below
		x.event()
		x.committed(rank, 1, step+1)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	commit(0, 3)
	if got := kept(); len(got) != 6 {
		t.Fatalf("kept %v while rank 1 has not begun", got)
	}
	w.begin(x, 1, 1, 0)
	commit(0, 4)
	if got := kept(); len(got) != 6 {
		t.Fatalf("kept %v while rank 1 stands at 0", got)
	}
	commit(1, 1)
	if got := kept(); len(got) != 4 || got[0] != 2 {
		t.Fatalf("kept %v while rank 1 stands at 2", got)
	}
	if _, err := w.link.Plan(w.ctx(), 1, 2); err != nil {
		t.Fatal(err)
	}
}
