package retrieve

import (
	"errors"
	"fmt"
	"slices"
)

// State is the state of a portion.
type State uint8

// The states of a portion.
const (
	Ready     State = iota // the next action is due
	Asked                  // the loader was asked
	Hedged                 // the same, and its standby as well, because the loader is late
	Suspected              // the loader counts as dead, and there is no standby
	Helped                 // the standby was asked, because the loader has a fault
	Doubted                // the standby was asked to decode documents a second time
	Repeated               // the loader was asked for that
	Switching              // the loader is to be replaced by its standby
	Masking                // rows are to be masked
	Resting                // until the directory changes, or some time has passed
	Done                   // every row is here or masked
	Failed                 // an error ends the run
	states
)

var stateNames = [states]string{"ready", "asked", "hedged", "suspected", "helped", "doubted", "repeated", "switching",
	"masking", "resting", "done", "failed"}

// String names the state for messages.
func (s State) String() string { return stateNames[s] }

// rule changes a portion for an event, and appends the actions that follow.
type rule func(*Portion, Event, []Action) []Action

// table has the rule of each state and event. An event without a rule is refused by the names of both.
var table = [states][kinds]rule{
	Ready: { // also with the last rows of a lost loader from shared memory
		Due: (*Portion).act, Salvaged: (*Portion).whole, Switched: (*Portion).ignore, Moved: (*Portion).ignore,
		Masked: (*Portion).masked,
	},
	Asked: {
		Sent: (*Portion).sent, Came: (*Portion).came, Silent: (*Portion).suspect, Late: (*Portion).hedge,
		Complete: (*Portion).complete, Bad: (*Portion).unread, Final: (*Portion).final, Lost: (*Portion).salvage,
		Fenced: (*Portion).fenced, Deposed: (*Portion).gone, Faulty: (*Portion).faulty,
		Salvaged: (*Portion).salvaged, Moved: (*Portion).moved, Masked: (*Portion).masked,
	},
	Hedged: {
		Sent: (*Portion).sent, Came: (*Portion).came, Silent: (*Portion).suspect, Late: (*Portion).hedge,
		Complete: (*Portion).complete, Bad: (*Portion).unread, Final: (*Portion).final, Lost: (*Portion).salvage,
		Fenced: (*Portion).fenced, Deposed: (*Portion).gone, Faulty: (*Portion).faulty,
		Salvaged: (*Portion).salvaged, Moved: (*Portion).moved, Masked: (*Portion).masked,
		hedgeOver: (*Portion).left, hedgeLost: (*Portion).salvage, hedgeFinal: (*Portion).final,
	},
	Suspected: {
		Sent: (*Portion).sent, Came: (*Portion).came, Silent: (*Portion).suspect, Late: (*Portion).hedge,
		Complete: (*Portion).complete, Bad: (*Portion).unread, Final: (*Portion).final, Lost: (*Portion).salvage,
		Fenced: (*Portion).fenced, Deposed: (*Portion).gone, Faulty: (*Portion).faulty,
		Salvaged: (*Portion).salvaged, Moved: (*Portion).moved, Masked: (*Portion).masked,
		hedgeOver: (*Portion).left, hedgeLost: (*Portion).salvage, hedgeFinal: (*Portion).final,
	},
	Helped: {
		Sent: (*Portion).sent, Came: (*Portion).came, Complete: (*Portion).complete, Bad: (*Portion).helpedBadly,
		Final: (*Portion).final, Lost: (*Portion).salvage, Fenced: (*Portion).helped, Deposed: (*Portion).helped,
		Faulty: (*Portion).helped, Salvaged: (*Portion).salvaged, Moved: (*Portion).ignore,
		Masked: (*Portion).masked,
	},
	Doubted: {
		Sent: (*Portion).sent, Came: (*Portion).came, Complete: (*Portion).complete, Bad: (*Portion).unread,
		Final: (*Portion).final, Lost: (*Portion).salvage, Fenced: (*Portion).repeat, Deposed: (*Portion).repeat,
		Faulty: (*Portion).repeat, Salvaged: (*Portion).salvaged, Moved: (*Portion).ignore,
		Masked: (*Portion).masked,
	},
	Repeated: {
		Sent: (*Portion).sent, Came: (*Portion).came, Complete: (*Portion).complete, Bad: (*Portion).unread,
		Final: (*Portion).final, Lost: (*Portion).salvage, Fenced: (*Portion).fenced, Deposed: (*Portion).gone,
		Faulty: (*Portion).faulty, Salvaged: (*Portion).salvaged, Moved: (*Portion).ignore,
		Masked: (*Portion).masked,
	},
	Switching: {
		Switched: (*Portion).switched,
	},
	Masking: {
		Moved: (*Portion).ignore, Masked: (*Portion).masked,
	},
	Resting: {
		Moved: (*Portion).makeReady, Masked: (*Portion).masked, Woke: (*Portion).woke,
	},
	Done: {
		Moved: (*Portion).ignore, Masked: (*Portion).masked,
	},
	Failed: {
		Moved: (*Portion).ignore, Masked: (*Portion).masked,
	},
}

// errNobody is the error if the directory names no loader of the stripe.
var errNobody = errors.New("none is there")

// On takes an event, and appends the actions that follow from it to out.
func (p *Portion) On(e Event, out []Action) []Action {
	if e.Kind.isOfRequest() {
		is, isLate := p.isOpen(e.Request)
		if !is {
			return out // another loader was asked meanwhile, or the rows are here
		}
		if isLate {
			e.Kind = e.Kind.ofHedge()
		}
	}
	if follow := table[p.state][e.Kind]; follow != nil {
		return follow(p, e, out)
	}
	return p.fail(fmt.Errorf("a portion that is %s cannot take the event %q; report it", p.state, e.Kind), out)
}

func (*Portion) ignore(_ Event, out []Action) []Action { return out }

// makeReady makes the next action due.
func (p *Portion) makeReady(_ Event, out []Action) []Action {
	p.state = Ready
	return out
}

// act takes the next action.
func (p *Portion) act(e Event, out []Action) []Action {
	t := p.todo()
	switch {
	case len(t.due()) == 0:
		p.state, p.fault = Done, nil
		return out
	case p.fault != nil && len(t.plain) > 0 && e.Spare != nil:
		p.fault.before = len(t.due())
		return p.send(Helped, e.Spare, Help, t.plain, out)
	case p.fault != nil:
		return p.rest(*p.fault, e.Now, out)
	case len(t.plain)+len(t.again) == 0:
		p.state, p.lost = Masking, t.lost
		return append(out, Action{Kind: Mask, Rows: t.lost})
	case e.Using == nil:
		return p.rest(fault{err: errNobody}, e.Now, out)
	case len(t.plain) > 0:
		return p.send(Asked, e.Using, Ask, t.plain, out)
	case e.Spare == nil || p.tried:
		return p.send(Repeated, e.Using, Again, t.again, out)
	}
	return p.send(Doubted, e.Spare, Second, t.again, out) // the fault may be in the loader
}

// send asks a loader.
func (p *Portion) send(next State, to *Loader, why Purpose, rows []int, out []Action) []Action {
	p.state, p.due = next, len(rows)
	return append(out, Action{Kind: Send, Loader: to, Purpose: why, Rows: rows})
}

// sent notes a request.
func (p *Portion) sent(e Event, out []Action) []Action {
	r := request{number: e.Request, loader: e.Loader, rows: e.Rows}
	if e.Purpose != Hedge {
		p.main = append(p.main, r)
		return out
	}
	p.late = append(p.late, r)
	if p.state == Asked {
		p.state = Hedged
	}
	return out
}

// came takes the first copy of a row, and has each later one compared with it.
func (p *Portion) came(e Event, out []Action) []Action {
	if p.rows[e.Row].isHere {
		return append(out, Action{Kind: Compare, Request: e.Request, Row: e.Row})
	}
	p.rows[e.Row].isHere = true
	out = append(out, Action{Kind: Take, Request: e.Request, Row: e.Row})
	if p.due--; p.due == 0 {
		p.tried, p.state = false, Ready
		return p.release(out)
	}
	return out
}

// suspect follows the verdict on a loader: its standby takes over. Without a standby, the portion waits on.
func (p *Portion) suspect(e Event, out []Action) []Action {
	r := &p.main[numbered(p.main, e.Request)]
	if e.Spare != nil {
		return append(out, salvageOf(r, Ask, e.Why))
	}
	r.verdict, p.state = e.Why, Suspected
	return append(out, Action{Kind: Wait, Loader: r.loader, Why: e.Why, Rows: r.rows})
}

func salvageOf(r *request, why Purpose, err error) Action {
	return Action{Kind: Salvage, Request: r.number, Loader: r.loader, Purpose: why, Why: err}
}

// hedge asks the standby for the missing rows of a late loader, which is still asked. The loop may have no credits for
// it: the state changes when the requests are sent.
func (p *Portion) hedge(e Event, out []Action) []Action {
	var missing []int
	for _, k := range p.main[numbered(p.main, e.Request)].rows {
		if p.IsMissing(k) {
			missing = append(missing, k)
		}
	}
	if e.Spare == nil || len(missing) == 0 {
		return out
	}
	return append(out, Action{Kind: Send, Loader: e.Spare, Purpose: Hedge, Rows: missing})
}

// left ends the wait for one request.
func (p *Portion) left(e Event, out []Action) []Action { return p.leave(e.Request, out) }

// complete ends the wait for a request whose rows are all here. A portion with many rows has several requests.
func (p *Portion) complete(e Event, out []Action) []Action {
	if len(p.main) > 1 {
		return p.leave(e.Request, out)
	}
	if p.state == Helped {
		return p.helped(e, out)
	}
	p.tried, p.state = false, Ready
	return p.release(out)
}

// unread notes the documents that a reading could not decode.
func (p *Portion) unread(e Event, out []Action) []Action {
	out = p.release(out)
	if !p.noteBad(e.Documents) {
		return p.fail(e.Why, out)
	}
	if p.state == Doubted || p.state == Repeated {
		p.tried = false
	}
	p.state = Ready
	return out
}

// final ends the run.
func (p *Portion) final(e Event, out []Action) []Action { return p.fail(e.Why, p.release(out)) }

// salvage has the rows filed that a lost loader has completed in shared memory.
func (p *Portion) salvage(e Event, out []Action) []Action {
	if k := numbered(p.late, e.Request); k >= 0 {
		return append(out, salvageOf(&p.late[k], Hedge, e.Why))
	}
	return append(out, salvageOf(&p.main[numbered(p.main, e.Request)], Ask, e.Why))
}

// salvaged continues after the rows of a loader in shared memory were filed. Without an error, the directory names
// another loader.
func (p *Portion) salvaged(e Event, out []Action) []Action {
	is, isLate := p.isOpen(e.Request)
	switch {
	case !is:
		return p.whole(e, out)
	case isLate:
		return p.leave(e.Request, out)
	case e.Why == nil && len(p.main) > 1:
		return p.leave(e.Request, out)
	case e.Why == nil:
		p.state = Ready
		return p.release(out)
	case p.state == Helped:
		return p.helped(e, out)
	case p.state == Doubted:
		return p.repeat(e, out)
	}
	return p.gone(e, out)
}

// whole has a lost loader replaced by its standby for the next steps: all its rows of this one are here.
func (*Portion) whole(e Event, out []Action) []Action {
	if e.Why == nil || e.Purpose == Hedge {
		return out
	}
	return append(out, Action{Kind: Switch, Loader: e.Loader, Why: e.Why})
}

// gone has a lost loader replaced by its standby.
func (p *Portion) gone(e Event, out []Action) []Action {
	from := p.main[numbered(p.main, e.Request)].loader
	if p.state == Repeated {
		p.tried = false
	}
	p.state = Switching
	return append(p.release(out), Action{Kind: Switch, Loader: from, Why: e.Why})
}

// switched asks the next loader, or waits for one.
func (p *Portion) switched(e Event, out []Action) []Action {
	if e.IsReplaced {
		p.state = Ready
		return out
	}
	return p.rest(fault{loader: e.Loader, err: e.Why}, e.Now, out)
}

// fenced waits for a directory that names another loader.
func (p *Portion) fenced(e Event, out []Action) []Action {
	from := p.main[numbered(p.main, e.Request)].loader
	if p.state == Repeated {
		p.tried = false
	}
	return p.rest(fault{loader: from, err: e.Why}, e.Now, p.release(out))
}

// faulty notes the loader's own fault. act asks the standby, if there is one.
func (p *Portion) faulty(e Event, out []Action) []Action {
	p.fault = &fault{loader: p.main[numbered(p.main, e.Request)].loader, err: e.Why}
	if p.state == Repeated {
		p.tried = false
	}
	p.state = Ready
	return p.release(out)
}

// helped continues after the standby of a loader with a fault was asked. The standby stays the standby, because every
// host may have the fault.
func (p *Portion) helped(e Event, out []Action) []Action {
	out = p.release(out)
	f := *p.fault
	p.fault = nil
	if len(p.todo().due()) >= f.before {
		return p.rest(f, e.Now, out)
	}
	p.state = Ready
	return out
}

// helpedBadly is helped if the standby names the documents that it could not decode.
func (p *Portion) helpedBadly(e Event, out []Action) []Action {
	if e.Documents == nil {
		return p.final(e, out)
	}
	return p.helped(e, out)
}

// repeat lets the loader itself read the documents again, because its standby could not.
func (p *Portion) repeat(_ Event, out []Action) []Action {
	p.tried, p.state = true, Ready
	return p.release(out)
}

// moved follows a change of the directory: another loader, or a standby for a loader that counts as dead.
func (p *Portion) moved(e Event, out []Action) []Action {
	if e.Using != p.main[0].loader {
		for k := range p.main {
			out = append(out, salvageOf(&p.main[k], Ask, nil))
		}
		return out
	}
	if k := slices.IndexFunc(p.main, isSuspected); k >= 0 && e.Spare != nil {
		out = append(out, salvageOf(&p.main[k], Ask, p.main[k].verdict))
	}
	return out
}

// masked notes masked rows. A portion that waited for them continues.
func (p *Portion) masked(e Event, out []Action) []Action {
	for _, k := range e.Rows {
		p.rows[k].isMasked = true
	}
	if p.state == Masking && !slices.ContainsFunc(p.lost, p.IsMissing) {
		p.state = Ready
	}
	return out
}

// woke tries again when the time has come.
func (p *Portion) woke(e Event, out []Action) []Action {
	if !e.Now.Before(p.retry) {
		p.state = Ready
	}
	return out
}
