package supervisor

import (
	"fmt"
	"syscall"
	"time"
)

const (
	// formerGrace is how long a process that was replaced may take to leave: a stopped one that wakes up hears that its terms are over.
	formerGrace = 60 * time.Second
	// maxFormer bounds the replaced processes of one child that are still there, and so the memory they hold.
	maxFormer = 4
)

// former is a process that was fenced and replaced while it existed. Whatever becomes of it, its successor runs.
type former struct {
	child, pid int
	started    time.Time
	kill       time.Time // ended then, where it has not left
	killed     bool
}

// fenced starts a fresh process in the slot of one that nobody listens to any more: it may be stopped, or dying for a second.
func (m *machine) fenced(now time.Time, ev evFenced) []action {
	if m.stopping || m.children[ev.child].Role != fencer {
		return nil
	}
	for i := range m.children {
		c := &m.children[i]
		if c.Name != ev.name || c.pid != ev.pid || !c.alive {
			continue // it has died meanwhile, and its successor is none of this
		}
		m.replaced = append(m.replaced, former{child: i, pid: c.pid, started: c.started, kill: now.Add(formerGrace)})
		c.alive, c.pid, c.state = false, 0, Starting
		c.restarts++
		out := []action{acNotice{fmt.Sprintf("%s (pid %d) was fenced; a fresh one is started", c.Name, ev.pid)}}
		return append(append(out, m.killCrowd(i)...), m.start(i))
	}
	return nil
}

// fencer is the role that decides whom others listen to.
const fencer = "orchestrator"

// killCrowd ends the oldest replaced processes of a child beyond maxFormer.
func (m *machine) killCrowd(child int) []action {
	var out []action
	n := 0
	for i := len(m.replaced) - 1; i >= 0; i-- {
		if f := &m.replaced[i]; f.child == child {
			if n++; n > maxFormer {
				out = append(out, f.end()...)
			}
		}
	}
	return out
}

// killLate ends replaced processes that had their time.
func (m *machine) killLate(now time.Time) []action {
	var out []action
	for i := range m.replaced {
		if f := &m.replaced[i]; !now.Before(f.kill) {
			out = append(out, f.end()...)
		}
	}
	return out
}

// killReplaced ends all of them: nothing they could still say counts.
func (m *machine) killReplaced() []action {
	var out []action
	for i := range m.replaced {
		out = append(out, m.replaced[i].end()...)
	}
	return out
}

func (f *former) end() []action {
	if f.killed {
		return nil
	}
	f.killed = true
	return []action{acSignal{f.pid, syscall.SIGKILL}}
}

// formerExited buries a replaced process. That it was replaced is not its fault; if it died of its own, that counts.
func (m *machine) formerExited(now time.Time, ev evExited) []action {
	for i, f := range m.replaced {
		if f.pid != ev.pid {
			continue
		}
		m.replaced = append(m.replaced[:i], m.replaced[i+1:]...)
		if m.stopping {
			return nil
		}
		c := &m.children[f.child]
		if m.blame(c.Child, ev.exit) == own {
			if _, verdict := c.died(now, now.Sub(f.started), own); verdict != "" {
				return m.fail(now, &FailedError{Child: c.Child, Exit: ev.exit, Verdict: verdict})
			}
		}
		return []action{acNotice{formerLine(c.Name, f.pid, ev.exit)}}
	}
	return nil
}

func formerLine(name string, pid int, exit Exit) string {
	switch {
	case exit.Crash != "":
		return fmt.Sprintf("the fenced %s (pid %d) had crashed (%s); stack in %s", name, pid, exit.LastLine, exit.Crash)
	case exit.Signal == 0 && exit.Code == 0:
		return fmt.Sprintf("the fenced %s (pid %d) has left", name, pid)
	}
	return fmt.Sprintf("the fenced %s (pid %d) died (%v)", name, pid, exit)
}
