package sim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"millrace"
	"millrace/sidecar"
	"millrace/sidecar/link"
)

// trainer is one rank. It takes the steps in order and keeps digests of its batches.
type trainer struct {
	w       *world
	rank    millrace.Rank // of the world
	attempt millrace.Attempt
	step    millrace.Step // the next one
	joined  *link.Link    // the link on which it declared its start
	got     map[millrace.Step]string
	pieced  map[millrace.Step][]piece
	states  map[millrace.Step][]byte // run states before each step
	parts   int                      // steps whose plans came as parts
	// Steps that all ranks of an earlier topology have.
	inherited map[millrace.Step]bool
}

// part returns the trainer's data-parallel rank. The trainer gets the parts of plans for this rank.
func (x *trainer) part() millrace.Rank { return millrace.Rank(x.w.shape.axes.Coordinates(x.rank).DP) }

// run plays one phase. If the sidecar is lost, the trainer continues with the next one.
func (x *trainer) run(ctx context.Context, ph phase, start sidecar.Start) error {
	x.attempt = 0
	var l *link.Link
	for {
		var life context.Context
		var err error
		if l, life, err = x.w.hosts[int(x.rank)%len(x.w.hosts)].after(ctx, l, x.w.shape); err != nil {
			return nil // killed
		}
		both, cancel := context.WithCancel(ctx)
		lost, over := context.AfterFunc(life, cancel), context.AfterFunc(x.w.over, cancel)
		err = x.steps(both, l, ph, start)
		lost()
		over()
		cancel()
		switch {
		case ctx.Err() != nil || x.w.over.Err() != nil && x.step == x.w.load.steps:
			return nil
		case err == nil || life.Err() == nil:
			return err
		}
		if x.attempt != 0 {
			start = sidecar.Start{Kind: millrace.StartContinue, Attempt: x.attempt, Step: x.step}
		}
	}
}

func (x *trainer) steps(ctx context.Context, l *link.Link, ph phase, start sidecar.Start) error {
	x.joined = l
	b, err := l.Join(ctx, x.rank, start)
	if err != nil {
		return err
	}
	if err := x.begun(start, b); err != nil {
		return err
	}
	for int(x.step) < ph.Until || x.w.load.ends && ph.Until == int(x.w.load.steps) {
		x.w.pass()
		p, err := l.Plan(ctx, x.attempt, x.step)
		if errors.Is(err, io.EOF) && x.w.load.ends && x.step == x.w.load.steps {
			return nil
		}
		if err != nil {
			return err
		}
		x.w.pass()
		x.w.decay(p)
		payload, err := l.Fetch(ctx, p.Plan, []millrace.Rank{x.part()})
		if err != nil {
			return err
		}
		if err := x.take(p, payload); err != nil {
			return err
		}
		x.step++
		time.Sleep(ph.Pace)
		x.w.pass()
		if ph.Save {
			if err := l.CheckpointSaved(ctx, x.rank, x.attempt, x.step-1); err != nil {
				return err
			}
		}
		if err := l.Commit(ctx, x.rank, x.attempt, x.step-1); err != nil {
			return err
		}
	}
	return nil
}

// begun checks the start that the run assigns to the rank.
func (x *trainer) begun(start sidecar.Start, b sidecar.Begin) error {
	switch start.Kind {
	case millrace.StartContinue:
		if b.Attempt != x.attempt || b.Step != x.step {
			return fmt.Errorf("it stood at step %d of attempt %d and goes on at %d of %d", x.step, x.attempt, b.Step,
				b.Attempt)
		}
	case millrace.StartFresh:
		if b.Step != 0 {
			return fmt.Errorf("a fresh start is at step %d", b.Step)
		}
	case millrace.StartState:
		if b.Step != start.Step {
			return fmt.Errorf("the state of step %d starts at step %d", start.Step, b.Step)
		}
	case millrace.StartLatest:
		if b.Step > x.step {
			return fmt.Errorf("it has not seen step %d and latest is %d", x.step, b.Step)
		}
	}
	x.attempt, x.step = b.Attempt, b.Step
	return nil
}

// take compares a step's bytes with the run without faults, and with the same step in an earlier attempt.
func (x *trainer) take(p *sidecar.StepPlan, payload sidecar.Payload) error {
	if p.Step != x.step || p.Attempt != x.attempt {
		return fmt.Errorf("it asked for step %d of attempt %d and got %d of %d", x.step, x.attempt, p.Step, p.Attempt)
	}
	if p.Held != nil {
		x.parts++
	}
	pieces, masked, err := x.pieces(p, payload)
	if err != nil {
		return err
	}
	if x.w.golden == nil {
		x.w.know(p)
	}
	if masked || x.got[p.Step] == "masked" {
		x.w.saw("masked")
		payload.Release()
		if err := x.judge(p, pieces); err != nil {
			return err
		}
		x.got[p.Step], x.pieced[p.Step], x.states[p.Step+1] = "masked", pieces, p.State
		return nil
	}
	x.pieced[p.Step] = pieces
	h := sha256.New()
	fmt.Fprintf(h, "%s %s", p.Content, p.Placement)
	for _, s := range pieces {
		io.WriteString(h, s.sum)
	}
	payload.Release()
	sum := fmt.Sprintf("%x", h.Sum(nil)[:8])
	if was, ok := x.got[p.Step]; ok && was != sum {
		return fmt.Errorf("step %d was %s, and is %s in attempt %d", p.Step, was, sum, p.Attempt)
	}
	remixed, err := x.w.remixed(p)
	if err != nil {
		return err
	}
	if x.w.golden != nil && !remixed && x.w.golden[x.rank][p.Step] != sum {
		return fmt.Errorf("step %d of attempt %d is %s, without faults it is %s", p.Step, p.Attempt, sum,
			x.w.golden[x.rank][p.Step])
	}
	x.got[p.Step], x.states[p.Step+1] = sum, p.State
	return nil
}

// train plays a phase with all ranks. It returns when they have reached its end or were killed.
func (w *world) train(ctx context.Context, ph phase) {
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	w.mu.Lock()
	w.killAt, w.kill = 0, kill
	if ph.Kill > 0 {
		w.killAt = w.passed + ph.Kill
	}
	w.mu.Unlock()
	start := w.start(ph)
	w.note("trainers start from %s %d", start.Kind, start.Step)
	var group sync.WaitGroup
	for _, x := range w.trainers {
		group.Go(func() {
			if err := x.run(ctx, ph, start); err != nil {
				w.fail("trainers see no fault", "rank %d at step %d of attempt %d: %v", x.rank, x.step, x.attempt, err)
			}
		})
	}
	group.Wait()
	w.mu.Lock()
	w.kill = nil
	w.mu.Unlock()
	for _, x := range w.trainers {
		if x.joined != nil {
			x.joined.Left(x.rank)
			x.joined = nil
		}
	}
}

// start returns the start of a phase, equal for all ranks.
func (w *world) start(ph phase) sidecar.Start {
	least := w.trainers[0].step
	for _, x := range w.trainers {
		least = min(least, x.step)
	}
	least -= min(least, millrace.Step(ph.Back))
	switch {
	case ph.Start == "latest":
		return sidecar.Start{Kind: millrace.StartLatest}
	case ph.Start == "state" && least > 0:
		return sidecar.Start{Kind: millrace.StartState, State: w.trainers[0].states[least], Step: least}
	}
	return sidecar.Start{Kind: millrace.StartFresh}
}
