package supervisor

import (
	"fmt"
	"time"
)

// quietFor is the time without a trainer after which all have left. A trainer whose sidecar is replaced, for example
// because it got the same signal, connects again sooner.
const quietFor = 2 * time.Second

// preemption is the time between a request to stop and the stop, in which trainers end their step and save it.
// Schedulers send SIGTERM to all processes of a job, and SIGKILL half a minute later.
type preemption struct {
	until time.Time // of the stop at the latest; zero: no stop was asked for
	alone time.Time // since then there is no trainer; zero: there is one, or a child that served one is starting
}

// isOn reports whether the stop waits for trainers.
func (p preemption) isOn() bool { return !p.until.IsZero() }

// due returns the time of the stop.
func (p preemption) due() time.Time {
	if quiet := p.alone.Add(quietFor); !p.alone.IsZero() && quiet.Before(p.until) {
		return quiet
	}
	return p.until
}

// preempt begins the grace of trainers. Without trainers, it stops the run.
func (m *machine) preempt(now time.Time) []action {
	if m.stopping || m.preemption.isOn() {
		return nil
	}
	count, served := m.trainers()
	m.preemption.until = now.Add(m.trainersGrace)
	if !served || !m.preemption.due().After(now) {
		return m.interrupt(now)
	}
	return []action{acNotice{fmt.Sprintf(
		"SIGTERM: %d trainers may end their step and save it: the run stops when they have left, and after %v at the "+
			"latest; another SIGTERM or Ctrl-C stops it now", count, m.trainersGrace)}}
}

// trainers returns the number of trainers that all children serve. served reports whether there was ever one.
func (m *machine) trainers() (count int, served bool) {
	for i := range m.children {
		count += m.children[i].trainers
		served = served || m.children[i].serves
	}
	return count, served
}

// noteTrainers notes since when there are no trainers.
func (m *machine) noteTrainers(now time.Time) {
	count, _ := m.trainers()
	for i := range m.children {
		if c := &m.children[i]; c.serves && c.state == Starting {
			count++ // its trainers connect to its next process
		}
	}
	switch {
	case count > 0:
		m.preemption.alone = time.Time{}
	case m.preemption.alone.IsZero():
		m.preemption.alone = now
	}
}
