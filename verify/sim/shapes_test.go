package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"millrace"
	"millrace/orchestrator/attempts"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/place"
	"millrace/proto"
)

// reshape makes the other topology of a workload, and lets the run change between both. It has at least as many ranks,
// so that each sidecar has some.
func (w *workload) reshape() {
	axes, dp := w.axes, w.axes.DP()
	if w.number%2 == 0 {
		axes.TP *= max(dp, 2) // one data-parallel rank
		axes.Ranks = axes.TP * axes.CP * axes.PP
	} else {
		axes.PP *= 2
		axes.Ranks *= 2
	}
	other := *w
	other.axes, other.ranks = axes, axes.Ranks
	w.other, other.other = &other, w
	both := []*workload{w, &other}
	for _, l := range both {
		l.config.Topology = l.topology()
		l.config.Reshape = func(t millrace.Topology) (*attempts.Topology, error) {
			for _, to := range both {
				if to.axes == t {
					return to.config.Topology, nil
				}
			}
			return nil, millrace.Errorf(millrace.ErrInvalid, "the topology %+v", t)
		}
	}
}

// topology returns the topology of the workload.
func (w *workload) topology() *attempts.Topology {
	t := w.axes
	placing := &proto.Placing{Ranks: uint32(t.Ranks), Tp: uint32(t.TP), Cp: uint32(t.CP), Pp: uint32(t.PP)}
	return &attempts.Topology{Ranks: w.ranks, Placing: placing, Place: w.place()}
}

// place returns the placement under the topology of the workload.
func (w *workload) place() func(*planner.Selection) (*millrace.Plan, error) {
	return func(sel *planner.Selection) (*millrace.Plan, error) {
		plan, err := place.Plan(sel, w.axes, w.options)
		if err == nil {
			own := w.options
			own.MicroBatch = plan.MicroBatch
			err = placed(sel, plan, own.Shape(plan.SequenceLength, millrace.Int32))
		}
		return plan, err
	}
}

// reshapes gives one script in three a change of the topology between phases of the trainers, and faults in the middle
// of it. Its randomness is its own, so the other scripts stay as they were.
func (s *script) reshapes(w *workload) {
	rng := rand.New(rand.NewPCG(s.Seed, 8))
	if rng.IntN(3) > 0 {
		return
	}
	if len(s.Phases) == 1 {
		next := s.Phases[0]
		next.Start = []string{"state", "latest"}[rng.IntN(2)]
		s.Phases[0].Until = 1 + rng.IntN(int(w.steps)-2)
		s.Phases = append(s.Phases, next)
	}
	for i := 1; i < len(s.Phases); i++ {
		ph := &s.Phases[i]
		ph.Other = i == 1 || rng.IntN(2) == 0
		if ph.Other == s.Phases[i-1].Other {
			continue
		}
		for range rng.IntN(4) {
			f := newTurnFault(rng, w, s.Hosts)
			ph.Turn = append(ph.Turn, f)
		}
	}
}

// newTurnFault draws a fault that begins up to 0.4 s after a change of the topology has.
func newTurnFault(rng *rand.Rand, w *workload, hosts int) fault {
	slots := w.slots(0, w.hosts)
	ms := func(most int) time.Duration { return time.Duration(1+rng.IntN(most)) * time.Millisecond }
	f := fault{Delay: ms(400), At: slots[rng.IntN(len(slots))]}
	if rng.IntN(3) == 0 {
		f.At = orchestratorName
	}
	switch kind := rng.IntN(10); {
	case kind < 4:
		f.Kind, f.For, f.Size = crash, ms(300), rng.IntN(101)
	case kind == 4:
		f.Kind, f.For, f.Size = vanish, ms(3000), rng.IntN(101)
	case kind == 5:
		f.Kind, f.At = stop, orchestratorName
	case kind == 6:
		f.Kind = reset
	case kind == 7 || hosts == 0:
		f.Kind, f.To, f.For = partition, slots[rng.IntN(len(slots))], ms(2000)
	case kind == 8:
		f.Kind, f.For, f.Size = hostLoss, ms(6000), rng.IntN(101)
	default:
		f.Kind, f.For = etcdLoss, ms(8000)
	}
	return f
}

// turn gives the run the topology of a phase, one host after the other, and injects the phase's faults meanwhile. No
// trainer is there when it begins. Those of the next topology may join before it is over.
func (w *world) turn(ctx context.Context, ph *phase, group *sync.WaitGroup) {
	to := w.load
	if ph.Other {
		to = w.load.other
	}
	if to == w.shape {
		return
	}
	w.note("turn to %d ranks", to.ranks)
	w.saw("another topology")
	w.shape = to
	w.golden, w.whole = w.expected(to)
	earlier := w.trainers
	w.trainers = w.rankedTrainers(to)
	for _, x := range w.trainers {
		inherit(x, earlier)
	}
	for i, h := range w.hosts {
		delay := time.Duration((w.script.Seed+uint64(i)*131)%300) * time.Millisecond
		group.Go(func() {
			rest(ctx, delay)
			w.replace(ctx, h, sidecarName(i), to)
		})
	}
	for _, f := range ph.Turn {
		group.Go(func() {
			if !rest(ctx, f.Delay) {
				return
			}
			w.note("%s at %s %s during a change", f.Kind, f.At, f.To)
			w.mu.Lock()
			w.verdict.Struck["in a change: "+f.Kind]++
			w.mu.Unlock()
			if repair := w.inject(&f); repair != nil {
				rest(ctx, f.For)
				repair()
			}
		})
	}
}

// replace gives a host another topology: its sidecar is asked to leave, until one that serves the topology is there.
func (w *world) replace(ctx context.Context, h *endpoint, slot string, to *workload) {
	h.serve(to)
	for {
		p := w.slot(slot).process()
		served := h.served()
		if served == to || ctx.Err() != nil {
			return
		}
		if p != nil {
			p.cancel()
		}
		if !rest(ctx, again/2) {
			return
		}
	}
}

// serve makes a workload's topology that of the host's next sidecar.
func (s *endpoint) serve(to *workload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = to
}

// served returns the workload whose topology the host's sidecar serves.
func (s *endpoint) served() *workload {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has
}

// next returns the workload whose topology the host's next sidecar serves.
func (s *endpoint) next() *workload {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted
}

// expected returns the batches of the run without faults under a topology, nil in that run.
func (w *world) expected(under *workload) (golden []map[millrace.Step]string, whole []map[millrace.Step][]piece) {
	calm := w.calm
	if calm != nil && under != calm.load {
		calm = calm.calm
	}
	if calm == nil {
		return nil, nil
	}
	for _, x := range calm.trainers {
		golden, whole = append(golden, x.got), append(whole, x.pieced)
	}
	return golden, whole
}

// rankedTrainers returns a trainer for each rank of a topology.
func (w *world) rankedTrainers(under *workload) (out []*trainer) {
	for r := range under.ranks {
		out = append(out, &trainer{
			w:         w,
			rank:      millrace.Rank(r),
			got:       map[millrace.Step]string{},
			pieced:    map[millrace.Step][]piece{},
			states:    map[millrace.Step][]byte{},
			inherited: map[millrace.Step]bool{},
		})
	}
	return out
}

// inherit lets a trainer go on where those of an earlier topology have left. Steps that all of them have are delivered.
func inherit(x *trainer, earlier []*trainer) {
	x.step = earlier[0].step
	for _, e := range earlier {
		x.step = min(x.step, e.step)
	}
	maps.Copy(x.states, earlier[0].states)
	for step := range x.w.load.steps {
		x.inherited[step] = !slices.ContainsFunc(earlier, func(e *trainer) bool { return !e.has(step) })
	}
}

// has reports whether the trainer, or all of an earlier topology, have a step.
func (x *trainer) has(step millrace.Step) bool { return x.got[step] != "" || x.inherited[step] }

// sameContent checks that the run without faults has the same content under both topologies of a workload.
func sameContent(a, b *world) error {
	for step, content := range a.contents {
		if b.contents[step] != content {
			return fmt.Errorf("workload %d, step %d: %s with %d ranks, %s with %d", a.load.number, step, content,
				a.load.ranks, b.contents[step], b.load.ranks)
		}
	}
	return nil
}
