package facts

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/checkpoint"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
	"millrace/proto"
)

// indexed is a ledger index in memory.
type indexed map[checkpoint.StepKey][]byte

func (x indexed) put(t *testing.T, s *State) (bytes int) {
	entries, err := s.SettledEntries(millrace.Train)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		x[e.Key] = e.Body
		bytes += len(e.Body)
	}
	return bytes
}

func (x indexed) entries(from, to checkpoint.StepKey, f func(checkpoint.IndexEntry) error) error {
	keys := slices.SortedFunc(
		maps.Keys(x),
		func(a, b checkpoint.StepKey) int { return strings.Compare(order(a), order(b)) },
	)
	for _, k := range keys {
		if order(k) >= order(from) && order(k) < order(to) {
			if err := f(checkpoint.IndexEntry{Key: k, Body: x[k]}); err != nil {
				return err
			}
		}
	}
	return nil
}

func order(k checkpoint.StepKey) string {
	return fmt.Sprintf("%s/%09d/%019d", k.Stream, k.Attempt, k.Step)
}

func apply(states []*State, r *proto.Record) {
	for _, s := range states {
		s.Apply(Fact{Record: r})
	}
}

// runWith returns the run of a mixture file with so many sources of equal weight.
func runWith(t testing.TB, sources int) *Run {
	weights := make([]mixing.Weight, sources)
	names := make([]string, sources)
	for i := range weights {
		weights[i], _ = mixing.ParseWeight("1")
		names[i] = fmt.Sprintf("s%02d", i)
	}
	schedule, err := mixing.NewSchedule(sources, []mixing.Milestone{{Weights: weights}})
	if err != nil {
		t.Fatal(err)
	}
	run := runOf(names...)
	run.Spec = &planner.Spec{Schedule: schedule}
	return run
}

// change returns a random change of a run with three sources, as it may be journaled now.
func change(rng *rand.Rand, attempt uint32, next uint64) *proto.Mixed {
	c := &proto.Mixed{Attempt: attempt, Known: next, AtStep: next + rng.Uint64N(4), By: fmt.Sprint(rng.Uint64())}
	if rng.IntN(8) == 0 {
		c.Attempt, c.Known, c.AtStep = attempt+1, 0, next-min(next, rng.Uint64N(6))
	}
	switch rng.IntN(4) {
	case 0:
		c.Change = &proto.Mixed_Skip{Skip: &proto.Skipped{To: c.AtStep + 1}}
	case 1:
		c.Change = &proto.Mixed_Costs{Costs: &proto.Costed{Linear: 1 + rng.Uint64N(1000)}}
	default:
		weights := []string{fmt.Sprint(1 + rng.IntN(1000)), "1", "2"}
		c.Change = &proto.Mixed_Schedule{Schedule: &proto.Reweighed{
			Milestones: []*proto.Milestone{{From: c.AtStep, Weights: weights}}}}
		if rng.IntN(2) == 0 {
			c.Policy = []byte(fmt.Sprint("memory ", rng.Uint64()))
		}
	}
	return c
}

// TestSettledChangesStayInForce: a start at any step has the same changes of the mixture, whether the state has them or
// the ledger. So it is across attempts that go back, attempts that forget, changes for the next attempt, and crashes
// after the ledger has changes that the newest snapshot has as well.
func TestSettledChangesStayInForce(t *testing.T) {
	run, needed, cut := runWith(t, 3), 0, 0
	for seed := range uint64(70) {
		rng, index := rand.New(rand.NewPCG(seed, 5)), indexed{}
		s, whole := NewState(), NewState()
		s.stream, s.index = millrace.Train, index.entries
		attempt, next := uint32(0), uint64(0)
		open := func(at uint64, forgets bool) {
			attempt, next = attempt+1, at
			apply([]*State{s, whole}, &proto.Record{Fact: &proto.Record_Opened{
				Opened: &proto.Opened{Attempt: attempt, Step: at, Forgets: forgets}}})
		}
		open(0, false)
		for range 150 {
			switch n := rng.IntN(12); {
			case n < 5:
				next += rng.Uint64N(4)
				apply([]*State{s, whole}, &proto.Record{Fact: &proto.Record_Acknowledged{
					Acknowledged: &proto.Acknowledged{Attempt: attempt, Below: next}}})
			case n < 9:
				c := &proto.Record{Fact: &proto.Record_Mixed{Mixed: change(rng, attempt, next)}}
				apply([]*State{s, whole}, c)
			case n < 11:
				if index.put(t, s); rng.IntN(4) > 0 { // else a crash comes before the snapshot
					s.Settle()
				}
			case rng.IntN(3) == 0:
				open(rng.Uint64N(next+1), rng.IntN(4) == 0)
			}
			st := progress.New(3)
			st.Step = millrace.Step(rng.Uint64N(next + 1))
			at := NewRunState(run, attempt, st, Overrides{})
			want, err := whole.Forward(at)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Forward(at)
			if err != nil || string(got.Encode()) != string(want.Encode()) {
				t.Fatalf("seed %d: a start at step %d of attempt %d has\n%s, want\n%s: %v", seed, st.Step, attempt,
					got.Encode(), want.Encode(), err)
			}
			if uint64(st.Step) < s.Settled {
				needed++
			}
		}
		cut += len(s.Cuts)
	}
	if needed < 2000 || cut < 50 {
		t.Errorf("%d starts needed the ledger, there are %d cuts: the histories hold too little", needed, cut)
	}
}

// TestManyChangesKeepSnapshotsSmall: a run of 100,000 steps, of which every fifth changes the weights of 64 sources,
// has snapshots of the same size at its end as at its begin. The ledger has all changes.
func TestManyChangesKeepSnapshotsSmall(t *testing.T) {
	const sources, steps, every, snapshots = 64, 100_000, 5, 512
	run, index, s := runWith(t, sources), indexed{}, NewState()
	s.stream, s.index = millrace.Train, index.entries
	base := NewRunState(run, 1, progress.New(sources), Overrides{})
	s.Apply(Fact{Record: &proto.Record{Fact: &proto.Record_Opened{Opened: &proto.Opened{Attempt: 1}}}, At: base})
	rng := rand.New(rand.NewPCG(1, 1))
	least, most, kept := 1<<30, 0, 0
	for step := range uint64(steps) {
		if step%every == 0 {
			milestone := &proto.Milestone{From: step}
			for range sources {
				milestone.Weights = append(milestone.Weights, fmt.Sprint(1+rng.IntN(1_000_000)))
			}
			apply([]*State{s}, &proto.Record{Fact: &proto.Record_Mixed{Mixed: &proto.Mixed{
				Attempt: 1, Known: step, AtStep: step, By: "odm", Policy: make([]byte, 9*sources), Why: "losses",
				Change: &proto.Mixed_Schedule{Schedule: &proto.Reweighed{Milestones: []*proto.Milestone{milestone}}}}}})
		}
		apply([]*State{s}, &proto.Record{Fact: &proto.Record_Acknowledged{
			Acknowledged: &proto.Acknowledged{Attempt: 1, Below: step + 1}}})
		if step%snapshots == snapshots-1 {
			kept += index.put(t, s)
			s.Settle()
			n := pbuf.Size(s.Snapshot())
			least, most = min(least, n), max(most, n)
		}
	}
	if most > least+100 || most > 64<<10 {
		t.Errorf("snapshots have %d to %d bytes", least, most)
	}
	if n := len(index) + len(s.Mixed); n != steps/every || s.Changes != steps/every {
		t.Errorf("%d changes are kept and %d counted, want %d", n, s.Changes, steps/every)
	}
	t.Logf("snapshots have %d to %d bytes; the ledger has %d bytes a change", least, most, kept/len(index))
	list, err := s.ChangesAt(nil, 1, 50_000)
	if err != nil || len(list) != 1 || list[0].AtStep != 50_000 {
		t.Errorf("at step 50,000 there are %v: %v", list, err)
	}
}
