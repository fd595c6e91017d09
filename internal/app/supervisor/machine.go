package supervisor

import (
	"fmt"
	"syscall"
	"time"

	"millrace"
)

// An event is something that happened. A child is named by its index; which of its lives is meant, by the pid.
type event interface{}

type (
	evBegin       struct{}                 // start everything
	evStarted     struct{ child, pid int } // its process runs
	evStartFailed struct {                 // it could not be executed
		child int
		err   error
	}
	evReady struct{ child, pid int }
	evTerm  struct {
		child, pid int
		term       millrace.Term
	}
	evFenced struct { // child says that nobody listens to that process any more
		child int
		name  string
		pid   int
	}
	evExited struct {
		child, pid int
		exit       Exit
	}
	evStop struct{} // stop in order
	evKill struct{} // stop at once
	evTick struct{} // the time that deadline named has come
)

// An action is something for the shell to do, in the order given.
type action interface{}

type (
	acStart  struct{ child int } // answered by evStarted or evStartFailed before any other event; void once the machine is stopping
	acSignal struct {
		pid    int
		signal syscall.Signal
	}
	acNotice   struct{ line string }   // tell the user
	acAllReady struct{}                // every child is running, for the first time
	acEnding   struct{ reason string } // the run failed or was stopped; no child has been asked to leave yet
)

// life is the machine's view of one child.
type life struct {
	Child
	lives
	state   State
	alive   bool // a process exists
	pid     int
	term    millrace.Term
	started time.Time
	due     time.Time // of the next start; zero where none is planned
	lacks   string    // what it waits for to be there; "" where nothing
	told    bool      // the user knows that it lacks something
}

// machine decides about all children. It has no clock, process or file.
type machine struct {
	children []life
	replaced []former
	final    func(Child, Exit) Verdict
	grace    time.Duration

	announced bool // acAllReady is out
	stopping  bool
	waves     []wave
	result    Result
	err       error // why the run failed
}

func newMachine(children []Child, final func(Child, Exit) Verdict, grace time.Duration) *machine {
	m := &machine{final: final, grace: grace}
	for _, c := range children {
		m.children = append(m.children, life{Child: c, state: Starting})
	}
	return m
}

// done says that the run is over and no process is left.
func (m *machine) done() bool {
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

// step takes one event and returns what to do about it.
func (m *machine) step(now time.Time, ev event) []action {
	switch ev := ev.(type) {
	case evBegin:
		return m.begin()
	case evStarted:
		c := &m.children[ev.child]
		c.alive, c.pid, c.started = true, ev.pid, now
	case evStartFailed:
		return m.fail(now, fmt.Errorf("start %s: %w", m.children[ev.child].Name, ev.err))
	case evReady:
		return m.ready(ev.child, ev.pid)
	case evTerm:
		if c := &m.children[ev.child]; c.pid == ev.pid {
			c.term = ev.term
		}
	case evFenced:
		return m.fenced(now, ev)
	case evExited:
		if m.children[ev.child].pid != ev.pid {
			return m.formerExited(now, ev)
		}
		return m.exited(now, ev.child, ev.exit)
	case evStop:
		return m.interrupt(now)
	case evKill:
		return append(m.interrupt(now), m.killAll()...)
	case evTick:
		return m.tick(now)
	}
	return nil
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

func (m *machine) ready(i, pid int) []action {
	c := &m.children[i]
	if m.stopping || c.pid != pid {
		return nil
	}
	c.state, c.lacks = Running, ""
	if m.announced {
		return nil
	}
	for j := range m.children {
		if m.children[j].state != Running {
			return nil
		}
	}
	m.announced = true
	return []action{acAllReady{}}
}

func (m *machine) exited(now time.Time, i int, exit Exit) []action {
	c := &m.children[i]
	c.alive, c.pid = false, 0
	if m.stopping {
		// A failure that was on its way when the stop was asked for is not lost.
		if m.result == Stopped && m.final(c.Child, exit) == Fail {
			m.result, m.err = Failed, &FailedError{Child: c.Child, Exit: exit}
		}
		return m.signalWaves(now)
	}
	c.state = Starting
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
	if !c.told { // what lacks is said once, however often it is tried again
		out = append(out, acNotice{deathLine(c.Name, exit, why, delay)})
		c.told = why == lacking
	}
	if why == outside && c.streak == loudStreak {
		out = append(out, acNotice{fmt.Sprintf("%s was killed %d times in a row, never living %v: is a memory limit too small for it?", c.Name, c.streak, healthy)})
	}
	if delay > 0 {
		c.due = now.Add(delay)
		return out
	}
	return append(out, m.start(i))
}

// blame says whose fault an exit is.
func (m *machine) blame(c Child, exit Exit) blame {
	switch {
	case m.final(c, exit) == Await:
		return lacking
	case exit.outside() || m.final(c, exit) == Again:
		return outside
	}
	return own
}

// deathLine is what the user reads about a death that the run survives.
func deathLine(name string, exit Exit, why blame, delay time.Duration) string {
	again := "restarted"
	if delay > 0 {
		again = fmt.Sprintf("restarting in %v", delay)
	}
	switch {
	case exit.Crash != "":
		return fmt.Sprintf("%s crashed (%s); %s; stack in %s", name, exit.LastLine, again, exit.Crash)
	case why == lacking:
		return name + " cannot go on for now; it is tried again until it can"
	case why == outside && exit.Signal == 0:
		return fmt.Sprintf("%s was asked to leave; %s", name, again)
	}
	return fmt.Sprintf("%s died (%v); %s", name, exit, again)
}

// tick starts whose delay is over and moves a stop on.
func (m *machine) tick(now time.Time) []action {
	if m.stopping {
		return m.signalWaves(now)
	}
	out := m.killLate(now)
	for i := range m.children {
		if due := m.children[i].due; !due.IsZero() && !due.After(now) {
			out = append(out, m.start(i))
		}
	}
	return out
}

// deadline is when the machine wants the next evTick; false where only an event can change anything.
func (m *machine) deadline() (time.Time, bool) {
	var first time.Time
	consider := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for i := range m.children {
		consider(m.children[i].due)
	}
	for i := range m.replaced {
		if !m.replaced[i].killed {
			consider(m.replaced[i].kill)
		}
	}
	for i := range m.waves {
		if !m.waves[i].killed {
			consider(m.waves[i].next())
		}
	}
	return first, !first.IsZero()
}
