package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"millrace/orchestrator/placer"
)

// Spawn returns the child of a role with an ordinal, from 0 on. It returns false for a role whose number is fixed. The
// first children of the role have the names that Spawn gives them.
type Spawn func(role string, ordinal int) (Child, bool)

// Engine names the supervisor in its refusals.
const Engine = "millrace up"

// retireGrace is the time that a retired process has to hand over and leave.
const retireGrace = 60 * time.Second

// place makes a goal of the orchestrator the goal of this supervisor, or refuses it as a whole.
func (m *machine) place(now time.Time, ev evPlace) []action {
	if c := &m.children[ev.child]; m.stopping || c.Role != fencer || c.pid != ev.pid {
		return nil
	}
	if why := m.refusal(ev.goal); why != "" {
		return []action{acPlaced{ID: ev.id, Refused: why}}
	}
	var out []action
	for _, w := range ev.goal.Roles {
		out = append(out, m.scale(now, w)...)
	}
	return append(append(out, acPlaced{ID: ev.id}), m.announce()...)
}

// refusal returns why a goal cannot be reached on this host, "" if it can.
func (m *machine) refusal(goal placer.Desired) string {
	counts := map[string]int{}
	for i := range m.children {
		if c := &m.children[i]; !c.retired {
			counts[c.Role]++
		}
	}
	seen := map[string]bool{}
	for _, w := range goal.Roles {
		_, known := m.spawn(w.Role, 0)
		switch {
		case !known:
			return refuse(w, "it starts no further processes of this role: leave the role out of the goal")
		case w.Count < 0:
			return refuse(w, "no role has less than 0 processes: ask for 0 or more")
		case seen[w.Role]:
			return refuse(w, "the goal lists the role twice: list each role once")
		}
		seen[w.Role], counts[w.Role] = true, w.Count
	}
	for _, w := range goal.Roles {
		others := counts[w.Apart]
		if w.Apart == w.Role {
			others--
		}
		if w.Apart != "" && w.Count > 0 && others > 0 {
			return refuse(w, "role "+w.Apart+" runs on this host, too, and there is no other one: "+
				"use an engine with several hosts, such as Kubernetes or Ray")
		}
	}
	return ""
}

func refuse(w placer.Wanted, why string) string {
	return fmt.Sprintf("%s: cannot run %d processes of role %s: %s", Engine, w.Count, w.Role, why)
}

// scale adds and retires children until exactly the first ordinals of a role are wanted.
func (m *machine) scale(now time.Time, w placer.Wanted) (out []action) {
	wanted := map[string]bool{}
	for i := range w.Count {
		c, _ := m.spawn(w.Role, i)
		wanted[c.Name] = true
		out = append(out, m.want(c)...)
	}
	for i := len(m.children) - 1; i >= 0; i-- { // the highest ordinals leave first
		if c := &m.children[i]; c.Role == w.Role && !wanted[c.Name] && !c.retired {
			out = append(out, m.retire(now, c)...)
		}
	}
	return out
}

// want starts a child unless it is there. A retired child whose process has yet to leave starts after that.
func (m *machine) want(child Child) []action {
	for i := range m.children {
		c := &m.children[i]
		switch {
		case c.Name != child.Name:
			continue
		case !c.retired:
			return nil
		}
		c.retired, c.lives = false, lives{}
		if c.alive {
			return nil
		}
		return []action{m.start(i)}
	}
	m.children = append(m.children, life{Child: child, state: Starting, added: true})
	return []action{m.start(len(m.children) - 1)}
}

// retire asks the process of a child to leave. It is not restarted.
func (m *machine) retire(now time.Time, c *life) []action {
	c.retired, c.due = true, time.Time{}
	if !c.alive {
		return nil
	}
	c.state = Stopping
	if !c.leaving.IsZero() {
		return nil // asked before, and wanted again meanwhile
	}
	c.leaving = now.Add(retireGrace)
	return []action{acSignal{c.pid, syscall.SIGTERM}}
}

// changeGrace is the time that a process has to leave whose successor has other arguments.
const changeGrace = 10 * time.Second

// change gives the only child of a role other arguments. Its process is asked to leave, and the next one has them.
func (m *machine) change(now time.Time, child Child) []action {
	for i := range m.children {
		c := &m.children[i]
		if c.Role != child.Role || m.stopping {
			continue
		}
		c.Child, c.lives = child, lives{}
		if !c.alive {
			return nil
		}
		c.state, c.leaving = Stopping, now.Add(changeGrace)
		return []action{acSignal{c.pid, syscall.SIGTERM}}
	}
	return nil
}

// endRetired kills the processes that were asked to leave and did not.
func (m *machine) endRetired(now time.Time) (out []action) {
	for i := range m.children {
		c := &m.children[i]
		if c.alive && !c.leaving.IsZero() && !now.Before(c.leaving) {
			c.leaving = time.Time{}
			out = append(out, acSignal{c.pid, syscall.SIGKILL})
		}
	}
	return out
}

// leftLine is the notice about the end of a retired process, none if it left as it was asked to.
func leftLine(name string, exit Exit) []action {
	if exit.Crash == "" && (exit.Signal == 0 || exit.Signal == syscall.SIGTERM) {
		return nil
	}
	return []action{acNotice{fmt.Sprintf("%s was asked to leave, and ended with %v", name, exit)}}
}

// failToStart decides about a child whose process could not be started. A shortage on the host may pass, and the run
// has begun without the children that were added. Without its first children, it cannot begin.
func (m *machine) failToStart(now time.Time, ev evStartFailed) []action {
	c := &m.children[ev.child]
	if !c.added && !isShortage(ev.err) {
		return m.fail(now, fmt.Errorf("start %s: %w", c.Name, ev.err))
	}
	c.lacks, c.due = fmt.Sprintf("cannot start %s: %v", c.Name, ev.err), now.Add(backOff(c.refused+1))
	c.refused++
	if c.refused > 1 {
		return nil // logged at the first try
	}
	return []action{acNotice{c.lacks + "; it is tried again until it starts"}}
}

// isShortage reports whether a process could not be started because the host lacks something that others may give
// back: processes or threads, memory, descriptors.
func isShortage(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE},
		func(e syscall.Errno) bool { return errors.Is(err, e) })
}
