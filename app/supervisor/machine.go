package supervisor

import (
	"fmt"
	"syscall"
	"time"

	"millrace"
)

// life is the state of one child.
type life struct {
	Child
	lives
	state   State
	alive   bool // a process exists
	pid     int
	term    millrace.Term
	started time.Time
	due     time.Time // of the next start; zero if none is planned
	lacks   string    // the missing thing that it waits for; "": none
	told    bool      // the line about its death for want of the missing thing is printed
	warned  string    // the missing thing that people were warned of, maybe by an earlier process; "": it is over
	added   bool      // the run began without it
	retired bool      // no longer wanted; shown until its process has left
	// trainers is the number that its process serves. serves: it has ever served one.
	trainers int
	serves   bool
	leaving  time.Time // a retired process is killed then; zero: it was not asked to leave, or is killed
}

// machine decides about all children. It has no clock, process or file.
type machine struct {
	children []life // a retired one keeps its place, and may be wanted again
	spawn    Spawn  // makes children that are added
	replaced formers
	final    func(Child, Exit) Verdict
	grace    time.Duration

	trainersGrace time.Duration // from a preemption to the stop; 0: none
	preemption    preemption

	announced bool // acAllReady is out
	stopping  bool
	shutdown  shutdown // while stopping
	result    Result
	err       error // why the run failed
}

func newMachine(
	children []Child, spawn Spawn, final func(Child, Exit) Verdict, grace, trainersGrace time.Duration,
) *machine {
	m := &machine{spawn: spawn, final: final, grace: grace, trainersGrace: trainersGrace}
	for _, c := range children {
		m.children = append(m.children, life{Child: c, state: Starting})
	}
	return m
}

// isDone reports whether the run is over and no process is left.
func (m *machine) isDone() bool {
	if !m.stopping {
		return false
	}
	for i := range m.children {
		if m.children[i].alive {
			return false
		}
	}
	return len(m.replaced) == 0
}

// step takes one event and returns the actions that follow.
func (m *machine) step(now time.Time, ev event) []action {
	out := m.react(now, ev)
	m.noteTrainers(now)
	return out
}

func (m *machine) react(now time.Time, ev event) []action {
	switch ev := ev.(type) {
	case evBegin:
		return m.begin()
	case evStarted:
		return m.begun(now, ev)
	case evStartFailed:
		return m.failToStart(now, ev)
	case evPlace:
		return m.place(now, ev)
	case evChange:
		return m.change(now, ev.child)
	case evReady:
		return m.markReady(ev.child, ev.pid)
	case evTerm:
		if c := &m.children[ev.child]; c.pid == ev.pid {
			c.term = ev.term
		}
	case evLacks:
		if c := &m.children[ev.child]; c.pid == ev.pid {
			return c.lack(ev.what)
		}
	case evTrainers:
		if c := &m.children[ev.child]; c.pid == ev.pid {
			c.trainers, c.serves = ev.count, c.serves || ev.count > 0
		}
	case evFenced:
		return m.replace(now, ev)
	case evExited:
		if m.children[ev.child].pid != ev.pid {
			return m.buryFormer(now, ev)
		}
		return m.bury(now, ev.child, ev.exit)
	case evPreempt:
		return m.preempt(now)
	case evStop:
		return m.interrupt(now)
	case evLeave:
		return m.stop(now, Stopped)
	case evOver:
		if ev.err != nil {
			return m.fail(now, ev.err)
		}
		return m.stop(now, Finished)
	case evKill:
		out := m.interrupt(now)
		return append(out, m.shutdown.killAll(m.pidOf)...)
	case evTick:
		return m.tick(now)
	}
	return nil
}

// begun notes the process of a child. Its life begins.
func (m *machine) begun(now time.Time, ev evStarted) []action {
	c := &m.children[ev.child]
	c.alive, c.pid, c.started = true, ev.pid, now
	if c.refused == 0 {
		return nil
	}
	tries := c.refused + 1
	c.refused, c.lacks = 0, ""
	return []action{acNotice{fmt.Sprintf("%s has started at try %d", c.Name, tries)}}
}

// lack notes the thing that a child waits for, "" for none, and logs it. The end of a wait may be the report of
// a later process than the one that began it.
func (c *life) lack(what string) []action {
	was := c.warned
	c.lacks, c.warned = what, what
	switch {
	case what == was:
		return nil
	case what == "":
		return []action{acNotice{"over: " + was}}
	}
	return []action{acNotice{"warning: " + what}}
}

func (m *machine) begin() []action {
	var out []action
	for i := range m.children {
		out = append(out, m.start(i))
	}
	return out
}

func (m *machine) start(i int) action {
	m.children[i].due = time.Time{}
	return acStart{i}
}

// markReady notes that a child serves, and announces when all do.
func (m *machine) markReady(i, pid int) []action {
	c := &m.children[i]
	if m.stopping || c.pid != pid {
		return nil
	}
	c.lacks = ""
	if !c.retired {
		c.state = Running
	}
	return m.announce()
}

// announce logs once that all wanted children serve.
func (m *machine) announce() []action {
	if m.announced {
		return nil
	}
	for j := range m.children {
		if c := &m.children[j]; !c.retired && c.state != Running {
			return nil
		}
	}
	m.announced = true
	return []action{acAllReady{}}
}

// bury records the death of a child and decides about the run.
func (m *machine) bury(now time.Time, i int, exit Exit) []action {
	c := &m.children[i]
	c.alive, c.pid, c.trainers = false, 0, 0
	if m.stopping {
		// A failure that happened before the stop was requested still counts.
		if m.result == Stopped && m.final(c.Child, exit) == Fail {
			m.result, m.err = Failed, &FailedError{Child: c.Child, Exit: exit}
		}
		return m.shutdown.signals(now, m.pidOf)
	}
	c.state, c.leaving = Starting, time.Time{}
	if c.retired {
		return leftLine(c.Name, exit)
	}
	switch m.final(c.Child, exit) {
	case Finish:
		return m.stop(now, Finished)
	case Fail:
		return m.fail(now, &FailedError{Child: c.Child, Exit: exit})
	}
	return m.restart(now, i, exit)
}

// restart starts a child again after its death, as soon as the policy allows.
func (m *machine) restart(now time.Time, i int, exit Exit) []action {
	c := &m.children[i]
	why, lived := m.blame(c.Child, exit), now.Sub(c.started)
	delay, verdict := c.died(now, lived, why)
	if verdict != "" {
		return m.fail(now, &FailedError{Child: c.Child, Exit: exit, Verdict: verdict})
	}
	c.restarts++
	c.lacks, c.told = "", c.told && why == lacking && lived < healthy
	if why == lacking {
		c.lacks = exit.LastLine
	}
	var out []action
	if !c.told { // a missing thing is reported once for all retries
		out = append(out, acNotice{deathLine(c.Name, exit, why, delay)})
		c.told = why == lacking
	}
	if why == outside && c.streak == loudStreak {
		out = append(out, acNotice{
			fmt.Sprintf("%s was killed %d times in a row, each time within %v: is its memory limit too small?",
				c.Name, c.streak, healthy),
		})
	}
	if delay > 0 {
		c.due = now.Add(delay)
		return out
	}
	return append(out, m.start(i))
}

// blame returns the cause of an exit.
func (m *machine) blame(c Child, exit Exit) blame {
	switch {
	case exit.Starved || m.final(c, exit) == Await:
		return lacking
	case exit.isFromOutside() || m.final(c, exit) == Again:
		return outside
	}
	return own
}

// deathLine is the notice about a death that the run survives.
func deathLine(name string, exit Exit, why blame, delay time.Duration) string {
	again := "restarted"
	if delay > 0 {
		again = fmt.Sprintf("restarting in %v", delay)
	}
	switch {
	case exit.Starved:
		return fmt.Sprintf("%s got no thread from this host (%s); it is restarted until it does", name, exit.LastLine)
	case exit.Crash != "":
		cause := exit.LastLine
		if exit.Limit != "" {
			cause += ": " + exit.Limit
		}
		return fmt.Sprintf("%s crashed (%s); %s; stack in %s", name, cause, again, exit.Crash)
	case why == lacking:
		return name + " cannot continue now; it is restarted until it can"
	case why == outside && exit.Signal == 0:
		return fmt.Sprintf("%s was asked to leave; %s", name, again)
	}
	return fmt.Sprintf("%s died (%v); %s", name, exit, again)
}

// tick starts the children whose delay is over, and continues a stop.
func (m *machine) tick(now time.Time) []action {
	if m.stopping {
		return m.shutdown.signals(now, m.pidOf)
	}
	if m.preemption.isOn() && !now.Before(m.preemption.due()) {
		return m.interrupt(now)
	}
	out := append(m.replaced.endLate(now), m.endRetired(now)...)
	for i := range m.children {
		if due := m.children[i].due; !due.IsZero() && !due.After(now) {
			out = append(out, m.start(i))
		}
	}
	return out
}

// deadline returns the time of the next evTick. It returns false if the machine waits only for other events.
func (m *machine) deadline() (time.Time, bool) {
	var first time.Time
	consider := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for i := range m.children {
		consider(m.children[i].due)
		consider(m.children[i].leaving)
	}
	if m.preemption.isOn() && !m.stopping {
		consider(m.preemption.due())
	}
	m.replaced.deadlines(consider)
	m.shutdown.deadlines(consider)
	return first, !first.IsZero()
}

// pidOf returns the process of a child, 0 if it has none.
func (m *machine) pidOf(child int) int {
	if c := &m.children[child]; c.alive {
		return c.pid
	}
	return 0
}

// fail stops the run with an error.
func (m *machine) fail(now time.Time, err error) []action {
	if m.stopping {
		return nil
	}
	m.err = err
	return append([]action{acEnding{err.Error()}}, m.stop(now, Failed)...)
}

// stopReason is the reason that trainers read when a user stopped the run.
const stopReason = "the run was stopped (Ctrl-C or SIGTERM of millrace up): " +
	"start millrace up again on the same run directory, " +
	`then load a saved state or connect(start="latest")`

// interrupt stops the run at the request of the user.
func (m *machine) interrupt(now time.Time) []action {
	if m.stopping {
		return nil
	}
	return append([]action{acEnding{stopReason}}, m.stop(now, Stopped)...)
}

// stop begins the shutdown of all children.
func (m *machine) stop(now time.Time, result Result) []action {
	if m.stopping {
		return nil
	}
	m.stopping, m.result = true, result
	roles, asks := make([]string, len(m.children)), make([]syscall.Signal, len(m.children))
	for i := range m.children {
		c := &m.children[i]
		c.due, c.leaving, c.state, roles[i] = time.Time{}, time.Time{}, Stopping, c.Role
		asks[i] = syscall.SIGINT // ErrEnding
		if c.HandsOver && result == Stopped {
			asks[i] = syscall.SIGTERM // ErrStopped
		}
	}
	m.shutdown = newShutdown(roles, asks, now, m.grace)
	return append(m.replaced.endAll(), m.shutdown.signals(now, m.pidOf)...)
}

// replace starts a fresh process in the place of a fenced one, which may be stopped, or take seconds to die.
func (m *machine) replace(now time.Time, ev evFenced) []action {
	if m.stopping || m.children[ev.child].Role != fencer {
		return nil
	}
	for i := range m.children {
		c := &m.children[i]
		if c.Name != ev.name || c.pid != ev.pid || !c.alive {
			continue // it has died meanwhile; its successor is not fenced
		}
		ended := m.replaced.add(former{child: i, pid: c.pid, started: c.started, kill: now.Add(formerGrace)})
		c.alive, c.pid, c.state, c.leaving, c.trainers = false, 0, Starting, time.Time{}, 0
		if c.retired {
			return ended
		}
		c.restarts++
		out := []action{acNotice{fmt.Sprintf("%s (pid %d) was fenced; a fresh one is started", c.Name, ev.pid)}}
		return append(append(out, ended...), m.start(i))
	}
	return nil
}

// fencer is the role whose reports of fenced processes count.
const fencer = "orchestrator"

// buryFormer records the death of a replaced process. It counts as a fault of the child only if the process died by
// itself.
func (m *machine) buryFormer(now time.Time, ev evExited) []action {
	f, ok := m.replaced.take(ev.pid)
	if !ok || m.stopping {
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

// roles returns the children for `millrace status`, in starting order.
func (m *machine) roles() []Role {
	var out []Role
	for i := range m.children {
		c := &m.children[i]
		if c.retired && !c.alive {
			continue
		}
		out = append(out, Role{
			Role:     c.Role,
			Name:     c.Name,
			Pid:      c.pid,
			State:    c.state,
			Term:     c.term,
			Restarts: c.restarts,
			Lacks:    c.lacks,
		})
	}
	return out
}
