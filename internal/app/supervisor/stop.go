package supervisor

import (
	"syscall"
	"time"
)

// Result is how a run ended.
type Result int

// The results.
const (
	Stopped  Result = iota // by a signal or its context
	Finished               // complete: a child's verdict was Finish
	Failed                 // the error says why
)

// wave is the children of one role on their way out: asked at `at` at the latest, or once the waves before are gone, and killed at
// `kill`.
type wave struct {
	children []int
	at, kill time.Time
	asked    bool
	killed   bool
}

// next is when the wave has to be looked at again.
func (w *wave) next() time.Time {
	if !w.asked {
		return w.at
	}
	return w.kill
}

// fail stops the run for a reason.
func (m *machine) fail(now time.Time, err error) []action {
	if m.stopping {
		return nil
	}
	m.err = err
	return append([]action{acEnding{err.Error()}}, m.stop(now, Failed)...)
}

// stopReason is what trainers read when somebody stopped the run.
const stopReason = "the run was stopped (Ctrl-C or SIGTERM of millrace up): start millrace up again on the same run directory, " +
	`then load a saved state or connect(start="latest")`

// interrupt stops the run because somebody asked for it.
func (m *machine) interrupt(now time.Time) []action {
	if m.stopping {
		return nil
	}
	return append([]action{acEnding{stopReason}}, m.stop(now, Stopped)...)
}

// stop asks the roles to leave in the reverse of their starting order, one role after the other, so that what consumes is gone before
// what it consumes from. The grace is shared: each wave waits for the one before at most its part, and at its end all are killed.
func (m *machine) stop(now time.Time, result Result) []action {
	if m.stopping {
		return nil
	}
	m.stopping, m.result = true, result
	seen := map[string]int{}
	for i := len(m.children) - 1; i >= 0; i-- {
		c := &m.children[i]
		c.due, c.state = time.Time{}, Stopping
		w, ok := seen[c.Role]
		if !ok {
			w = len(m.waves)
			seen[c.Role] = w
			m.waves = append(m.waves, wave{kill: now.Add(m.grace)})
		}
		m.waves[w].children = append(m.waves[w].children, i)
	}
	for w := range m.waves {
		m.waves[w].at = now.Add(m.grace * time.Duration(w) / time.Duration(len(m.waves)))
	}
	return append(m.killReplaced(), m.signalWaves(now)...)
}

// signalWaves asks the next wave once the earlier ones are gone or late, and kills what outlived the grace.
func (m *machine) signalWaves(now time.Time) []action {
	var out []action
	earlierGone := true
	for w := range m.waves {
		v := &m.waves[w]
		if !v.asked && (earlierGone || !now.Before(v.at)) {
			v.asked = true
			out = append(out, m.signal(v.children, syscall.SIGTERM)...)
		}
		if !v.killed && !now.Before(v.kill) {
			v.killed = true
			out = append(out, m.signal(v.children, syscall.SIGKILL)...)
		}
		for _, i := range v.children {
			earlierGone = earlierGone && !m.children[i].alive
		}
	}
	return out
}

// killAll ends the stop's patience.
func (m *machine) killAll() []action {
	var out []action
	for w := range m.waves {
		m.waves[w].asked, m.waves[w].killed = true, true
		out = append(out, m.signal(m.waves[w].children, syscall.SIGKILL)...)
	}
	return out
}

func (m *machine) signal(children []int, s syscall.Signal) []action {
	var out []action
	for _, i := range children {
		if m.children[i].alive {
			out = append(out, acSignal{m.children[i].pid, s})
		}
	}
	return out
}
