package link

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"millrace/internal/heartbeat"
	"millrace/internal/seam"
)

// stuckAfter is the time after which a loader that beats, but makes no progress with its requests, counts as dead.
const stuckAfter = 5 * time.Second

// watcher looks at the heartbeats of the loaders that have requests in flight. It sleeps while none has.
type watcher struct {
	pages heartbeat.Pages // nil: no loader is watched
	clock seam.Clock
	log   *slog.Logger
	awake chan struct{} // signals the start of the first request

	mu        sync.Mutex
	byAddress map[string]*watched
	caution   heartbeat.Caution // of all judges
	requests  int               // in flight to watched loaders
}

// watched is one loader process that has a heartbeat page. The watcher's lock guards it.
type watched struct {
	requests int // in flight to it
	monitor  *heartbeat.Monitor
	judge    *heartbeat.Judge
	verdict  heartbeat.Verdict
	dead     chan struct{} // closed with a verdict other than alive
}

// attend begins to watch a loader for one request; detach ends it. It returns nil if the loader has no readable page.
// Then only the end of a stream shows that the loader is dead.
func (w *watcher) attend(m *member) *watched {
	if w.pages == nil || m.beat == "" {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.byAddress[m.address]
	if x == nil {
		monitor, err := w.pages.Open(m.beat)
		if err != nil {
			w.log.Debug("open a heartbeat page", "loader", m.name, "error", err)
			return nil
		}
		judge := heartbeat.NewJudge(stuckAfter, &w.caution)
		x = &watched{monitor: monitor, judge: judge, dead: make(chan struct{})}
		w.byAddress[m.address] = x
	}
	// a new request to a loader that was judged dead begins a new judgement
	if x.requests == 0 || x.verdict != heartbeat.Alive {
		x.judge.Rest()
		if x.verdict != heartbeat.Alive {
			x.verdict, x.dead = heartbeat.Alive, make(chan struct{})
		}
	}
	x.requests++
	if w.requests++; w.requests == 1 {
		select {
		case w.awake <- struct{}{}:
		default: // it is awake
		}
	}
	return x
}

// detach ends one request to a loader. x may be nil.
func (w *watcher) detach(x *watched) {
	if x == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x.requests--
	w.requests--
}

// silence returns a channel that is closed when the loader is judged dead. It is nil for an unwatched loader.
func (w *watcher) silence(x *watched) <-chan struct{} {
	if x == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return x.dead
}

// judged returns the verdict on a loader, for messages.
func (w *watcher) judged(x *watched) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return x.verdict.String()
}

// patrol looks at the heartbeats until ctx ends.
func (w *watcher) patrol(ctx context.Context) {
	for {
		pause := w.look()
		var next <-chan time.Time
		if pause > 0 {
			next = w.clock.After(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.awake:
		case <-next:
		}
	}
}

// look judges every loader with requests in flight. It returns the pause until the next look, or 0 if the next look is
// due when a request begins.
func (w *watcher) look() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.requests == 0 {
		return 0
	}
	now := w.clock.Now()
	for _, x := range w.byAddress {
		if x.requests == 0 || x.verdict != heartbeat.Alive {
			continue
		}
		if x.verdict = x.judge.Look(now, x.monitor.Sample()); x.verdict != heartbeat.Alive {
			close(x.dead)
		}
	}
	return heartbeat.Look
}

// retain closes the pages of all other addresses that have no request in flight.
func (w *watcher) retain(addresses []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for address, x := range w.byAddress {
		if x.requests == 0 && !slices.Contains(addresses, address) {
			delete(w.byAddress, address)
			_ = x.monitor.Close()
		}
	}
}
