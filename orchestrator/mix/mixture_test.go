package mix

import (
	"errors"
	"strings"
	"testing"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/roster"
	pb "millrace/proto"
)

// newMixture returns the mixture of a run with two sources before its first attempt.
func newMixture(t *testing.T) (*Mixture, *roster.Actions) {
	t.Helper()
	one, err := mixing.ParseWeight("1")
	if err != nil {
		t.Fatal(err)
	}
	schedule, err := mixing.NewSchedule(2, []mixing.Milestone{{Weights: []mixing.Weight{one, one}}})
	if err != nil {
		t.Fatal(err)
	}
	spec := &planner.Spec{
		SequenceLength: 64,
		GlobalBatch:    8,
		PadMultiple:    1,
		Packing:        millrace.BestFit,
		Unit:           millrace.UnitTokens,
		Schedule:       schedule,
		LastStep:       millrace.PadLast,
		Sources: []planner.SourceSpec{
			{Name: "code", OnExhausted: millrace.Renormalize}, {Name: "web", OnExhausted: millrace.Renormalize}},
	}
	out := &roster.Actions{}
	calibrate := func() (*pb.Costed, string, error) { return nil, "", errors.New("no reports") }
	return New(Config{File: spec, Sources: []string{"code", "web"}, Calibrate: calibrate}, facts.NewState(), out), out
}

func setWeights(code, web string) *pb.MixRequest {
	weights := []*pb.SourceWeight{{Source: "code", Weight: code}, {Source: "web", Weight: web}}
	return &pb.MixRequest{Change: &pb.MixRequest_Set{Set: &pb.SetWeights{Weights: weights}}}
}

func TestARefusalIsAnActionThatFollowsTheDecision(t *testing.T) {
	x, out := newMixture(t)
	var refused error
	x.Ask(&pb.MixRequest{Change: &pb.MixRequest_Calibrate{}}, func(_ *pb.MixReply, err error) { refused = err })
	d := x.Decide()
	if d.IsEmpty() || d.Mixed != nil || refused != nil || len(out.Take()) > 0 {
		t.Fatalf("decided %v, answered %v", d, refused)
	}
	x.Settle(d)
	for _, a := range out.Take() {
		a.Answer()
	}
	if refused == nil || !x.Decide().IsEmpty() {
		t.Errorf("answered %v", refused)
	}
}

func TestAChangeIsAnsweredWhenItIsApplied(t *testing.T) {
	x, out := newMixture(t)
	var reply *pb.MixReply
	x.Ask(setWeights("1", "3"), func(r *pb.MixReply, _ error) { reply = r })
	d := x.Decide()
	if d.Mixed == nil {
		t.Fatalf("decided %v", d)
	}
	x.Settle(d)
	if len(out.Take()) > 0 {
		t.Fatal("answered before the record is durable")
	}
	if _, err := x.Apply(d.Mixed); err != nil {
		t.Fatal(err)
	}
	for _, a := range out.Take() {
		if a.Answer != nil {
			a.Answer()
		}
	}
	if reply == nil || !strings.Contains(reply.Change.GetText(), "web 3") {
		t.Errorf("answered %v", reply)
	}
}
