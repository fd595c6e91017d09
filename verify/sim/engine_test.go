package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"millrace/orchestrator"
	"millrace/orchestrator/placer"
	"millrace/orchestrator/scale"
)

// The kinds of fault of a run whose loaders an engine starts and ends.
const (
	resize     = "resize"      // the engine runs Size loaders from now on: others join, or the last ones leave for good
	engineLoss = "engine-loss" // the engine answers nothing for For
)

// mostFleet is the most loaders that read.
const mostFleet = 5

// scales gives one script in three an engine, and faults of it. Its randomness is its own, so the other scripts stay as
// they were.
func (s *script) scales(w *workload) {
	rng := rand.New(rand.NewPCG(s.Seed, 6))
	if rng.IntN(3) > 0 {
		return
	}
	s.Fleet, s.Wishes = 1+rng.IntN(mostFleet), rng.IntN(2) == 0
	add := func(f fault) {
		at := rng.IntN(len(s.Faults) + 1)
		if f.Delay = time.Duration(rng.IntN(50_000)) * time.Microsecond; at > 0 {
			f.After = s.Faults[at-1].After
		}
		s.Faults = slices.Insert(s.Faults, at, f)
	}
	for range 1 + rng.IntN(3) {
		add(fault{Kind: resize, At: orchestratorName, Size: 1 + rng.IntN(s.slots(w))})
	}
	one := fault{At: loaderName(rng.IntN(s.slots(w))), For: time.Duration(1+rng.IntN(3000)) * time.Millisecond}
	switch rng.IntN(5) {
	case 0:
		one.Kind, one.At = engineLoss, orchestratorName
	case 1:
		one.Kind = vanish
	case 2:
		one.Kind = crash
	case 3:
		one.Kind = freeze
	case 4:
		one.Kind = leave
	}
	add(one)
}

// slots returns how many loaders an engine may run: one more than read, and as many as the workload begins with.
func (s *script) slots(w *workload) int { return max(s.Fleet+1, w.loaders) }

// engine starts and ends the loaders of a run, as Kubernetes does: the first ones by their numbers are there.
type engine struct {
	w       *world
	loaders []*slot // by number
	away    atomic.Int64
}

// hire gives the world an engine with the loaders of its workload, and free slots for others.
func (w *world) hire() {
	w.engine = &engine{w: w}
	for i := range w.script.slots(w.load) {
		s := w.slot(loaderName(i))
		if s == nil {
			s = &slot{name: loaderName(i), start: w.serve, parked: true}
			w.slots = append(w.slots, s)
		}
		s.changed = make(chan struct{})
		w.engine.loaders = append(w.engine.loaders, s)
	}
}

// scale makes the first n loaders wanted. The others are asked to leave for good.
func (e *engine) scale(n int) {
	for i, s := range e.loaders {
		if s.want(i < n) && i < n {
			e.w.saw("a loader joined")
		}
	}
}

// want says whether the slot is to have a process, and reports whether that is new.
func (s *slot) want(is bool) (isNew bool) {
	s.mu.Lock()
	p := s.now
	if isNew = s.parked == is; isNew {
		s.parked = !is
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.mu.Unlock()
	if isNew && !is && p != nil {
		p.askToLeave(true)
	}
	return isNew
}

// isWanted waits until the slot is to have a process. It returns false if ctx ends first.
func (s *slot) isWanted(ctx context.Context) bool {
	for {
		s.mu.Lock()
		parked, changed := s.parked, s.changed
		s.mu.Unlock()
		if !parked {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (s *slot) isParked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parked
}

// lose makes the engine answer nothing until it is repaired.
func (e *engine) lose() (repair func()) {
	e.away.Add(1)
	return func() { e.away.Add(-1) }
}

// employ lets an orchestrator count on the engine. If it has wishes, it asks the engine for loaders. Otherwise their
// number is the engine's own. Each second life takes a smaller limit, as after a change of the mixture file: loaders
// beyond it wait.
func (w *world) employ(p *process, config *orchestrator.Config, options *orchestrator.Options) {
	if w.engine == nil {
		return
	}
	config.MostLoaders = w.script.Fleet
	if p.life%2 == 0 && config.MostLoaders > 1 {
		config.MostLoaders--
	}
	if w.script.Wishes {
		config.Elastic = &orchestrator.Elastic{Limits: scale.Limits{Min: 1, Max: config.MostLoaders}}
		options.Placer = &employer{w.engine, p}
	}
}

// employer is the way of one orchestrator to the engine.
type employer struct {
	engine *engine
	p      *process
}

// engineName is the name of the engine in the network.
const engineName = "engine"

var errAway = errors.New("the engine does not answer")

func (e *employer) ask(ctx context.Context) error {
	if err := e.p.host.Ask(ctx, engineName); err != nil {
		return err
	}
	if e.engine.away.Load() > 0 {
		return errAway
	}
	return nil
}

// Apply implements placer.Placer.
func (e *employer) Apply(ctx context.Context, goal placer.Desired) error {
	if err := e.ask(ctx); err != nil {
		return err
	}
	for _, wanted := range goal.Roles {
		e.engine.w.saw("the engine got a goal")
		e.engine.scale(wanted.Count)
	}
	return nil
}

// Observe implements placer.Placer.
func (e *employer) Observe(ctx context.Context) (out []placer.Instance, err error) {
	if err := e.ask(ctx); err != nil {
		return nil, err
	}
	for _, s := range e.engine.loaders {
		state := placer.Running
		if s.isParked() {
			if p := s.process(); p == nil || p.isOver() {
				continue
			}
			state = placer.Ending
		}
		out = append(out, placer.Instance{Role: "loader", Name: s.name, State: state})
	}
	return out, nil
}
