package link

import (
	"context"
	"time"

	"millrace/internal/heartbeat"
)

// stuckAfter is how long a loader that beats may show no progress with requests pending.
const stuckAfter = 5 * time.Second

// watched is one loader process that has a heartbeat page; guarded by Link.mu.
type watched struct {
	asks    int // requests in flight to it: it is looked at while there are any
	monitor *heartbeat.Monitor
	judge   *heartbeat.Judge
	verdict heartbeat.Verdict
	dead    chan struct{} // closed with a verdict other than alive
}

func (w *watched) close() { _ = w.monitor.Close() }

// attend begins to watch a member for one request. Where it has no page, or none that can be read, nothing is ever said: then the
// stream's end has to do.
func (l *Link) attend(m *member) *watched {
	if l.cfg.Pages == nil || m.beat == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watched[m.address]
	if w == nil {
		monitor, err := l.cfg.Pages.Open(m.beat)
		if err != nil {
			l.cfg.Log.Debug("open a heartbeat page", "loader", m.name, "error", err)
			return nil
		}
		w = &watched{monitor: monitor, judge: heartbeat.NewJudge(stuckAfter, &l.caution), dead: make(chan struct{})}
		l.watched[m.address] = w
	}
	if w.asks == 0 || w.verdict != heartbeat.Alive { // one that was given up and is asked again has a new chance
		w.judge.Rest()
		if w.verdict != heartbeat.Alive {
			w.verdict, w.dead = heartbeat.Alive, make(chan struct{})
		}
	}
	w.asks++
	if l.asks++; l.asks == 1 {
		select {
		case l.awake <- struct{}{}:
		default: // it is awake
		}
	}
	return w
}

// silence is closed when the member is thought dead; nil where nobody can tell.
func (l *Link) silence(w *watched) <-chan struct{} {
	if w == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.dead
}

// verdict is what is thought of a member.
func (l *Link) verdict(w *watched) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.verdict.String()
}

func (l *Link) disregard(w *watched) {
	if w == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.asks--
	l.asks--
}

// watch looks at the pages of those who are asked for something, and sleeps while nobody is.
func (l *Link) watch(ctx context.Context) {
	for {
		pause := l.look()
		var next <-chan time.Time
		if pause > 0 {
			next = l.cfg.Clock.After(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-l.awake:
		case <-next:
		}
	}
}

// look takes one look at everybody who is asked, and says when the next is due; 0: when somebody is asked again.
func (l *Link) look() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asks == 0 {
		return 0
	}
	now := l.cfg.Clock.Now()
	for _, w := range l.watched {
		if w.asks == 0 || w.verdict != heartbeat.Alive {
			continue
		}
		if w.verdict = w.judge.Look(now, w.monitor.Sample()); w.verdict != heartbeat.Alive {
			close(w.dead)
		}
	}
	return heartbeat.Look
}
