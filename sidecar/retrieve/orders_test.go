package retrieve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// loop carries out the actions of a portion, and checks what must hold in every order of events.
type loop struct {
	t       *testing.T
	rng     *rand.Rand
	p       *Portion
	now     time.Time
	loaders []*Loader
	calls   []*called // by number
	taken   []int     // by row: how often it was taken
	masked  []bool    // by row
	orders  []string  // for messages
	isCalm  bool      // every request is answered
}

// called is a request, as its loader sees it.
type called struct {
	rows    []int
	purpose Purpose
	loader  *Loader
	isLeft  bool
	isSilen bool
}

func (l *loop) failf(format string, args ...any) {
	l.t.Helper()
	l.t.Fatalf("%s\nafter %v", fmt.Sprintf(format, args...), l.orders[max(0, len(l.orders)-40):])
}

// on gives an event to the portion, and carries out what follows.
func (l *loop) on(e Event) {
	e.Now = l.now
	l.orders = append(l.orders, fmt.Sprintf("%s %d in %s", e.Kind, e.Request, l.p.State()))
	for _, a := range l.p.On(e, nil) {
		l.orders = append(l.orders, "-> "+written(a))
		l.perform(a)
	}
}

func (l *loop) perform(a Action) {
	switch a.Kind {
	case Send:
		l.send(a)
	case Take:
		c := l.calls[a.Request]
		if l.taken[a.Row]++; l.taken[a.Row] > 1 || c.isLeft || !slices.Contains(c.rows, a.Row) {
			l.failf("row %d was taken %d times, now of request %d", a.Row, l.taken[a.Row], a.Request)
		}
	case Compare:
		if l.taken[a.Row] != 1 {
			l.failf("row %d is compared with nothing", a.Row)
		}
	case Leave:
		if c := l.calls[a.Request]; c.isLeft {
			l.failf("request %d was left twice", a.Request)
		} else {
			c.isLeft = true
		}
	case Salvage:
		if c := l.calls[a.Request]; !c.isLeft {
			for _, k := range c.rows {
				if l.rng.IntN(3) == 0 {
					l.on(Event{Kind: Came, Request: a.Request, Row: k})
				}
			}
		}
		l.on(Event{Kind: Salvaged, Request: a.Request, Loader: a.Loader, Purpose: a.Purpose, Why: a.Why})
	case Switch:
		l.on(Event{Kind: Switched, Loader: a.Loader, Why: a.Why, IsReplaced: l.rng.IntN(2) == 0})
	case Mask:
		for _, k := range a.Rows {
			if l.p.bad[l.p.rows[k].document] < 2 {
				l.failf("row %d is to be masked after one reading", k)
			}
		}
	case Fail:
		l.failf("the run ends: %v", a.Why)
	}
}

// send makes one or two requests of an order to ask, and none of a hedge that nobody pays for.
func (l *loop) send(a Action) {
	if a.Loader == nil || len(a.Rows) == 0 {
		l.failf("nobody is asked for %v", a.Rows)
	}
	for _, k := range a.Rows {
		if l.taken[k] > 0 || l.masked[k] {
			l.failf("row %d is asked for again", k)
		}
	}
	if a.Purpose == Hedge && l.rng.IntN(3) == 0 {
		return
	}
	parts := [][]int{a.Rows}
	if cut := l.rng.IntN(len(a.Rows) + 1); cut > 0 && cut < len(a.Rows) {
		parts = [][]int{a.Rows[:cut], a.Rows[cut:]}
	}
	for _, rows := range parts {
		l.calls = append(l.calls, &called{rows: rows, purpose: a.Purpose, loader: a.Loader})
		l.on(Event{Kind: Sent, Request: Request(len(l.calls) - 1), Loader: a.Loader, Purpose: a.Purpose, Rows: rows})
	}
}

// named returns an event with a loader and a standby that a directory may name.
func (l *loop) named(k Kind) Event {
	e := Event{Kind: k, Using: l.loaders[0], Spare: l.loaders[1]}
	if !l.isCalm {
		e.Using, e.Spare = nil, nil
		if l.rng.IntN(6) > 0 {
			e.Using = l.loaders[l.rng.IntN(2)]
		}
		if e.Using != nil && l.rng.IntN(3) > 0 {
			e.Spare = l.loaders[2+l.rng.IntN(2)]
		}
	}
	return e
}

// mask masks rows: those that the portion waits for, or any that is missing.
func (l *loop) mask() {
	var rows []int
	for k := range l.taken {
		if l.p.IsMissing(k) && (slices.Contains(l.p.lost, k) || l.rng.IntN(20) == 0) {
			rows = append(rows, k)
			l.masked[k] = true
		}
	}
	if len(rows) > 0 {
		l.on(Event{Kind: Masked, Rows: rows})
	}
}

// step lets one thing happen.
func (l *loop) step() {
	l.now = l.now.Add(time.Duration(l.rng.IntN(int(RetryAfter))))
	switch s := l.p.State(); {
	case s == Ready:
		if l.rng.IntN(8) == 0 {
			l.mask()
		}
		l.on(l.named(Due))
	case s == Resting && (l.isCalm || l.rng.IntN(2) == 0):
		l.on(Event{Kind: Woke})
	case s == Masking:
		l.mask()
	case !l.isCalm && l.rng.IntN(8) == 0:
		l.on(l.named(Moved))
	case len(l.calls) > 0:
		l.answer(Request(len(l.calls) - 1 - l.rng.IntN(min(4, len(l.calls)))))
	}
}

// answer lets a loader or the watcher say something about a request, which may be left.
func (l *loop) answer(n Request) {
	c := l.calls[n]
	what := l.rng.IntN(14)
	if l.isCalm {
		what = 0
	}
	e := Event{Request: n, Loader: c.loader, Why: errTest}
	switch {
	case what < 6:
		e.Kind, e.Row = Came, c.rows[l.rng.IntN(len(c.rows))]
	case what == 6 && c.purpose == Ask && !c.isSilen:
		silent := l.named(Silent)
		e.Kind, e.Using, e.Spare, c.isSilen = Silent, silent.Using, silent.Spare, true
	case what == 7 && c.purpose == Ask:
		late := l.named(Late)
		e.Kind, e.Using, e.Spare = Late, late.Using, late.Spare
	case what == 8 && !slices.ContainsFunc(c.rows, func(k int) bool { return l.taken[k] == 0 }):
		e.Kind, e.Why = Complete, nil
	case what == 9:
		e.Kind, e.Documents = Bad, []uint64{l.p.rows[c.rows[0]].document}
	default:
		e.Kind = []Kind{Lost, Fenced, Deposed, Faulty}[l.rng.IntN(4)]
	}
	l.on(e)
}

// check checks that the portion has ended, or that something can happen to it.
func (l *loop) check() {
	p, open := l.p, 0
	for n, c := range l.calls {
		is, _ := p.isOpen(Request(n))
		if is == c.isLeft {
			l.failf("request %d is open: %v, was left: %v", n, is, c.isLeft)
		}
		if is {
			open++
		}
	}
	switch p.State() {
	case Asked, Hedged, Suspected, Helped, Doubted, Repeated:
		if len(p.main) == 0 || p.due <= 0 {
			l.failf("it is %s, with %d requests for %d rows", p.State(), len(p.main), p.due)
		}
	case Resting:
		if p.Retry().IsZero() || open > 0 {
			l.failf("it rests until %v, with %d requests", p.Retry(), open)
		}
	case Masking:
		if !slices.ContainsFunc(p.lost, p.IsMissing) || open > 0 {
			l.failf("it waits for masks of %v, with %d requests", p.lost, open)
		}
	case Done:
		for k := range l.taken {
			if l.taken[k] == 0 && !l.masked[k] || open > 0 {
				l.failf("it is done without row %d, with %d requests", k, open)
			}
		}
	case Switching, Failed:
		l.failf("it stays %s", p.State())
	}
}

// TestEveryOrderOfEvents: each row is taken from one answer, no row that is here or masked is asked for again, and the
// portion ends or waits for something. When all loaders answer again, it ends.
func TestEveryOrderOfEvents(t *testing.T) {
	for seed := range uint64(3000) {
		l := &loop{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(100, 0),
			loaders: []*Loader{{Name: "l0"}, {Name: "l1"}, {Name: "s0"}, {Name: "s1"}}}
		documents := make([]uint64, 1+l.rng.IntN(6))
		for k := range documents {
			documents[k] = uint64(l.rng.IntN(5))
		}
		slices.Sort(documents)
		l.p, l.taken, l.masked = New(documents), make([]int, len(documents)), make([]bool, len(documents))
		for n := 0; n < 1000 && l.p.State() != Done; n++ {
			if n == 60 {
				l.isCalm = true
			}
			l.step()
			l.check()
		}
		if l.p.State() != Done {
			l.failf("seed %d: it is %s after 1,000 events", seed, l.p.State())
		}
	}
}
