package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"millrace/orchestrator"
	"millrace/verify/sim/memnet"
)

// process is one life of a role: goroutines with their own host and clock.
type process struct {
	orchestrator atomic.Pointer[orchestrator.Orchestrator] // in the orchestrator's slot, after its start
	slot         string
	life         int
	rng          *rand.Rand
	host         *memnet.Host
	clock        *clock
	ctx          context.Context
	cancel       context.CancelFunc
	site         *site    // nil: the run has one host
	up           string   // of the site; "" with one host
	disk         *runDisk // of an orchestrator
	struck       func()   // called by a kill: takes the disk away
	// gone is closed when the slot may be filled again: after a kill, after an end, or to start another beside it.
	gone  chan struct{}
	ended chan struct{} // closed when its goroutines have returned
	leave chan struct{} // closed to ask the process to leave: a loader hands over first
	final atomic.Bool   // it leaves for good

	mu     sync.Mutex
	killed bool
	over   bool // it ended by itself
	freed  bool
	again  time.Duration // time until the slot is filled again
}

// kill plays kill -9: from now on, the process has no effect. Its goroutines end later.
func (p *process) kill(again time.Duration, silent time.Duration) {
	p.mu.Lock()
	if p.killed {
		p.mu.Unlock()
		return
	}
	p.killed = true
	if !p.freed {
		p.again = again
	}
	p.mu.Unlock()
	if silent > 0 {
		time.AfterFunc(silent, p.host.Vanish())
	} else {
		p.host.Die()
	}
	if p.struck != nil {
		p.struck()
	}
	p.free()
	p.cancel()
}

// free allows the slot to be filled again.
func (p *process) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.freed {
		p.freed = true
		close(p.gone)
	}
}

func (p *process) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// isOver reports whether the process was killed or has ended.
func (p *process) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed || p.over
}

// askToLeave plays a SIGTERM to a loader.
func (p *process) askToLeave(forGood bool) {
	if forGood {
		p.final.Store(true)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.leave:
	default:
		close(p.leave)
	}
}

// freeze plays a SIGSTOP, as other processes see it.
func (p *process) freeze() (thaw func()) {
	host, clock := p.host.Freeze(), p.clock.freeze()
	return sync.OnceFunc(func() { host(); clock() })
}

// role starts a process. It returns a function that runs the process until its context ends, and one that cleans up
// afterwards.
type role func(p *process) (run func(context.Context) error, after func(), err error)

// slot is a process that the supervisor keeps running.
type slot struct {
	name  string
	start role

	mu      sync.Mutex
	now     *process
	lives   int
	stopped bool          // not started again
	parked  bool          // the engine wants no process
	changed chan struct{} // closed and replaced when the engine's mind changes; nil: no engine runs the slot
}

// process returns the slot's newest life, nil before the first.
func (s *slot) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// again is the delay before the supervisor restarts a process that ended by itself.
const again = 100 * time.Millisecond

// keep fills the slot until ctx ends, or the run is complete.
func (w *world) keep(ctx context.Context, s *slot) {
	for ctx.Err() == nil && !s.over() && s.isWanted(ctx) && w.siteOf(s.name).isUp(ctx) {
		p := w.begin(s)
		if s.isParked() { // since a moment
			p.askToLeave(true)
		}
		select {
		case <-p.gone:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		wait := p.again
		p.mu.Unlock()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

func (s *slot) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// begin starts the next life of a slot.
func (w *world) begin(s *slot) *process {
	s.mu.Lock()
	s.lives++
	life := s.lives
	s.mu.Unlock() // a start may wait, and waiting for a lock stops the clock of a bubble
	seed := w.script.Seed<<16 ^ uint64(life)<<8 ^ uint64(len(s.name)) ^ uint64(s.name[len(s.name)-1])
	p := &process{
		slot:  s.name,
		life:  life,
		rng:   rand.New(rand.NewPCG(seed, 2)),
		host:  w.net.Host(s.name),
		clock: newClock(seed),
		gone:  make(chan struct{}),
		ended: make(chan struct{}),
		leave: make(chan struct{}),
		again: again,
	}
	if h := w.siteOf(s.name); h != nil {
		p.site, p.up, p.clock.boot = h, h.up(), h.boot
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	w.mu.Lock()
	w.alive = append(w.alive, p)
	w.mu.Unlock()
	w.note("start %s life %d", s.name, life)
	run, after, err := s.start(p)
	s.mu.Lock()
	s.now = p
	s.mu.Unlock()
	if err != nil {
		w.note("%s does not start: %v", s.name, err)
		if !w.isExcused(p, err) {
			w.fail("processes start", "%s, life %d: %v", s.name, life, err)
		}
		p.mu.Lock()
		p.over = true
		p.mu.Unlock()
		p.free()
		p.cancel()
		close(p.ended)
		return p
	}
	w.group.Go(func() {
		err := run(p.ctx)
		if !p.dead() {
			w.exited(s, p, err)
		}
		p.host.Die()
		p.mu.Lock()
		p.over = true
		p.mu.Unlock()
		p.cancel()
		after()
		p.free() // its resources are free now, the disk's lock included
		close(p.ended)
	})
	return p
}

// exited judges a process that ended by itself.
func (w *world) exited(s *slot, p *process, err error) {
	w.note("%s ends by itself: %v", p.slot, err)
	if p.final.Load() {
		w.saw("a loader left for good")
	}
	if p.ctx.Err() != nil {
		if err != nil && !w.isExcused(p, err) {
			w.fail("processes stop in order", "%s, life %d: %v", p.slot, p.life, err)
		}
		return
	}
	if err == nil && isOrchestrator(s.name) {
		w.dismiss()
		w.finished()
		return
	}
	if !w.isExcused(p, err) {
		w.fail("a process ends by itself only if a fault explains it", "%s, life %d: %v", p.slot, p.life, err)
	}
}
