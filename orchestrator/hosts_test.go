package orchestrator

import (
	"testing"
	"time"

	"millrace/orchestrator/roster"
	"millrace/proto"
)

// hosts returns a run whose two ranks are on two hosts.
func hosts(t *testing.T) (w *world, other *box) {
	w = newWorld(t, 2)
	w.connect()
	other = &box{}
	w.m.SidecarUp(other, &proto.SidecarHello{Version: testVersion(), Name: "sidecar-1"})
	w.turn()
	return w, other
}

func (w *world) joinFrom(from roster.Session, rank uint32, start string) {
	w.m.Joined(from, &proto.Join{Rank: rank, Start: start, Call: uint64(rank) + 1})
	w.turn()
}

// asked returns the number of the newest roll call that a host was sent, 0 for none.
func asked(b *box) (call uint64) {
	for _, msg := range b.got {
		if o, ok := msg.(*proto.SidecarOrder); ok && o.GetRollCall() != nil {
			call = o.GetRollCall().Call
		}
	}
	return call
}

// TestRanksOfSeveralHostsStartTogether: all ranks died. The first one is back before the other's host has said that its
// rank left.
func TestRanksOfSeveralHostsStartTogether(t *testing.T) {
	w, other := hosts(t)
	w.joinFrom(w.sidecar, 0, "fresh")
	w.joinFrom(other, 1, "fresh")
	w.consume(2)
	w.m.Committed(other, &proto.Commit{Rank: 1, Attempt: 1, Step: 2})
	w.m.ranks.Leave(w.sidecar, 0)
	w.turn()
	w.sidecar.take()
	other.take()
	w.joinFrom(w.sidecar, 0, "latest")
	if got := w.sidecar.take(); has(got, "begin") {
		t.Fatalf("rank 0 began before the host of rank 1 answered: %v", got)
	}
	call := asked(other)
	if call == 0 {
		t.Fatal("the other host was not asked who is there")
	}
	w.m.ranks.Leave(w.sidecar, 1)
	w.m.ranks.Present(other, &proto.Present{Call: call})
	w.turn()
	w.joinFrom(other, 1, "latest")
	if got := append(w.sidecar.take(), other.take()...); !has(got, "begin rank 0 attempt 2 step 2") ||
		!has(got, "begin rank 1 attempt 2 step 2") {
		t.Fatalf("got %v", got)
	}
}

// TestAStartOfATrainerThatIsGoneRefusesNobody: the trainers of two hosts died while rank 1 waited to begin. Rank 0
// comes back with another start, before the host of rank 1 has said that its trainer left.
func TestAStartOfATrainerThatIsGoneRefusesNobody(t *testing.T) {
	for _, isReal := range []bool{false, true} {
		w, other := hosts(t)
		w.joinFrom(w.sidecar, 0, "fresh")
		w.joinFrom(other, 1, "fresh")
		w.consume(2)
		w.m.Committed(other, &proto.Commit{Rank: 1, Attempt: 1, Step: 1})
		w.m.ranks.Leave(w.sidecar, 0)
		w.m.ranks.Leave(w.sidecar, 1)
		w.turn()
		w.joinFrom(other, 1, "fresh")
		w.sidecar.take()
		w.joinFrom(w.sidecar, 0, "latest")
		call := asked(other)
		if got := append(w.sidecar.take(), other.take()...); has(got, "refuse") || call == 0 {
			t.Fatalf("before the other host was heard: call %d, %v", call, got)
		}
		if !isReal {
			w.m.ranks.Leave(w.sidecar, 1)
		}
		w.m.ranks.Present(other, &proto.Present{Call: call})
		w.turn()
		got := append(w.sidecar.take(), other.take()...)
		if has(got, "refuse rank 0: ranks start at different places") != isReal || has(got, "begin") {
			t.Fatalf("the other start is real: %v; got %v", isReal, got)
		}
		if isReal {
			continue
		}
		w.joinFrom(other, 1, "latest")
		if got := append(w.sidecar.take(), other.take()...); !has(got, "begin rank 0") || !has(got, "begin rank 1") {
			t.Fatalf("got %v", got)
		}
	}
}

// TestAStartThatWasOnTheWayRefusesNobody: a host was lost while the start of its rank was on the way. It arrives after
// the start that the other rank declares anew.
func TestAStartThatWasOnTheWayRefusesNobody(t *testing.T) {
	w, other := hosts(t)
	w.joinFrom(w.sidecar, 0, "fresh")
	w.joinFrom(other, 1, "fresh")
	w.consume(2)
	w.m.Committed(other, &proto.Commit{Rank: 1, Attempt: 1, Step: 1})
	w.m.ranks.Leave(w.sidecar, 0)
	w.m.ranks.Leave(w.sidecar, 1)
	w.turn()
	w.joinFrom(w.sidecar, 0, "latest")
	w.joinFrom(other, 1, "fresh")
	got := append(w.sidecar.take(), other.take()...)
	if has(got, "refuse") || has(got, "begin rank 0 attempt 1 step 2") {
		t.Fatalf("before the lost host was heard: %v", got)
	}
	w.m.SidecarDown(other, "sidecar-1")
	w.turn()
	other = &box{}
	w.m.SidecarUp(other, &proto.SidecarHello{Version: testVersion(), Name: "sidecar-1"})
	w.turn()
	w.joinFrom(other, 1, "latest")
	if got = append(w.sidecar.take(), other.take()...); !has(got, "begin rank 0") || !has(got, "begin rank 1") {
		t.Fatalf("got %v", got)
	}
}

// TestARankGoesOnAloneIfTheOthersArePresent: the host of the others says so, or the host that replaces it, or a rank
// has gone on there.
func TestARankGoesOnAloneIfTheOthersArePresent(t *testing.T) {
	for _, how := range []string{"says so", "is replaced", "is replaced and its rank goes on later"} {
		w, other := hosts(t)
		w.joinFrom(w.sidecar, 0, "fresh")
		w.joinFrom(other, 1, "fresh")
		w.consume(2)
		w.m.ranks.Leave(w.sidecar, 0)
		w.turn()
		w.joinFrom(w.sidecar, 0, "latest")
		w.sidecar.take()
		call := asked(other)
		if how != "says so" {
			w.m.SidecarDown(other, "sidecar-1")
			other = &box{}
			hello := &proto.SidecarHello{Version: testVersion(), Name: "sidecar-1"}
			if how == "is replaced" {
				hello.Ranks = []*proto.RankPosition{{Rank: 1, Attempt: 1, Below: 2, Serving: true}}
			}
			w.m.SidecarUp(other, hello)
			w.turn()
			call = asked(other)
		}
		if how == "is replaced and its rank goes on later" {
			w.m.ranks.Present(other, &proto.Present{Call: call})
			w.turn()
			other.take()
			w.m.Joined(other, &proto.Join{Rank: 1, Start: "continue", Attempt: 1, Step: 2})
			w.turn()
			call = asked(other)
		}
		if got := w.sidecar.take(); has(got, "begin") || call == 0 {
			t.Fatalf("%s: roll call %d, rank 0 was told %v", how, call, got)
		}
		w.m.ranks.Present(other, &proto.Present{Call: call, Ranks: []uint32{1}})
		w.turn()
		if got := w.sidecar.take(); !has(got, "begin rank 0 attempt 1 step 2") {
			t.Fatalf("%s: got %v", how, got)
		}
	}
}

// TestARankGoesOnAloneIfNoHostKnowsTheOthers: the sidecar of rank 1 died while the trainer of rank 1 waited for rank 0
// in a collective, so rank 1 does not come back before rank 0 goes on.
func TestARankGoesOnAloneIfNoHostKnowsTheOthers(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, isBack := range []bool{false, true} {
		w, other := hosts(t)
		w.m.Tick(start)
		w.joinFrom(w.sidecar, 0, "fresh")
		w.joinFrom(other, 1, "fresh")
		w.consume(2)
		w.m.ranks.Leave(w.sidecar, 0)
		w.m.SidecarDown(other, "sidecar-1")
		w.turn()
		w.joinFrom(w.sidecar, 0, "latest")
		w.sidecar.take()
		if isBack {
			other = &box{}
			w.m.SidecarUp(other, &proto.SidecarHello{Version: testVersion(), Name: "sidecar-1"})
			w.turn()
			w.m.ranks.Present(other, &proto.Present{Call: asked(other)})
		}
		w.m.Tick(start.Add(9 * time.Second))
		w.turn()
		if got := w.sidecar.take(); has(got, "begin") {
			t.Fatalf("rank 0 began before rank 1 had the time to start again: %v", got)
		}
		w.m.Tick(start.Add(11 * time.Second))
		w.turn()
		if got := w.sidecar.take(); has(got, "begin rank 0 attempt 1 step 2") != isBack {
			t.Fatalf("the sidecar of rank 1 is back: %v; got %v", isBack, got)
		}
	}
}

// TestLatestIsResolvedWhenAllHaveJoined: a commit that comes between two joins moves it.
func TestLatestIsResolvedWhenAllHaveJoined(t *testing.T) {
	w, other := hosts(t)
	w.joinFrom(w.sidecar, 0, "fresh")
	w.joinFrom(other, 1, "fresh")
	w.consume(2)
	w.m.Committed(w.sidecar, &proto.Commit{Rank: 0, Attempt: 1, Step: 2})
	w.m.ranks.Leave(w.sidecar, 0)
	w.turn()
	w.joinFrom(w.sidecar, 0, "latest")
	w.m.Committed(other, &proto.Commit{Rank: 1, Attempt: 1, Step: 2})
	w.m.ranks.Leave(w.sidecar, 1)
	w.turn()
	w.sidecar.take()
	w.joinFrom(other, 1, "latest")
	if got := append(w.sidecar.take(), other.take()...); !has(got, "begin rank 0 attempt 1 step 3") ||
		!has(got, "begin rank 1 attempt 1 step 3") {
		t.Fatalf("got %v", got)
	}
}

// TestARankWithoutAStartBeginsBehindTheOthers: the answer to one rank was lost with its host's stream, and the other
// has gone ahead.
func TestARankWithoutAStartBeginsBehindTheOthers(t *testing.T) {
	w, other := hosts(t)
	w.joinFrom(w.sidecar, 0, "")
	w.joinFrom(other, 1, "")
	w.m.Committed(w.sidecar, &proto.Commit{Rank: 0, Attempt: 1, Step: 0})
	w.m.SidecarDown(other, "sidecar-1")
	other = &box{}
	w.m.SidecarUp(other, &proto.SidecarHello{Version: testVersion(), Name: "sidecar-1"})
	w.turn()
	w.joinFrom(other, 1, "")
	if got := other.take(); !has(got, "begin rank 1 attempt 1 step 0") || has(got, "refuse") {
		t.Fatalf("got %v", got)
	}
	w.m.Committed(other, &proto.Commit{Rank: 1, Attempt: 1, Step: 0})
	w.turn()
	w.joinFrom(other, 1, "")
	if got := other.take(); !has(got, "refuse rank 1: this run has history") {
		t.Fatalf("a rank that has consumed a step must declare its start: %v", got)
	}
}

// TestTheLaterProcessOfASidecarStays: it stays also if the hello of the earlier process comes late.
func TestTheLaterProcessOfASidecarStays(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := newWorld(t, 1)
		first, second := &box{}, &box{}
		up := func(b *box, born int64) {
			w.m.SidecarUp(b, &proto.SidecarHello{Version: testVersion(), Name: "sidecar-1", Born: born})
			w.turn()
		}
		if late {
			up(second, 2)
			up(first, 1)
		} else {
			up(first, 1)
			up(second, 2)
		}
		if got := first.take(); !has(got, "Bye") {
			t.Errorf("late %t: the first was told %v", late, got)
		}
		w.m.SidecarDown(first, "sidecar-1")
		if got := second.take(); has(got, "Bye") || !isConnected(w.m, "sidecar-1") {
			t.Errorf("late %t: the second was told %v", late, got)
		}
	}
}
