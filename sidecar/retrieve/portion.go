package retrieve

import (
	"slices"
	"time"
)

// Loader is a loader process and the term under which it serves one stripe. Portions compare the pointer: an unchanged
// loader keeps it.
type Loader struct {
	Name, Address string
	Beat          string // its heartbeat page; empty: it has none here
	IsRemote      bool   // of another host: it shares neither memory nor files with this process
	Up            string // of its host, if that is another
	Term          uint64
}

// Request is the number of a request of a portion to a loader. No two requests of a step have the same.
type Request int

// Purpose is the purpose of a request.
type Purpose uint8

// The purposes of requests.
const (
	Ask    Purpose = iota // the loader of the stripe
	Hedge                 // the loader is late: ask the standby as well
	Help                  // the loader has a fault of its own: ask the standby
	Second                // ask the standby to read and decode the documents again
	Again                 // ask the loader for that
)

// IsHedge reports whether the request goes to a standby.
func (p Purpose) IsHedge() bool { return p == Hedge || p == Help || p == Second }

// IsAgain reports whether the loader has to read and decode the documents a second time.
func (p Purpose) IsAgain() bool { return p == Second || p == Again }

// RetryAfter is the pause before a portion that no loader can serve is tried again.
const RetryAfter = 20 * time.Millisecond

// Portion is the rows that one stripe gives to a step, numbered from 0. A row may come from several loaders: its first
// copy counts. Not safe for concurrent use.
type Portion struct {
	state State
	rows  []row
	bad   map[uint64]int // readings that could not decode a document

	main  []request // the requests that the portion waits for
	late  []request // to the standby, because main is late
	due   int       // rows of main that have not come
	tried bool      // the standby could not read the documents again
	fault *fault    // of the loader, until its standby has been asked for help
	retry time.Time // while resting
	lost  []int     // while masking: the rows that are to be masked
}

// row is a row of a portion.
type row struct {
	document         uint64
	isHere, isMasked bool
}

// request is a request that the portion waits for.
type request struct {
	number  Request
	loader  *Loader
	rows    []int
	verdict error // why the loader counts as dead; nil: it does not
}

// fault is a loader's own fault, for example that its host cannot read.
type fault struct {
	loader *Loader
	err    error
	before int // rows that were missing when the standby was asked
}

// New returns a portion of which no row is here. documents has the ordinal of each row's document.
func New(documents []uint64) *Portion {
	p := &Portion{rows: make([]row, len(documents))}
	for k, d := range documents {
		p.rows[k].document = d
	}
	return p
}

// State returns the state.
func (p *Portion) State() State { return p.state }

// Retry returns the time of the next try while the portion rests.
func (p *Portion) Retry() time.Time { return p.retry }

// IsMissing reports whether a row is still to come: it is not here and not masked.
func (p *Portion) IsMissing(k int) bool { return !p.rows[k].isHere && !p.rows[k].isMasked }

// todo lists the missing rows, by the action that they need.
type todo struct {
	plain []int // ask
	again []int // one reading failed: ask for another
	lost  []int // two readings failed: have them masked
}

// due returns the rows of the first action that is due.
func (t todo) due() []int {
	switch {
	case len(t.plain) > 0:
		return t.plain
	case len(t.again) > 0:
		return t.again
	}
	return t.lost
}

// todo lists the missing rows.
func (p *Portion) todo() (t todo) {
	for k := range p.rows {
		if !p.IsMissing(k) {
			continue
		}
		switch p.bad[p.rows[k].document] {
		case 0:
			t.plain = append(t.plain, k)
		case 1:
			t.again = append(t.again, k)
		default:
			t.lost = append(t.lost, k)
		}
	}
	return t
}

// noteBad notes documents that a reading could not decode. It reports whether a row is of one of them.
func (p *Portion) noteBad(documents []uint64) (isOurs bool) {
	if p.bad == nil {
		p.bad = map[uint64]int{}
	}
	for _, d := range documents {
		p.bad[d]++
		isOurs = isOurs || slices.ContainsFunc(p.rows, func(r row) bool { return r.document == d })
	}
	return isOurs
}

// numbered returns the place of a request in a list, -1 if it is not there.
func numbered(list []request, n Request) int {
	return slices.IndexFunc(list, func(r request) bool { return r.number == n })
}

// isOpen reports whether the portion waits for a request, and whether that is one to a standby beside a late loader.
func (p *Portion) isOpen(n Request) (is, isLate bool) {
	if numbered(p.late, n) >= 0 {
		return true, true
	}
	return numbered(p.main, n) >= 0, false
}

// leave ends the wait for one request.
func (p *Portion) leave(n Request, out []Action) []Action {
	same := func(r request) bool { return r.number == n }
	p.main, p.late = slices.DeleteFunc(p.main, same), slices.DeleteFunc(p.late, same)
	if p.state == Suspected && !slices.ContainsFunc(p.main, isSuspected) {
		if p.state = Asked; len(p.late) > 0 {
			p.state = Hedged
		}
	}
	return append(out, Action{Kind: Leave, Request: n})
}

func isSuspected(r request) bool { return r.verdict != nil }

// release ends the wait for all requests.
func (p *Portion) release(out []Action) []Action {
	for _, r := range p.main {
		out = append(out, Action{Kind: Leave, Request: r.number})
	}
	for _, r := range p.late {
		out = append(out, Action{Kind: Leave, Request: r.number})
	}
	p.main, p.late = nil, nil
	return out
}

// rest lets the portion wait until the directory changes, or for a short time.
func (p *Portion) rest(f fault, now time.Time, out []Action) []Action {
	p.state, p.fault, p.retry = Resting, nil, now.Add(RetryAfter)
	return append(out, Action{Kind: Rest, Loader: f.loader, Why: f.err, Rows: p.todo().due()})
}

// fail ends the portion.
func (p *Portion) fail(why error, out []Action) []Action {
	p.state = Failed
	return append(out, Action{Kind: Fail, Why: why})
}
