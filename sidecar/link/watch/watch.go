// Package watch judges the loaders that have requests in flight: dead or silent, stuck, or alive. A loader of this host
// has a heartbeat page. A loader of another host sends beats on a stream.
package watch

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"millrace/internal/heartbeat"
	"millrace/internal/seam"
)

// stuckAfter is the time after which a loader that beats, but makes no progress with its requests, counts as dead.
const stuckAfter = 5 * time.Second

// remoteStuckAfter is the same for a loader of another host, whose threads this process knows less about.
const remoteStuckAfter = 3 * stuckAfter

// Process is a loader process.
type Process struct {
	Name, Address string
	Beat          string // its heartbeat page; empty: it has none here
	IsRemote      bool   // of another host
	Up            string // the `up` of that host
}

// Config describes a watcher.
type Config struct {
	Pages heartbeat.Pages // nil: no loader of this host is watched
	Dial  func(address string) (*grpc.ClientConn, error)
	Clock seam.Clock
	Log   *slog.Logger
}

// Watcher looks at the heartbeats of the loaders that have requests in flight. It sleeps while none has. Loaders of
// this host have a page. A loader of another host sends beats on a stream, which Patrol opens when a reply is owed.
type Watcher struct {
	cfg   Config
	awake chan struct{} // signals the start of the first request

	mu        sync.Mutex
	byAddress map[string]*Watched
	caution   heartbeat.Caution // of all judges of this host's loaders
	// of the judges of other hosts' loaders, by name: a mistake about one does not count for another; no name is
	// removed
	doubts   map[string]*heartbeat.Caution
	starved  map[string]time.Duration // delays of the timers of a starved host's loaders, by its `up`
	requests int                      // in flight to watched loaders
}

// New returns a watcher. Patrol looks.
func New(cfg Config) *Watcher {
	return &Watcher{
		cfg: cfg, awake: make(chan struct{}, 1), byAddress: map[string]*Watched{},
		doubts: map[string]*heartbeat.Caution{},
	}
}

// Watched is one loader process that has a heartbeat page, or a stream of beats. The watcher's lock guards it.
type Watched struct {
	requests int // in flight to it
	monitor  monitor
	judge    *heartbeat.Judge
	verdict  heartbeat.Verdict
	signs    uint64        // the signs of life when it became silent
	dead     chan struct{} // closed with a verdict other than alive
	beats    *beats        // nil: the loader is of this host
	up       string        // of its host, if that is another
}

// monitor returns the newest state of a process.
type monitor interface{ Sample() heartbeat.Reading }

// Starve notes the hosts whose loaders starve, by the host's `up`, and the longest delay of a timer there. It replaces
// those noted before. The caller does not change the map any more.
func (w *Watcher) Starve(hosts map[string]time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starved = hosts
}

// Attend begins to watch a loader for one request; Detach ends it. It returns nil if the loader has no readable page.
// Then only the end of a stream shows that the loader is dead.
func (w *Watcher) Attend(p Process) *Watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.byAddress[p.Address]
	if x == nil {
		if x = w.begin(p); x == nil {
			return nil
		}
		w.byAddress[p.Address] = x
	}
	x.renew()
	x.beats.begin(w.cfg.Clock.Now(), x.requests == 0)
	x.requests++
	if w.requests++; w.requests == 1 {
		w.wake()
	}
	return x
}

// renew begins a new judgement for a new request, if the loader was not judged until now, or was judged dead. It does
// not while a loader that was silent stays so. The caller holds the lock.
func (x *Watched) renew() {
	switch {
	case x.verdict == heartbeat.Alive && x.isJudged():
		return
	case x.verdict == heartbeat.Silent && x.beats.isOpen() && x.monitor.Sample().Beats == x.signs:
		return
	case x.verdict != heartbeat.Alive:
		x.verdict, x.dead = heartbeat.Alive, make(chan struct{})
	}
	x.judge.Rest()
}

// isJudged reports whether every look judges the loader: it has a request, or the newest ended without its reply.
func (x *Watched) isJudged() bool { return x.requests > 0 || x.beats.owes() }

// wake wakes Patrol.
func (w *Watcher) wake() {
	select {
	case w.awake <- struct{}{}:
	default: // it is awake
	}
}

// begin returns a loader that is not watched yet, nil if that is not possible. The caller holds the lock.
func (w *Watcher) begin(p Process) *Watched {
	x := &Watched{dead: make(chan struct{})}
	if p.IsRemote {
		x.beats, x.up = &beats{address: p.Address}, p.Up
		if w.doubts[p.Name] == nil {
			w.doubts[p.Name] = &heartbeat.Caution{}
		}
		x.monitor, x.judge = &x.beats.wire, heartbeat.NewWireJudge(remoteStuckAfter, w.doubts[p.Name])
		return x
	}
	if w.cfg.Pages == nil || p.Beat == "" {
		return nil
	}
	page, err := w.cfg.Pages.Open(p.Beat)
	if err != nil {
		w.cfg.Log.Debug("open a heartbeat page", "loader", p.Name, "error", err)
		return nil
	}
	x.monitor, x.judge = page, heartbeat.NewJudge(stuckAfter, &w.caution)
	return x
}

// Detach ends one request to a loader. x may be nil.
func (w *Watcher) Detach(x *Watched) {
	if x == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x.requests--
	w.requests--
}

// Silence returns a channel that is closed when the loader is judged dead. It is nil for an unwatched loader.
func (w *Watcher) Silence(x *Watched) <-chan struct{} {
	if x == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return x.dead
}

// Judged returns the verdict on a loader, for messages.
func (w *Watcher) Judged(x *Watched) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return x.verdict.String()
}

// Patrol looks at the heartbeats until ctx ends.
func (w *Watcher) Patrol(ctx context.Context) {
	ctx, leave := context.WithCancel(ctx)
	var streams errgroup.Group
	defer func() {
		leave()
		_ = streams.Wait()
	}()
	for {
		pause := w.look()
		if until := w.tend(ctx, &streams); pause == 0 {
			pause = until
		}
		var next <-chan time.Time
		if pause > 0 {
			next = w.cfg.Clock.After(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.awake:
		case <-next:
		}
	}
}

// look judges every loader that owes a reply. It returns the pause until the next look, or 0 if the next look is due
// when a request begins.
func (w *Watcher) look() (pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.Clock.Now()
	for _, x := range w.byAddress {
		if x.requests > 0 {
			x.beats.look(now)
		}
		if !x.isJudged() {
			continue
		}
		pause = heartbeat.Look
		if x.verdict != heartbeat.Alive || x.beats.isMute() {
			continue
		}
		r := x.monitor.Sample()
		r.Starved = w.starved[x.up]
		if x.verdict = x.judge.Look(now, r); x.verdict != heartbeat.Alive {
			x.signs = r.Beats
			close(x.dead)
		}
	}
	return pause
}

// Retain closes the pages and streams of all other addresses that have no request in flight.
func (w *Watcher) Retain(addresses []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for address, x := range w.byAddress {
		if x.requests == 0 && !slices.Contains(addresses, address) {
			delete(w.byAddress, address)
			if page, ok := x.monitor.(*heartbeat.Monitor); ok {
				_ = page.Close()
			}
			x.beats.close()
		}
	}
}
