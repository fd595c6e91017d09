package sim

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"

	"millrace/internal/event"
	"millrace/orchestrator/facts"
)

// The consequences of faults that campaigns count. A seed counts once for each.
const (
	bySilence  = "switched by silence"     // a sidecar saw no beats
	byStuck    = "switched by a stuck one" // a sidecar saw beats and no progress
	byStream   = "switched by a stream's end"
	hedged     = "hedged"
	lostByDown = "promoted: connection lost" // the orchestrator saw a loader's stream end
	lostByHost = "promoted: switched"        // a sidecar reported it
	lostByTerm = "promoted: asked to leave"
	moved      = "promoted: handed over" // a loader that came, or the others after one that left for good
)

// watcher reads a sidecar's event records and log: the loaders that it asks, under terms that never go down, and its
// reasons to switch.
type watcher struct {
	w     *world
	p     *process
	mu    sync.Mutex
	terms map[string]uint64 // by stripe, the highest under which rows came or to which it switched
}

// Write implements io.Writer. Each call is a record.
func (x *watcher) Write(line []byte) (int, error) {
	var r event.Record
	if err := json.Unmarshal(line, &r); err != nil {
		return 0, err
	}
	switch r.Event {
	case "hedged":
		x.w.saw(hedged)
	case "directed", "switched", "heard":
		x.follow(r)
	}
	return len(line), nil
}

// follow fails the run if a stripe's term goes down. An empty directory has no term.
func (x *watcher) follow(r event.Record) {
	words := strings.Fields(r.Key)
	if len(words) < 2 || r.Term == 0 {
		return
	}
	of := words[0] + "/" + words[1]
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.Term < x.terms[of] && r.Event != "heard" { // rows may be in flight when another loader is asked
		x.w.fail("terms never go down", "%s, life %d: stripe %s is asked under term %d after %d (%s)", x.p.slot,
			x.p.life, of, r.Term, x.terms[of], r.Event)
	}
	x.terms[of] = max(x.terms[of], r.Term)
}

// Enabled implements slog.Handler.
func (x *watcher) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// WithAttrs implements slog.Handler.
func (x *watcher) WithAttrs([]slog.Attr) slog.Handler { return x }

// WithGroup implements slog.Handler.
func (x *watcher) WithGroup(string) slog.Handler { return x }

// Handle implements slog.Handler.
func (x *watcher) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "a loader was replaced by its standby" {
		return nil
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "reason" {
			return true
		}
		switch reason := a.Value.String(); {
		case strings.Contains(reason, "it is silent"):
			x.w.saw(bySilence)
		case strings.Contains(reason, "it is stuck"):
			x.w.saw(byStuck)
		default:
			x.w.saw(byStream)
		}
		return false
	})
	return nil
}

// promotions counts the reasons for which the loaders of the end got their stripes.
func (w *world) promotions(s *facts.State) {
	for _, h := range s.Holders {
		switch reason := h.Reason; {
		case reason == "":
		case strings.Contains(reason, "was asked to leave"):
			w.saw(lostByTerm)
		case strings.Contains(reason, " hands it over"):
			w.saw(moved)
		case strings.Contains(reason, "its connection ended"):
			w.saw(lostByDown)
		default:
			w.saw(lostByHost)
		}
	}
}
