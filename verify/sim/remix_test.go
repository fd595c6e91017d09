package sim

import (
	"context"
	"fmt"
	"time"

	"millrace"
	"millrace/orchestrator"
	"millrace/proto"
	"millrace/sidecar"
)

// answered is the time limit for the answer to a change of the mixture. An unanswered change may still have taken
// effect.
const answered = time.Second

// remix asks an orchestrator to change the mixture from a step that no trainer has reached. If the step is sealed
// already, nothing changes.
func (w *world) remix(p *process, size int) {
	o := p.orchestrator.Load()
	if o == nil {
		return
	}
	// A change cuts its window and so affects all steps of the window. No trainer may have reached one of them in an
	// earlier attempt.
	window := millrace.Step(max(w.load.config.Spec.Window, 1))
	w.mu.Lock()
	begin := (w.furthest + window - 1) / window * window
	from := max(begin+millrace.Step(size%3), 1)
	w.mixed = min(w.mixed, from-from%window)
	w.mu.Unlock()
	request := &proto.MixRequest{HasFrom: true, From: uint64(from)}
	switch size / 3 % 4 {
	case 0:
		request.Change = &proto.MixRequest_Skip{Skip: &proto.Skipped{To: request.From + 1}}
	case 1:
		request.Change = &proto.MixRequest_Remove{Remove: name(1)}
	default:
		set := &proto.SetWeights{}
		for i := range w.load.sources {
			set.Weights = append(set.Weights, &proto.SourceWeight{Source: name(i), Weight: fmt.Sprint(1 + (size>>i)%7)})
		}
		if size%2 == 0 {
			set.Ramp, set.Over = "linear", uint64(1+size%4)
		}
		request.Change = &proto.MixRequest_Set{Set: set}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answered)
	defer cancel()
	if _, err := orchestrator.NewServer(o).Mix(ctx, request); err == nil {
		w.saw("mixture changed")
	}
}

// remixed reports whether a change of the mixture may affect a step's content. It checks that all ranks and attempts
// get the same content.
func (w *world) remixed(p *sidecar.StepPlan) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.furthest = max(w.furthest, p.Step+1)
	if was, ok := w.contents[p.Step]; ok && was != p.Content {
		return true, fmt.Errorf("step %d held %s, and holds %s in attempt %d", p.Step, was, p.Content, p.Attempt)
	}
	w.contents[p.Step] = p.Content
	return p.Step >= w.mixed, nil
}
