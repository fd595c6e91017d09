package scale

import (
	"fmt"
	"time"
)

// Control connects a scaler with the engine that starts and ends loaders. It orders nothing before it knows which
// loaders the engine has: a restarted orchestrator continues with those. The engine asks loaders to leave, so
// they hand over their stripes first. Not safe for concurrent use.
type Control struct {
	*Scaler
	known   bool // the engine has said which loaders it has
	trouble string
	ordered int // loaders of the engine, as ordered last; 0: no order was given
	now     Sample
	changed time.Time // when the wish changed last; zero: never
	why     string    // of that change
}

// Order is the engine's next goal.
type Order struct {
	Loaders int
	Line    string // for the log; empty: the order repeats the number that holds already
	wish    Wish
}

// NewControl returns the control of a scaler.
func NewControl(s *Scaler) *Control { return &Control{Scaler: s} }

// Found observes the number of loaders that the engine has at the start of this orchestrator.
func (c *Control) Found(loaders int) {
	if !c.known {
		c.known = true
		c.begin(loaders)
	}
}

// Trouble observes why the engine does not take the newest number; "": it has.
func (c *Control) Trouble(why string) { c.trouble = why }

// IsDue reports whether it is time for a sample.
func (c *Control) IsDue(now time.Time) bool { return now.Sub(c.now.At) >= often }

// Observe takes a sample.
func (c *Control) Observe(x Sample) {
	if c.now = x; c.known { // no order may be given before
		c.Scaler.Observe(x)
	}
}

// Decide returns the next order, and changes nothing. ok is false if there is none.
func (c *Control) Decide() (o Order, ok bool) {
	if !c.known {
		return o, false
	}
	w, another := c.Scaler.Decide()
	if another {
		o.Line = fmt.Sprintf("scale: %d loaders instead of %d: %s", w.Loaders, c.wish.Loaders, w.Why)
	}
	o.Loaders, o.wish = w.Loaders, w
	return o, o.Loaders != c.ordered
}

// Settle notes that an order of Decide is carried out.
func (c *Control) Settle(o Order) {
	if o.Line != "" {
		c.Take(o.wish)
		c.changed, c.why = c.now.At, o.wish.Why
	}
	c.ordered = o.Loaders
}

// Status is the control for people.
type Status struct {
	Wished, There int
	Limits
	Why     string    // of the newest change
	Changed time.Time // zero: never
	Trouble string
}

// Status returns the control for people.
func (c *Control) Status() Status {
	return Status{Wished: c.wish.Loaders, There: c.now.There, Limits: c.limits, Why: c.why, Changed: c.changed,
		Trouble: c.trouble}
}
