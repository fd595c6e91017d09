// Package sim runs the whole system in one process: real gRPC over a network in memory, a real journal on a disk in
// memory, and virtual time. A script of faults follows from a seed.
package sim

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace"
	"millrace/checkpoint/disk/disktest"
	"millrace/internal/arena"
	"millrace/internal/arena/arenatest"
	"millrace/internal/heartbeat/heartbeattest"
	"millrace/internal/seam"
	"millrace/verify/sim/election"
	"millrace/verify/sim/memnet"
)

// patience is the virtual time after which a run counts as stuck. The longest script has about a minute of faults and a
// minute of slow trainers.
const patience = 2 * time.Minute

// electing is the virtual time beside patience for the elections of a run with several hosts.
const electing = 2 * time.Minute

// world is one run under one script.
type world struct {
	load      *workload // with the topology with which the run begins
	shape     *workload // with the topology of the trainers
	calm      *world    // the run without faults; of that run, the one under the other topology
	script    *script
	golden    []map[millrace.Step]string  // by rank, the digests of the run without faults; nil in that run
	whole     []map[millrace.Step][]piece // by rank, the segments of the run without faults
	documents map[string]*document        // by record, of the run without faults
	rot       *rot
	net       *memnet.Net
	disk      *runDisk
	pages     *heartbeattest.Memory
	arenas    arena.Space // nil in a part of the runs: their replies carry the tokens
	slots     []*slot
	hosts     []*endpoint
	sites     []*site           // none: the run has one host
	etcd      *election.Cluster // nil: the run has one host
	disks     map[string]*runDisk
	engine    *engine // starts and ends the loaders; nil: their number is fixed

	trainers []*trainer
	group    sync.WaitGroup     // every goroutine of the world
	stop     context.CancelFunc // ends the world
	over     context.Context    // ends when the run is complete
	complete context.CancelFunc

	locked atomic.Int64 // faults during which an orchestrator may fail to start

	mu       sync.Mutex
	alive    []*process                        // every process so far
	changed  chan struct{}                     // closed and replaced with every pass
	passed   int                               // passes of the trainers
	killAt   int                               // the pass at which the trainers are killed; 0: none
	kill     context.CancelFunc                // of the trainers; nil while there are none
	bereft   bool                              // the trainers were killed with their host
	term     millrace.Term                     // newest term of an orchestrator
	unsynced int                               // percent of the unsynced data that the next crash keeps
	furthest millrace.Step                     // first step that no trainer has reached in any attempt
	mixed    millrace.Step                     // first step that a change of the mixture may affect
	contents map[millrace.Step]millrace.Digest // of steps that trainers reached
	verdict  verdict
	history  hash.Hash
}

// verdict is the result of a run.
type verdict struct {
	Violated string // the first property that did not hold; "" if all did
	Detail   string
	Struck   map[string]int // faults by kind
	Seen     map[string]int // consequences by kind
	Steps    int            // taken by trainers
	History  string         // digest of the events and their times
	Virtual  time.Duration
}

// newWorld returns a world in which nothing runs yet. It must be made in the synctest bubble in which it runs.
func newWorld(load *workload, s *script, calm *world) *world {
	w := &world{
		load:      load,
		shape:     load,
		calm:      calm,
		script:    s,
		documents: map[string]*document{},
		rot:       &rot{bad: map[string]*process{}, healed: map[string]bool{}},
		net:       memnet.New(),
		disk:      &runDisk{disk: disktest.NewMemory()},
		pages:     heartbeattest.NewMemory(seam.System{}),
		changed:   make(chan struct{}),
		unsynced:  100,
		contents:  map[millrace.Step]millrace.Digest{},
		mixed:     load.steps,
		verdict:   verdict{Struck: map[string]int{}, Seen: map[string]int{}},
		history:   sha256.New(),
	}
	if s.Seed%4 != 3 {
		w.arenas = &arenatest.Memory{}
	}
	if calm != nil {
		w.documents = calm.documents
		w.golden, w.whole = w.expected(load)
	}
	w.net.Blow(s.Weather, s.Seed)
	sidecars := load.hosts
	if s.Hosts > 0 {
		sidecars = max(sidecars, min(s.Hosts, load.ranks))
		w.spread()
	}
	for _, name := range load.slots(s.Hosts, sidecars) {
		w.slots = append(w.slots, &slot{name: name, start: w.role(name)})
	}
	if s.Fleet > 0 {
		w.hire()
	}
	for range sidecars {
		w.hosts = append(w.hosts, &endpoint{changed: make(chan struct{}), wanted: load})
	}
	w.trainers = w.rankedTrainers(load)
	return w
}

func (w *world) role(name string) role {
	switch {
	case name == orchestratorName:
		return w.orchestrate
	case isOrchestrator(name):
		return w.stand
	case strings.HasPrefix(name, "sidecar"):
		return w.deliver
	}
	return w.serve
}

// live plays the script to its end and judges it.
func (w *world) live() verdict {
	began := time.Now()
	longest := patience
	if w.etcd != nil {
		longest += electing
	}
	ctx, stop := context.WithTimeout(context.Background(), longest)
	w.stop = stop
	w.over, w.complete = context.WithCancel(ctx)
	defer w.complete()
	var supervisors sync.WaitGroup
	for _, s := range w.slots {
		supervisors.Go(func() { w.keep(ctx, s) })
	}
	faults, calm := context.WithCancel(ctx)
	var weather sync.WaitGroup
	weather.Go(func() { w.injectFaults(faults) })
	var turns sync.WaitGroup
	for _, ph := range w.script.Phases {
		w.turn(faults, &ph, &turns)
		for again := true; again && ctx.Err() == nil; ph = ph.again() {
			w.train(ctx, ph)
			again = w.begins()
		}
	}
	calm()
	weather.Wait()
	turns.Wait()
	if ctx.Err() == context.DeadlineExceeded {
		w.fail("no run is stuck", "%s", w.standing())
	}
	w.verdict.Virtual = time.Since(began)
	stop()
	supervisors.Wait()
	w.end()
	return w.verdict
}

// end stops every process in order and judges the leftovers. The orchestrator is last, so its journal is complete.
func (w *world) end() {
	for _, p := range w.alive {
		if !isOrchestrator(p.slot) {
			p.cancel()
		}
	}
	w.judgeJournal(func() {
		for _, p := range w.alive {
			p.cancel()
		}
		w.group.Wait()
	})
	w.judgeHistory()
	w.verdict.History = fmt.Sprintf("%x", w.history.Sum(nil)[:8])
}

// fail notes the first property that does not hold, and ends the world.
func (w *world) fail(property, format string, args ...any) {
	w.mu.Lock()
	if w.verdict.Violated == "" {
		w.verdict.Violated, w.verdict.Detail = property, fmt.Sprintf(format, args...)
	}
	w.mu.Unlock()
	w.stop()
}

// saw counts a consequence of a fault.
func (w *world) saw(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verdict.Seen[what]++
}

// note adds an event to the history.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.history, "%d ", time.Now().UnixNano())
	fmt.Fprintf(w.history, format+"\n", args...)
}

// pass marks a point in a trainer's run at which faults may begin.
func (w *world) pass() {
	w.note("pass")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed++
	if w.passed == w.killAt {
		w.verdict.Struck[trainersGo]++
		w.kill()
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// finished notes that the run is complete, and ends the world after a grace. If a trainer's last answer was lost, the
// trainer notices the end of the run by the end of the world. In a real run, the end of the command has this effect.
func (w *world) finished() { time.AfterFunc(farewellGrace, w.complete) }

// standing describes the position of every process, for a run that is stuck.
func (w *world) standing() string {
	text := ""
	for _, x := range w.trainers {
		text += fmt.Sprintf("rank %d at step %d of attempt %d; ", x.rank, x.step, x.attempt)
	}
	for i, h := range w.hosts {
		h.mu.Lock()
		if h.link != nil {
			text += fmt.Sprintf("%s waits: %q; ", sidecarName(i), h.link.Waiting().Text)
		}
		h.mu.Unlock()
	}
	for _, s := range w.slots {
		if p := s.process(); p != nil {
			text += fmt.Sprintf("%s life %d, dead %t; ", s.name, p.life, p.dead())
		}
	}
	return text
}
