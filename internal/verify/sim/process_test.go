package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/verify/sim/memnet"
	"millrace/orchestrator"
)

// process is one life of a role: a set of goroutines with a host and a clock of their own.
type process struct {
	orchestrator atomic.Pointer[orchestrator.Orchestrator] // of the orchestrator's slot, once it is there
	slot         string
	life         int
	rng          *rand.Rand
	host         *memnet.Host
	clock        *clock
	ctx          context.Context
	cancel       context.CancelFunc
	struck       func()        // what a kill does besides: it takes the disk away
	gone         chan struct{} // closed when the slot is free: the process was killed, has ended, or another may be started beside it
	ended        chan struct{} // closed when its goroutines are done
	leave        chan struct{} // closed when it is asked to leave: a loader hands over first

	mu     sync.Mutex
	killed bool
	over   bool // it has ended by itself
	freed  bool
	again  time.Duration // until the slot is filled again
}

// kill is kill -9: from here on nothing it does has an effect. Its goroutines end in their own time.
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

// free lets the slot be filled again.
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

// done tells that the process was killed or has ended.
func (p *process) done() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed || p.over
}

// askToLeave is SIGTERM to a loader.
func (p *process) askToLeave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.leave:
	default:
		close(p.leave)
	}
}

// freeze is SIGSTOP, as far as anybody else can see.
func (p *process) freeze() (thaw func()) {
	host, clock := p.host.Freeze(), p.clock.freeze()
	return sync.OnceFunc(func() { host(); clock() })
}

// role starts a process. It returns a function that runs it until its context ends, and one that cleans up afterwards.
type role func(p *process) (run func(context.Context) error, after func(), err error)

// slot is a place that a supervisor keeps filled.
type slot struct {
	name  string
	start role

	mu      sync.Mutex
	now     *process
	lives   int
	stopped bool // no other life follows
}

// process is the slot's newest life, nil before the first.
func (s *slot) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// again is how long a supervisor waits before it starts a process that ended by itself.
const again = 100 * time.Millisecond

// keep fills the slot until ctx ends, or a life ends with nothing left to do.
func (w *world) keep(ctx context.Context, s *slot) {
	for ctx.Err() == nil && !s.over() {
		p := w.begin(s)
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
	s.mu.Unlock() // a start may wait, and who waits for a lock stops the clock of a bubble
	seed := w.script.Seed<<16 ^ uint64(life)<<8 ^ uint64(len(s.name)) ^ uint64(s.name[len(s.name)-1])
	p := &process{slot: s.name, life: life, rng: rand.New(rand.NewPCG(seed, 2)), host: w.net.Host(s.name), clock: newClock(seed),
		gone: make(chan struct{}), ended: make(chan struct{}), leave: make(chan struct{}), again: again}
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
		if !w.excuses(p, err) {
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
		p.free() // now its resources are free, the disk's lock included
		close(p.ended)
	})
	return p
}

// exited judges a process that ended by itself.
func (w *world) exited(s *slot, p *process, err error) {
	w.note("%s ends by itself: %v", p.slot, err)
	if p.ctx.Err() != nil {
		if err != nil && !w.excuses(p, err) {
			w.fail("processes stop in order", "%s, life %d: %v", p.slot, p.life, err)
		}
		return
	}
	if err == nil && s.name == orchestratorName {
		s.mu.Lock()
		s.stopped = true
		s.mu.Unlock()
		w.finished()
		return
	}
	if !w.excuses(p, err) {
		w.fail("processes end by themselves only where they are told to", "%s, life %d: %v", p.slot, p.life, err)
	}
}
