package sidecar

import (
	"context"
	"sync/atomic"
	"testing"

	"millrace"
	"millrace/internal/activity"
)

// pending is an upstream without plans: Plan blocks.
type pending struct{ Upstream }

func (pending) Plan(ctx context.Context, _ millrace.Attempt, _ millrace.Step) (*StepPlan, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestTheEndOfTheStepsIsNoReason: a sidecar that leaves ends its steps and its connections in any order. If the steps
// end first, the feeder posts nothing: the session sends the trainer the reason.
func TestTheEndOfTheStepsIsNoReason(t *testing.T) {
	shape := millrace.Shape{
		SequenceLength: 16,
		MicroBatch:     1,
		Layout:         millrace.Packed,
		TokenDtype:     millrace.Int64,
		CapTokens:      16,
	}
	serving, leave := context.WithCancel(t.Context())
	begin := Begin{
		Attempt:     1,
		Topology:    millrace.Topology{Ranks: 1, TP: 1, CP: 1, PP: 1},
		Shapes:      []millrace.Shape{shape},
		PadMultiple: 1,
	}
	steps := newSteps(serving, Config{Upstream: pending{}, Ranks: []millrace.Rank{0}, Ahead: 1}, begin)
	defer steps.close()
	steps.enter(0, 0)
	told := make(chan event, 1)
	f := &feeder{begin: begin, steps: steps, doing: &atomic.Pointer[activity.Cause]{}, out: func(e event) { told <- e }}
	ended := make(chan struct{})
	// waited for below; the connection's context has not ended
	go func() { defer close(ended); f.fillAll(t.Context()) }()
	leave()
	<-ended
	select {
	case e := <-told:
		t.Errorf("the trainer would be told: %+v", e)
	default:
	}
}

// TestAStageWithoutTensorsReadsSamplesOnlyForItsMetadata: the counts of labels and the segments of a batch follow from
// tokens if some are left out of the loss, and fields come with tokens. It is the same for positions alone.
func TestAStageWithoutTensorsReadsSamplesOnlyForItsMetadata(t *testing.T) {
	topology := millrace.Topology{Ranks: 6, TP: 1, CP: 1, PP: 3}
	middle := []millrace.Rank{2, 3}
	for _, option := range []millrace.Broadcast{{PP: true}, {Positions: true}} {
		for _, c := range []struct {
			begin Begin
			want  int
		}{{Begin{}, 0}, {Begin{Untrained: true}, 2}, {Begin{Fields: true}, 2}} {
			c.begin.Topology, c.begin.Broadcast = topology, option
			if got := c.begin.Fed(middle); len(got) != c.want {
				t.Errorf("%+v, untrained %t, fields %t: samples of the ranks %d",
					option, c.begin.Untrained, c.begin.Fields, got)
			}
			if got := c.begin.Fed([]millrace.Rank{0, 5}); len(got) != 2 {
				t.Errorf("%+v: the first and the last stage need samples of the ranks %d", option, got)
			}
		}
	}
}
