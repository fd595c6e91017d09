package orchestrator

import (
	"testing"

	"millrace/orchestrator/facts"
	"millrace/orchestrator/feedback"
	"millrace/orchestrator/planner/cost"
	"millrace/proto"
)

// newAdaptive returns a run whose weights follow losses and whose costs follow times.
func newAdaptive(t *testing.T, ranks int, policy string) *world {
	w := newMixWorld(t, ranks)
	w.cfg.Adaptive = &feedback.Settings{Policy: policy, Every: 4, Warmup: 4, Floor: 0.05, Smoothing: 0.5}
	w.cfg.Cost, w.cfg.Refit = cost.Cost{Linear: 100, Quadratic: 1}, 6
	w.restart()
	return w
}

// learn consumes steps up to below and reports their losses. These fall with the step, faster for code; scale changes
// them. The times are those of a trainer whose attention costs as much as all linear work at 40 tokens.
func (w *world) learn(below uint64, scale float64) {
	w.t.Helper()
	for w.m.s.Watermark < below {
		step := w.m.s.Watermark
		plan := w.m.s.Sealed[step].Plan
		sums := map[int]float64{}
		for i, at := range plan.Assignments.Rank {
			n := float64(plan.Assignments.Length[i])
			sums[int(at*plan.Microbatches+plan.Assignments.Microbatch[i])] += n + n*n/40
		}
		for r := range w.cfg.Ranks {
			report := &proto.Reported{
				Rank:    uint32(r),
				Attempt: w.m.s.Attempt.Attempt,
				Step:    step,
				Losses: []*proto.SourceLoss{
					{
						Source:  "code",
						LossSum: 100 * scale / float64(step+1),
						Tokens:  100,
					}, {Source: "web", LossSum: 200, Tokens: 100}, {Source: "gone", LossSum: 1, Tokens: 1}},
			}
			for micro := range plan.Microbatches {
				report.Microbatch, report.Seconds = append(report.Microbatch, micro), append(report.Seconds,
					1e-3*sums[int(uint32(r)*plan.Microbatches+micro)])
			}
			report.Microbatch, report.Seconds = append(report.Microbatch, 1000), append(report.Seconds, 7)
			w.m.reports.observe(report)
		}
		w.consume(step + 1)
	}
}

// made counts the changes that each policy has made.
func (w *world) made() map[string]int {
	out := map[string]int{}
	for _, c := range w.m.s.Mixed {
		out[c.By]++
	}
	return out
}

// TestReportsBecomeJournaledWeights: a run that is restarted, taken back, or resumed elsewhere plans by the journaled
// weights, not by later reports.
func TestReportsBecomeJournaledWeights(t *testing.T) {
	for _, policy := range []string{feedback.ODM, feedback.ADO} {
		golden := newAdaptive(t, 2, policy)
		golden.connect()
		golden.joinAll("fresh", nil)
		golden.learn(24, 1)
		made := golden.made()
		if made[policy] < 4 || made["refit"] != 1 {
			t.Fatalf("%s: changes %v", policy, made)
		}
		if cost, ok := golden.m.mix.Overrides().Cost(golden.m.s.Next); !ok || cost.Linear*10/cost.Quadratic < 380 ||
			cost.Linear*10/cost.Quadratic > 420 {
			t.Errorf("%s: costs %+v were fitted to times with a ratio of 40", policy, cost)
		}
		want := golden.sealedPlans(1)
		last := golden.m.s.Mixed[len(golden.m.s.Mixed)-1].AtStep
		same := func(w *world, attempt uint32, what string) {
			t.Helper()
			for step, p := range w.sealedPlans(attempt) {
				if step < last+4 && want[step] != nil &&
					(string(p.Content) != string(want[step].Content) ||
						string(p.Placement) != string(want[step].Placement)) {
					t.Fatalf("%s, %s: step %d differs", policy, what, step)
				}
			}
		}
		back := newAdaptive(t, 2, policy) // an orchestrator over the same journal
		back.journal = append([]facts.Fact(nil), golden.journal...)
		back.restart()
		back.connect()
		back.joinAll("state", want[5].State)
		before := back.made()[policy]
		back.learn(20, 37)
		if got := back.made()[policy]; got != before {
			t.Errorf("%s: %d sets of weights, %d were journaled: losses that were reported again made some", policy,
				got, before)
		}
		same(back, 2, "taken back")
		back.learn(40, 37)
		if back.made()[policy] == before {
			t.Errorf("%s: behind the journal's end no weights are made", policy)
		}
		other := newAdaptive(t, 2, policy)
		other.connect()
		other.joinAll("state", want[last].State)
		same(other, 1, "resumed from a state alone")
		if string(other.m.mix.Overrides().Policy()) != string(golden.m.mix.Overrides().Policy()) {
			t.Errorf("%s: the state lacks the memory of the policy", policy)
		}
	}
}

// TestReportsChangeNothingUnlessConfigured: costs can still be fitted by hand.
func TestReportsChangeNothingUnlessConfigured(t *testing.T) {
	w := newMixWorld(t, 1)
	w.cfg.Cost = cost.Cost{Linear: 100, Quadratic: 1}
	w.restart()
	w.connect()
	w.joinAll("fresh", nil)
	if _, err := w.asks(&proto.MixRequest{Change: &proto.MixRequest_Calibrate{Calibrate: true}}); err == nil {
		t.Error("costs were fitted to nothing")
	}
	w.learn(30, 1)
	if len(w.m.s.Mixed) != 0 {
		t.Errorf("%v without being asked", w.made())
	}
	fit := w.m.Status().Mixture.Calibration
	if fit == nil || fit.BestR2 < 0.99 || fit.R2 >= fit.BestR2 {
		t.Errorf("the fit is shown as %v", fit)
	}
	w.must(&proto.MixRequest{Change: &proto.MixRequest_Calibrate{Calibrate: true}})
	if cost, _ := w.m.mix.Costs(w.m.s.Next); cost.Linear*10/cost.Quadratic < 380 ||
		cost.Linear*10/cost.Quadratic > 420 {
		t.Errorf("fitted by hand: %+v", cost)
	}
}
