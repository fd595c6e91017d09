package orchestrator

import (
	"errors"
	"strings"
	"testing"

	"millrace"
	"millrace/orchestrator/attempts"
	"millrace/proto"
)

// shapes returns a run of 4 ranks whose topology follows its ranks. More than 8 ranks are impossible.
func shapes(t *testing.T) *world {
	w := &world{t: t, cfg: shaped(t, 4), reject: func(string, uint64) string { return "" }}
	w.restart()
	w.connect()
	return w
}

func shaped(t *testing.T, ranks int) Config {
	cfg := newConfig(t, ranks)
	cfg.Placing.Tp, cfg.Placing.Cp, cfg.Placing.Pp = 1, 1, 1
	cfg.Reshape = func(to millrace.Topology) (*attempts.Topology, error) {
		if to.Ranks > 8 {
			return nil, errors.New("the batch does not divide")
		}
		return shaped(t, to.Ranks).Topology, nil
	}
	return cfg
}

// joinOf lets a rank of a host with so many ranks in the world join.
func (w *world) joinOf(from *box, world, rank uint32, start string) {
	msg := &proto.Join{Rank: rank, Start: start, Call: uint64(rank) + 1, World: world, Tp: 1, Cp: 1, Pp: 1}
	w.m.Joined(from, msg)
	w.turn()
}

// successor connects the next process of the sidecar, which serves other ranks.
func (w *world) successor() *box {
	next := &box{}
	if err := w.m.SidecarUp(next, &proto.SidecarHello{Version: testVersion(), Name: "sidecar-1"}); err != nil {
		w.t.Fatal(err)
	}
	return next
}

func (w *world) leave(ranks int) {
	for r := range ranks {
		w.m.ranks.Leave(w.sidecar, uint32(r))
	}
}

// TestTheTopologyFollowsTheRanks: ranks of another topology wait until all ranks have left. Then they open an attempt
// behind all steps that the others have consumed, also those of a commit in the same turn.
func TestTheTopologyFollowsTheRanks(t *testing.T) {
	w := shapes(t)
	for r := range uint32(4) {
		w.joinOf(w.sidecar, 4, r, "fresh")
	}
	w.consume(3)
	next := w.successor()
	w.joinOf(next, 2, 0, "latest")
	if got := next.take(); has(got, "begin") || has(got, "refuse") || w.m.cfg.Ranks != 4 {
		t.Fatalf("a rank of 2 joined beside ranks of 4: %v", got)
	}
	for r := range uint32(4) {
		w.m.Committed(w.sidecar, &proto.Commit{Rank: r, Attempt: 1, Step: 3})
	}
	w.leave(4)
	w.turn()
	if w.m.cfg.Ranks != 2 || w.m.s.Watermark != 4 {
		t.Fatalf("%d ranks at step %d", w.m.cfg.Ranks, w.m.s.Watermark)
	}
	planned := w.m.s.Next
	w.turn()
	if w.m.s.Next != planned {
		t.Error("a step was planned before the attempt of the next topology")
	}
	w.joinOf(next, 2, 1, "latest")
	got := next.take()
	for _, want := range []string{"begin rank 0 attempt 2 step 4", "begin rank 1 attempt 2 step 4"} {
		if !has(got, want) {
			t.Fatalf("%q lack %q", got, want)
		}
	}
	if p := w.m.s.Sealed[4].Plan; p.Ranks != 2 || p.Fence.Attempt != 2 {
		t.Errorf("the next plan has %d ranks in attempt %d", p.Ranks, p.Fence.Attempt)
	}
	// A new orchestrator of the same `up` has the configuration of its start, and finds the topology in the journal.
	w.restart()
	if w.m.cfg.Ranks != 2 {
		t.Errorf("after a restart, the run has %d ranks", w.m.cfg.Ranks)
	}
	// The next `up` begins with its own, whatever the ranks had before.
	w.cfg.Up = "another"
	w.restart()
	if w.m.cfg.Ranks != 4 {
		t.Errorf("under another up, the run has %d ranks", w.m.cfg.Ranks)
	}
}

// TestRanksOfAnotherTopologyAreRefused: one whose sidecar alone was lost stands in the earlier attempt, and an
// impossible topology changes nothing. A rank that leaves before the turn is forgotten.
func TestRanksOfAnotherTopologyAreRefused(t *testing.T) {
	w := shapes(t)
	for r := range uint32(4) {
		w.joinOf(w.sidecar, 4, r, "fresh")
	}
	w.consume(2)
	next := w.successor()
	w.joinOf(next, 2, 1, "continue")
	if got := next.take(); !has(got, "refuse rank 1: rank 1 stands in a run of 4 ranks") {
		t.Errorf("%v", got)
	}
	w.joinOf(next, 2, 0, "latest")
	w.m.ranks.Leave(next, 0) // the stranger, not rank 0 of the run
	w.leave(4)
	w.turn()
	if w.m.cfg.Ranks != 4 {
		t.Errorf("a rank that has left made %d ranks", w.m.cfg.Ranks)
	}
	w.joinOf(next, 16, 0, "latest")
	if got := next.take(); !has(got, "refuse rank 0: a run of 16 ranks: the batch does not divide") {
		t.Errorf("%v", got)
	}
	w.sidecar.take()
	for r := range uint32(4) {
		w.joinOf(w.sidecar, 4, r, "latest")
	}
	if got := w.sidecar.take(); !has(got, "begin rank 3") {
		t.Errorf("%v", got)
	}
}

// TestAnotherTopologyNearTheEnd: of four ranks, one has not consumed the whole stream. Then a run of two ranks begins
// with the first step that this one lacked, and is not over before.
func TestAnotherTopologyNearTheEnd(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		w := &world{t: t, cfg: shaped(t, 4), reject: func(string, uint64) string { return "" }}
		w.cfg.Spec.StopSteps = 5
		w.restart()
		w.connect()
		for r := range uint32(4) {
			w.joinOf(w.sidecar, 4, r, "fresh")
		}
		w.consume(3)
		for step := uint64(3); step < 5; step++ {
			for r := range uint32(3) {
				w.m.Committed(w.sidecar, &proto.Commit{Rank: r, Attempt: 1, Step: step})
			}
			w.turn()
		}
		w.leave(4)
		w.turn()
		if restarted { // another `up` has the next topology from its start on
			w.cfg = shaped(t, 2)
			w.cfg.Spec.StopSteps, w.cfg.Up = 5, "another"
			w.restart()
			w.connect()
		}
		next := w.successor()
		for r := range uint32(2) {
			w.joinOf(next, 2, r, "latest")
		}
		if got := next.take(); !has(got, "begin rank 1 attempt 2 step 3") || w.m.Done() {
			t.Errorf("restarted %t: done %t: %v", restarted, w.m.Done(), got)
		}
	}
}

// TestWaitingNamesTheNextRanks: when all hosts serve another topology, its ranks are the ones that are missing. A host
// that serves the earlier one still is a host of the run.
func TestWaitingNamesTheNextRanks(t *testing.T) {
	w := shapes(t)
	for r := range uint32(4) {
		w.joinOf(w.sidecar, 4, r, "fresh")
	}
	w.consume(2)
	w.leave(4)
	up := func(name string, world uint32) {
		hello := &proto.SidecarHello{Version: testVersion(), Name: name, World: world, Tp: 1, Cp: 1, Pp: 1,
			Ranks: []*proto.RankPosition{{Rank: 0, Attempt: 1, Below: 2, Serving: world != 4}}}
		if err := w.m.SidecarUp(&box{}, hello); err != nil {
			t.Fatal(err)
		}
	}
	for _, host := range []struct {
		name  string
		world uint32
		says  string
	}{
		{"sidecar-0", 2, "waiting for the ranks of another topology, 2 ranks, to connect"},
		{"sidecar-2", 4, ""},
		{"sidecar-2", 2, "waiting for the ranks of another topology, 2 ranks, to connect"},
		{"sidecar-2", 3, ""},
	} {
		up(host.name, host.world)
		if got := w.m.ranks.Waiting(); !strings.HasPrefix(got, host.says) || host.says == "" && got != "" {
			t.Errorf("%s serves %d ranks: %q, want %q", host.name, host.world, got, host.says)
		}
	}
	if here, _ := w.m.ranks.AreHere(); here {
		t.Error("a position of another topology counts as one of the run")
	}
}

// TestRanksOfAReplacedSidecarAreGone: its stream ended unnoticed, its trainers left meanwhile, and it connects again
// without them.
func TestRanksOfAReplacedSidecarAreGone(t *testing.T) {
	w := shapes(t)
	for r := range uint32(4) {
		w.joinOf(w.sidecar, 4, r, "fresh")
	}
	w.consume(2)
	hello := &proto.SidecarHello{Version: testVersion(), Name: "sidecar-0", World: 4, Tp: 1, Cp: 1, Pp: 1}
	again := &box{}
	if err := w.m.SidecarUp(again, hello); err != nil {
		t.Fatal(err)
	}
	if here, _ := w.m.ranks.AreHere(); here {
		t.Error("trainers that have left count as connected")
	}
	w.m.SidecarDown(w.sidecar, "sidecar-0")
	w.joinOf(w.successor(), 2, 0, "latest")
	w.turn()
	if w.m.cfg.Ranks != 2 {
		t.Errorf("the run has %d ranks", w.m.cfg.Ranks)
	}
}
