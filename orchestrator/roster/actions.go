package roster

import "fmt"

// Session carries messages to a connected role. Send queues and never blocks; the handler of the stream reports that a
// role is lost.
type Session interface{ Send(msg any) }

// Process is one life of a loader on the host of the orchestrator.
type Process struct {
	Name     string
	Identity string // random: no other process has it
	Pid      int64  // on its host
}

// Action is an effect to carry out after the records of its turn are durable: one of these.
type Action struct {
	To   Session // receives
	Msg  any     // a *proto.LoaderOrder or *proto.SidecarOrder
	Line string  // for people, on standard error
	// Fenced names a process of this host that may be alive and must not be: a standby took over its stripes, and its
	// slot needs a fresh process. A process of another host leaves by itself when it is asked to, or when it is
	// refused.
	Fenced *Process
	Answer func() // answers a call; it does not block
	// Loaders is the number of loaders that the engine should run; 0: this is another action.
	Loaders int
}

// Actions collects the actions of a turn in order.
type Actions struct{ list []Action }

// Send adds a message to a role.
func (a *Actions) Send(to Session, msg any) { a.list = append(a.list, Action{To: to, Msg: msg}) }

// Say adds a line for people.
func (a *Actions) Say(format string, args ...any) {
	a.list = append(a.list, Action{Line: fmt.Sprintf(format, args...)})
}

// Fence adds a process to end.
func (a *Actions) Fence(p Process) { a.list = append(a.list, Action{Fenced: &p}) }

// Answer adds the answer to a call.
func (a *Actions) Answer(answer func()) { a.list = append(a.list, Action{Answer: answer}) }

// Scale asks the engine for a number of loaders.
func (a *Actions) Scale(loaders int) { a.list = append(a.list, Action{Loaders: loaders}) }

// Take returns the actions so far and forgets them.
func (a *Actions) Take() []Action {
	out := a.list
	a.list = nil
	return out
}
