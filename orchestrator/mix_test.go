package orchestrator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
	"millrace/proto"
)

// randomMix returns a random request, mostly one that is accepted.
func randomMix(rng *rand.Rand, next uint64) *proto.MixRequest {
	r := &proto.MixRequest{}
	if rng.IntN(2) == 0 {
		r.HasFrom, r.From = true, next+rng.Uint64N(3)
	}
	if rng.IntN(4) == 0 {
		r.HasFrom, r.Later, r.From = true, true, next-min(next, rng.Uint64N(6))
	}
	switch rng.IntN(6) {
	case 0, 1:
		set := setWeights(fmt.Sprint(1+rng.IntN(9)), fmt.Sprint(rng.IntN(9)))
		if rng.IntN(2) == 0 {
			set.Ramp, set.Over = "linear", 1+rng.Uint64N(6)
		}
		r.Change = &proto.MixRequest_Set{Set: set}
	case 2:
		r.HasFrom, r.From = true, max(r.From, next)
		r.Change = &proto.MixRequest_Skip{Skip: &proto.Skipped{To: r.From + 1 + rng.Uint64N(2)}}
	case 3:
		r.Change = &proto.MixRequest_Remove{Remove: sourceNames[rng.IntN(2)]}
	case 4:
		r.Change = &proto.MixRequest_Add{Add: &proto.AddSource{Source: sourceNames[rng.IntN(2)], Weight: "0.4"}}
	case 5:
		r.Change = &proto.MixRequest_Costs{Costs: &proto.Costed{Linear: 1 + rng.Uint64N(1000), Quadratic: 1}}
	}
	return r
}

func setWeights(code, web string) *proto.SetWeights {
	return &proto.SetWeights{
		Weights: []*proto.SourceWeight{{Source: "web", Weight: web}, {Source: "code", Weight: code}},
	}
}

// asks asks for a change and returns the answer.
func (w *world) asks(r *proto.MixRequest) (reply *proto.MixReply, err error) {
	w.t.Helper()
	answered := false
	w.m.Mix(r, func(got *proto.MixReply, why error) { reply, err, answered = got, why, true })
	w.turn()
	if !answered {
		w.t.Fatal("a change of the mixture was not answered")
	}
	return reply, err
}

func (w *world) must(r *proto.MixRequest) *proto.MixChange {
	w.t.Helper()
	reply, err := w.asks(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply.Change
}

func newMixWorld(t *testing.T, ranks int) *world {
	w := newWorld(t, ranks)
	w.cfg.Recost = func(cost cost.Cost) func(*planner.Selection) (*millrace.Plan, error) {
		return func(sel *planner.Selection) (*millrace.Plan, error) {
			return place.Plan(
				sel,
				millrace.Topology{Ranks: ranks, TP: 1, CP: 1, PP: 1},
				place.Options{
					MicroBatch: 1,
					Layout:     millrace.Packed,
					Balance:    millrace.BalanceFSDP,
					LastStep:   millrace.PadLast,
					Cost:       cost,
				},
			)
		}
	}
	w.restart()
	return w
}

// changed returns a run whose mixture was changed in every way. Every later run of the same journal must give the same
// plans.
func changed(t *testing.T, ranks int) *world {
	w := newMixWorld(t, ranks)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(2)
	ramp := &proto.SetWeights{Weights: setWeights("5", "1").Weights, Ramp: "linear", Over: 4}
	if c := w.must(&proto.MixRequest{Change: &proto.MixRequest_Set{Set: ramp}}); c.AtStep != 5 {
		t.Fatalf("with steps below 5 sealed, weights change at step %d", c.AtStep)
	}
	w.must(&proto.MixRequest{HasFrom: true, From: 7, Change: &proto.MixRequest_Skip{Skip: &proto.Skipped{To: 9}}})
	w.consume(4)
	w.must(&proto.MixRequest{HasFrom: true, From: 11, Change: &proto.MixRequest_Remove{Remove: "web"}})
	w.must(
		&proto.MixRequest{
			HasFrom: true,
			From:    9,
			Change:  &proto.MixRequest_Costs{Costs: &proto.Costed{Linear: 3, Quadratic: 2}},
		},
	)
	w.consume(12)
	w.must(&proto.MixRequest{Change: &proto.MixRequest_Add{Add: &proto.AddSource{Source: "web", Weight: "5"}}})
	w.consume(20)
	return w
}

// sealedPlans returns the plans of an attempt, by step.
func (w *world) sealedPlans(attempt uint32) map[uint64]*proto.Plan {
	out := map[uint64]*proto.Plan{}
	for _, f := range w.journal {
		if f.Plan != nil && f.Plan.Fence.Attempt == attempt {
			out[f.Plan.Step] = f.Plan
		}
	}
	return out
}

func TestOverridesTakeEffectAtTheirStep(t *testing.T) {
	plain := newWorld(t, 1)
	plain.connect()
	plain.joinAll("fresh", nil)
	plain.consume(20)
	w := changed(t, 1)
	was, now := plain.contents()[1], w.contents()[1]
	for step := range uint64(5) {
		if was[step] != now[step] {
			t.Errorf("step %d changed before the change", step)
		}
	}
	share := func(step uint64) (code uint64) {
		a := w.sealedPlans(1)[step].Assignments
		total := uint64(0)
		for i, source := range a.Source {
			total += uint64(a.Length[i])
			if source == 0 {
				code += uint64(a.Length[i])
			}
		}
		return 100 * code / total
	}
	for step := uint64(11); step < 15; step++ {
		if got := share(step); got != 100 {
			t.Errorf("step %d without web is to %d %% code", step, got)
		}
	}
	if got := share(16); got == 100 {
		t.Error("web did not come back")
	}
	for step, p := range w.sealedPlans(1) {
		saved, err := facts.ReadSaved(p.State)
		if err != nil {
			t.Fatal(err)
		}
		for i, src := range saved.Planner.Sources {
			if bound := int64(2*w.cfg.Spec.SequenceLength) * mixing.One; src.Deficit > bound || src.Deficit < -bound {
				t.Errorf("behind step %d source %d is off by %d tokens, two of the longest segments are %d", step, i,
					src.Deficit/mixing.One, 2*w.cfg.Spec.SequenceLength)
			}
		}
	}
	// Two skipped steps lie between the end of step 6 and the beginning of step 7.
	last, first := map[uint32]uint64{}, map[uint32]uint64{}
	a, b := w.sealedPlans(1)[6].Assignments, w.sealedPlans(1)[7].Assignments
	for i, s := range a.Source {
		last[s] = max(last[s], a.Ordinal[i])
	}
	for i, s := range b.Source {
		if o, ok := first[s]; !ok || b.Ordinal[i] < o {
			first[s] = b.Ordinal[i]
		}
	}
	if first[0] <= last[0]+4 {
		t.Errorf("code goes on with %d behind %d: nothing was passed over", first[0], last[0])
	}
}

// TestCrashAroundOverrides: an orchestrator that dies after any fact goes on to the same plans and states, on as many
// ranks.
func TestCrashAroundOverrides(t *testing.T) {
	golden := changed(t, 2)
	want := golden.sealedPlans(1)
	for cut := 1; cut <= len(golden.journal); cut++ {
		w := newMixWorld(t, 2)
		w.journal = slices.Clone(golden.journal[:cut])
		known := 0
		for _, f := range w.journal {
			if f.GetMixed() != nil {
				known++
			}
		}
		w.restart()
		w.connect()
		w.joinAll("latest", nil)
		until := uint64(20)
		if next := slices.IndexFunc(golden.journal[cut:],
			func(f facts.Fact) bool { return f.GetMixed() != nil }); next >= 0 {
			until = golden.journal[cut+next].GetMixed().AtStep // another run from there on
		}
		w.consume(until)
		for attempt := range w.contents() {
			for step, p := range w.sealedPlans(attempt) {
				if step < until &&
					(string(p.Content) != string(want[step].Content) ||
						string(p.Placement) != string(want[step].Placement)) {
					t.Fatalf("cut after %d facts, %d changes: step %d of attempt %d differs", cut, known, step, attempt)
				}
			}
		}
	}
}

// TestAStateAloneResumesAChangedRun resumes on another number of ranks without the journal, from states before and
// after a change was known.
func TestAStateAloneResumesAChangedRun(t *testing.T) {
	golden := changed(t, 2)
	want := golden.sealedPlans(1)
	for step := uint64(8); step < 22; step++ { // at 8 the removal at step 11 is known; at 17 all changes are
		w := newMixWorld(t, 4)
		w.connect()
		w.joinAll("state", want[step-1].State)
		until := uint64(21)
		if step < 16 {
			until = 15 // the return of web at 15 was requested after the states before were saved
		}
		if step == until {
			continue
		}
		w.consume(until)
		got := w.sealedPlans(1)
		for s := step; s < until; s++ {
			if string(got[s].Content) != string(want[s].Content) {
				t.Fatalf("resumed at %d: step %d holds something else", step, s)
			}
		}
		if !strings.Contains(string(got[until-1].State), `"live":{`) {
			t.Fatal("the state forgot the changes")
		}
	}
}

// TestGoingBackKeepsChanges: a new attempt plans the same again, unless the changes are dropped. A change for the next
// attempt holds from then on.
func TestGoingBackKeepsChanges(t *testing.T) {
	w := changed(t, 2)
	want := w.sealedPlans(1)
	w.joinAll("state", want[1].State) // a state without changes
	w.consume(20)
	for step, p := range w.sealedPlans(2) {
		if string(p.Content) != string(want[step].Content) {
			t.Fatalf("step %d of attempt 2 differs", step)
		}
	}
	if !slices.ContainsFunc(w.lines,
		func(l string) bool { return strings.HasPrefix(l, "attempt 2: the mixture changes from step 5 on") }) {
		t.Errorf("the changes that stay in force were not printed: %q", w.lines)
	}
	if c := w.must(&proto.MixRequest{Later: true, HasFrom: true, From: 3,
		Change: &proto.MixRequest_Skip{Skip: &proto.Skipped{To: 6}}}); c.InForce {
		t.Error("a change for an attempt to come holds at once")
	}
	w.joinAll("state", want[1].State)
	w.consume(20)
	got := w.sealedPlans(3)
	if string(got[2].Content) != string(want[2].Content) || string(got[3].Content) == string(want[3].Content) {
		t.Error("the skip of attempt 3 begins elsewhere than at step 3")
	}
	for r := range w.cfg.Ranks {
		w.m.Joined(
			w.sidecar,
			&proto.Join{
				Rank:     uint32(r),
				Start:    "state",
				State:    want[1].State,
				Override: []string{"mixture.changes"},
				Call:     uint64(r) + 1,
			},
		)
	}
	w.turn()
	w.consume(20)
	plain := newWorld(t, 2)
	plain.connect()
	plain.joinAll("fresh", nil)
	plain.consume(20)
	for step, p := range w.sealedPlans(4) {
		if string(p.Content) != string(plain.sealedPlans(1)[step].Content) {
			t.Fatalf("step %d of an attempt that dropped the changes is not that of a run without any", step)
		}
	}
	if len(w.m.s.Mixed) != 0 {
		t.Errorf("%d changes are still known", len(w.m.s.Mixed))
	}
}

func TestRefusedChangesNameTheCure(t *testing.T) {
	w := newMixWorld(t, 1)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(3) // sealed up to 6
	set := func(code, web string) *proto.MixRequest_Set { return &proto.MixRequest_Set{Set: setWeights(code, web)} }
	milestones := func(from ...uint64) *proto.MixRequest {
		s := &proto.SetSchedule{}
		for _, f := range from {
			s.Milestones = append(s.Milestones, &proto.WeightsAt{From: f, Weights: setWeights("1", "1").Weights})
		}
		return &proto.MixRequest{Change: &proto.MixRequest_Schedule{Schedule: s}}
	}
	for _, c := range []struct {
		request *proto.MixRequest
		want    string
	}{
		{&proto.MixRequest{Change: set("nan", "1")}, "a weight is a finite decimal number"},
		{&proto.MixRequest{Change: set("-1", "1")}, "a weight cannot be negative"},
		{&proto.MixRequest{Change: set("0", "0")}, "every weight is 0"},
		{&proto.MixRequest{HasFrom: true, From: 5, Change: set("1", "1")},
			"step 5 is in the past: the steps below 6 are sealed; say --from-step 6 or later, or --next-attempt"},
		{&proto.MixRequest{Later: true, Change: set("1", "1")}, "say --from-step"},
		{&proto.MixRequest{Change: &proto.MixRequest_Set{Set: &proto.SetWeights{
			Weights: setWeights("1", "1").Weights[:1]}}}, `source "code" has no weight: add code=0`},
		{&proto.MixRequest{Change: &proto.MixRequest_Set{Set: &proto.SetWeights{
			Weights: []*proto.SourceWeight{{Source: "books", Weight: "1"}}}}},
			`this run has no source "books", its sources are code, web`},
		{&proto.MixRequest{Change: &proto.MixRequest_Set{Set: &proto.SetWeights{Weights: setWeights("1", "1").Weights,
			Ramp: "steep", Over: 3}}}, "it is one of none, linear, cosine"},
		{&proto.MixRequest{Change: &proto.MixRequest_Set{Set: &proto.SetWeights{Weights: setWeights("1", "1").Weights,
			Ramp: "linear"}}}, "needs a length"},
		{milestones(), "the schedule is empty"},
		{milestones(4), "the schedule goes back"},
		{milestones(9, 8), "8 does not come after 9"},
		{&proto.MixRequest{Change: &proto.MixRequest_Skip{Skip: &proto.Skipped{To: 9}}}, "a skip needs its first step"},
		{&proto.MixRequest{HasFrom: true, From: 9, Change: &proto.MixRequest_Skip{Skip: &proto.Skipped{To: 9}}},
			"has to be larger than the first"},
		{&proto.MixRequest{HasFrom: true, From: 9, Change: &proto.MixRequest_Skip{Skip: &proto.Skipped{To: 9000}}},
			"at most 4096 steps"},
		{&proto.MixRequest{Change: &proto.MixRequest_Add{Add: &proto.AddSource{Source: "web", Weight: "1"}}},
			"change it with `mix set`"},
		{&proto.MixRequest{Change: &proto.MixRequest_Add{Add: &proto.AddSource{Source: "web", Weight: "0"}}},
			"a weight of 0 adds nothing"},
		{&proto.MixRequest{Change: &proto.MixRequest_Costs{Costs: &proto.Costed{}}}, "the costs are both 0"},
		{&proto.MixRequest{}, "contains no change"},
	} {
		if _, err := w.asks(c.request); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.request, err, c.want)
		}
	}
	w.must(&proto.MixRequest{Change: &proto.MixRequest_Remove{Remove: "web"}})
	for _, c := range []struct{ source, want string }{
		{"web", "nothing to remove"}, {"code", "is the only one with a weight"}} {
		if _, err := w.asks(&proto.MixRequest{Change: &proto.MixRequest_Remove{Remove: c.source}}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("remove %s: %v, want %q", c.source, err, c.want)
		}
	}
	if len(w.m.s.Mixed) != 1 {
		t.Errorf("%d changes were journaled, want the one that could be", len(w.m.s.Mixed))
	}
}

// TestTheNewestChangeHolds: it holds in this attempt and in every later one.
func TestTheNewestChangeHolds(t *testing.T) {
	w := newMixWorld(t, 1)
	w.connect()
	w.joinAll("fresh", nil)
	w.must(&proto.MixRequest{HasFrom: true, From: 10, Change: &proto.MixRequest_Set{Set: setWeights("1", "0")}})
	w.must(&proto.MixRequest{HasFrom: true, From: 6, Change: &proto.MixRequest_Set{Set: setWeights("0", "1")}})
	w.consume(14)
	only := func(attempt uint32, from uint64) {
		t.Helper()
		for step, p := range w.sealedPlans(attempt) {
			if step >= from && slices.Contains(p.Assignments.Source, 0) {
				t.Errorf("attempt %d, step %d holds code", attempt, step)
			}
		}
	}
	only(1, 6)
	want := w.contents()[1]
	for _, back := range []uint64{12, 8, 3} { // the first change is void at every step
		w.joinAll("state", w.sealedPlans(1)[back-1].State)
		w.consume(14)
		only(uint32(w.m.s.CurrentAttempt()), 6)
		for step, digest := range w.contents()[uint32(w.m.s.CurrentAttempt())] {
			if want[step] != "" && want[step] != digest {
				t.Errorf("from step %d on: step %d differs", back, step)
			}
		}
	}
}
