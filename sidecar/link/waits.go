package link

import (
	"context"
	"fmt"
	"strings"
	"time"

	"millrace"
	"millrace/sidecar"
)

// wait is what a fetch waits for.
type wait struct {
	step  millrace.Step
	since time.Time
	text  string
}

// wait notes what a fetch waits for; "" when it no longer does. since is kept while it waits.
func (l *Link) wait(n *need, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text == "" {
		delete(l.waits, n)
		return
	}
	w, waited := l.waits[n]
	if !waited {
		w = wait{step: n.payload.plan.Step, since: l.cfg.Clock.Now()}
	}
	w.text = text
	l.waits[n] = w
}

// Waiting implements sidecar.Upstream: the earliest step that a fetch waits for, and what the orchestrator says.
func (l *Link) Waiting() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first wait
	found := false
	for _, w := range l.waits {
		if !found || w.step < first.step || w.step == first.step && w.since.Before(first.since) {
			first, found = w, true
		}
	}
	select {
	case l.doubt <- struct{}{}:
	default: // it is being asked
	}
	var texts []string
	if found {
		texts = append(texts, fmt.Sprintf("step %d waits for %s, since %.1f s", first.step, first.text, l.cfg.Clock.Now().Sub(first.since).Seconds()))
	}
	if !l.mute.IsZero() {
		texts = append(texts, fmt.Sprintf("the orchestrator answers nothing, since %.1f s: is it stopped?", l.cfg.Clock.Now().Sub(l.mute).Seconds()))
	}
	if l.waiting != "" {
		texts = append(texts, l.waiting)
	}
	return strings.Join(texts, "; ")
}

// Alerts implements sidecar.Upstream.
func (l *Link) Alerts(ctx context.Context, after uint64) (alerts []sidecar.Alert, version uint64, err error) {
	err = l.await(ctx, func() bool {
		alerts, version = l.alerts, l.alerted
		return version > after
	})
	return alerts, version, err
}
