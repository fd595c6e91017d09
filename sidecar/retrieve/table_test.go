package retrieve

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var errTest = errors.New("cause")

// placed returns a portion of two rows in a state, with request 1 to a loader and request 2 to the standby beside it.
func placed(s State, loader, standby *Loader) *Portion {
	p := New([]uint64{7, 8})
	p.state, p.due = s, 2
	p.main = []request{{number: 1, loader: loader, rows: []int{0, 1}}}
	if s == Hedged || s == Suspected {
		p.late = []request{{number: 2, loader: standby, rows: []int{0, 1}}}
	}
	if s == Suspected {
		p.main[0].verdict = errTest
	}
	if s == Helped {
		p.fault = &fault{loader: loader, err: errTest, before: 2}
	}
	return p
}

// TestEveryEventHasARuleOrIsRefused: a portion refuses an event without a rule by the names of its state and the event.
func TestEveryEventHasARuleOrIsRefused(t *testing.T) {
	loader, standby := &Loader{Name: "l0"}, &Loader{Name: "l1"}
	for s := range states {
		for k := range hedgeOver {
			e := Event{Kind: k, Request: 1, Rows: []int{0}, Using: loader, Spare: standby, Loader: loader, Why: errTest,
				Documents: []uint64{7}, Now: time.Unix(1, 0)}
			p := placed(s, loader, standby)
			refusal := fmt.Sprintf("a portion that is %s cannot take the event %q", s, k)
			refused := slices.ContainsFunc(p.On(e, nil), func(a Action) bool {
				return a.Kind == Fail && strings.Contains(a.Why.Error(), refusal)
			})
			if has := table[s][k] != nil; refused == has {
				t.Errorf("%s, %s: has a rule %v, refused %v", s, k, has, refused)
			}
			if refused && p.State() != Failed {
				t.Errorf("%s, %s: refused, and the portion is %s", s, k, p.State())
			}
		}
		for k := hedgeOver; k < kinds; k++ { // of the second request, which only a late or lost loader has
			if has, want := table[s][k] != nil, s == Hedged || s == Suspected; has != want {
				t.Errorf("%s, %s: has a rule %v, want %v", s, k, has, want)
			}
		}
	}
}

// TestEventsOfLeftRequestsChangeNothing: in every state, and with every kind.
func TestEventsOfLeftRequestsChangeNothing(t *testing.T) {
	for s := range states {
		for k := Came; k <= Faulty; k++ {
			p := placed(s, &Loader{}, &Loader{})
			if out := p.On(Event{Kind: k, Request: 9, Why: errTest}, nil); len(out) > 0 || p.State() != s {
				t.Errorf("%s, %s: %v, then %s", s, k, out, p.State())
			}
		}
	}
}

// TestWalks: the actions that follow from events, one after the other, and the state behind them.
func TestWalks(t *testing.T) {
	l0, l1, l2 := &Loader{Name: "l0"}, &Loader{Name: "l1"}, &Loader{Name: "l2"}
	due := Event{Kind: Due, Using: l0, Spare: l1}
	next := Event{Kind: Due, Using: l1}
	asked := Event{Kind: Sent, Request: 1, Loader: l0, Rows: []int{0, 1}}
	hedged := Event{Kind: Sent, Request: 2, Loader: l1, Rows: []int{0, 1}, Purpose: Hedge}
	of := func(k Kind) Event {
		return Event{Kind: k, Request: 1, Using: l0, Spare: l1, Loader: l0, Why: errTest}
	}
	row := func(r Request, k int) Event { return Event{Kind: Came, Request: r, Row: k} }
	unreadable := func(r Request) Event { return Event{Kind: Bad, Request: r, Documents: []uint64{8}, Why: errTest} }
	for name, x := range map[string]struct {
		events []Event
		want   string
		state  State
	}{
		"all rows come": {
			[]Event{due, asked, row(1, 0), row(1, 1), due},
			"send l0 [0 1], take 0, take 1, leave 1", Done,
		},
		"a silent loader with a standby": {
			[]Event{due, asked, row(1, 0), of(Silent), of(Salvaged), {Kind: Switched, IsReplaced: true}, next},
			"send l0 [0 1], take 0, salvage 1, leave 1, switch l0, send l1 [1]", Asked,
		},
		"a silent loader without a standby": {
			[]Event{due, asked, {Kind: Silent, Request: 1, Why: errTest}, {Kind: Moved, Using: l0}, of(Moved),
				of(Salvaged)},
			"send l0 [0 1], wait l0, salvage 1, leave 1, switch l0", Switching,
		},
		"no standby has taken over": {
			[]Event{due, asked, of(Lost), of(Salvaged), {Kind: Switched, Loader: l0, Why: errTest}, of(Moved)},
			"send l0 [0 1], salvage 1, leave 1, switch l0, rest l0", Ready,
		},
		"a late loader": {
			[]Event{due, asked, of(Late), hedged, row(2, 1), row(1, 1), row(1, 0)},
			"send l0 [0 1], send l1 [0 1], take 1, compare 1, take 0, leave 1, leave 2", Ready,
		},
		"a standby that fails beside a late loader": {
			[]Event{due, asked, of(Late), hedged, {Kind: Faulty, Request: 2, Why: errTest}, row(1, 0)},
			"send l0 [0 1], send l1 [0 1], leave 2, take 0", Hedged,
		},
		"all rows of a lost loader lay in memory": {
			[]Event{due, asked, of(Lost), row(1, 0), row(1, 1), of(Salvaged), {Kind: Switched}, due},
			"send l0 [0 1], salvage 1, take 0, take 1, leave 1, switch l0", Done,
		},
		"another loader is named": {
			[]Event{due, asked, {Kind: Moved, Using: l2}, {Kind: Salvaged, Request: 1}, {Kind: Due, Using: l2}},
			"send l0 [0 1], salvage 1, leave 1, send l2 [0 1]", Asked,
		},
		"a fault of the loader, and the standby helps": {
			[]Event{due, asked, of(Faulty), due, {Kind: Sent, Request: 2, Loader: l1, Rows: []int{0, 1}, Purpose: Help},
				row(2, 0), {Kind: Lost, Request: 2, Why: errTest},
				{Kind: Salvaged, Request: 2, Loader: l1, Why: errTest}, due},
			"send l0 [0 1], leave 1, send l1 [0 1], take 0, salvage 2, leave 2, send l0 [1]", Asked,
		},
		"two readings fail": {
			[]Event{due, asked, row(1, 0), unreadable(1), due,
				{Kind: Sent, Request: 2, Loader: l1, Rows: []int{1}, Purpose: Second}, unreadable(2), due,
				{Kind: Masked, Rows: []int{1}}, due},
			"send l0 [0 1], take 0, leave 1, send l1 [1], leave 2, mask [1]", Done,
		},
		"the standby cannot read a second time": {
			[]Event{due, asked, row(1, 0), unreadable(1), due,
				{Kind: Sent, Request: 2, Loader: l1, Rows: []int{1}, Purpose: Second},
				{Kind: Faulty, Request: 2, Why: errTest}, due},
			"send l0 [0 1], take 0, leave 1, send l1 [1], leave 2, send l0 [1]", Repeated,
		},
		"nobody is named": {[]Event{{Kind: Due}, {Kind: Woke}, {Kind: Woke, Now: time.Unix(9, 0)}}, "rest -", Ready},
		"a final error":   {[]Event{due, asked, of(Final)}, "send l0 [0 1], leave 1, fail", Failed},
	} {
		t.Run(name, func(t *testing.T) {
			p := New([]uint64{7, 8})
			var got []string
			for _, e := range x.events {
				for _, a := range p.On(e, nil) {
					got = append(got, written(a))
				}
			}
			if text := strings.Join(got, ", "); text != x.want || p.State() != x.state {
				t.Errorf("got  %s, then %s\nwant %s, then %s", text, p.State(), x.want, x.state)
			}
		})
	}
}

func written(a Action) string {
	who := "-"
	if a.Loader != nil {
		who = a.Loader.Name
	}
	switch a.Kind {
	case Send:
		return fmt.Sprintf("send %s %v", who, a.Rows)
	case Take:
		return fmt.Sprintf("take %d", a.Row)
	case Compare:
		return fmt.Sprintf("compare %d", a.Row)
	case Leave:
		return fmt.Sprintf("leave %d", a.Request)
	case Salvage:
		return fmt.Sprintf("salvage %d", a.Request)
	case Switch:
		return "switch " + who
	case Mask:
		return fmt.Sprintf("mask %v", a.Rows)
	case Rest:
		return "rest " + who
	case Wait:
		return "wait " + who
	}
	return "fail"
}
