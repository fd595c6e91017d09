// Package scale decides how many loaders a run should have. It follows the measured work of each source, the schedule
// of the mixture, and the waits of the ranks. The number of loaders never changes a plan.
//
// It grows fast and shrinks slowly. Loaders that were added because ranks wait must pay: if the ranks are no faster
// with them, they go. A loader goes only if no known change of the mixture needs it again soon. Between the limits of
// growing and of shrinking is a band in which the number stays, so noise does not change it.
//
// Everything here is pure: the caller brings the times and the measures. No plan depends on the floating point.
//
// Each file uses only later ones:
//
//	control.go  Control: the order of the steps from a wish to loaders that read
//	scale.go    Scaler: when the number changes
//	need.go     the work that the ranks ask for, now and ahead
//	costs.go    the work of a token of each source
//	sample.go   the measures of a stretch of time
package scale

import (
	"fmt"
	"math"
	"time"
)

// Limits bound the number of loaders.
type Limits struct{ Min, Max int }

const (
	often = time.Second     // between two samples
	every = 2 * time.Second // between two decisions

	target = 0.70 // the part of the time for which loaders should be busy
	full   = 0.80 // from this part on, they are too few
	slack  = 0.55 // below this part, one loader fewer is enough

	hungry = 0.05 // part of the time that a rank waits for loaders: they are too few
	fed    = 0.02 // below it, a loader may go

	calm   = 30 * time.Second // a loader goes if it was not needed for so long
	barred = 10 * time.Minute // after loaders that did not pay; doubles each time
	paid   = 1.05             // loaders that pay make the reading faster by this factor, at least

	firstReady = 10 * time.Second // the time until a new loader reads, before it is measured
	mostReady  = 2 * time.Minute
)

// Wish is a number of loaders.
type Wish struct {
	Loaders int
	Why     string // for people; empty at the start
	kind    kind
}

// kind is the rule behind a wish.
type kind int

const (
	stays kind = iota
	grows
	growsForWaits // on trial
	goesBack      // the trial failed
	shrinks
)

// Scaler follows the measures of a run. Not safe for concurrent use.
type Scaler struct {
	limits Limits
	need   need
	past   []Sample // of the last moments, the oldest first
	wish   Wish
	next   Wish // the newest decision

	looked time.Time     // at the newest decision
	moved  time.Time     // when the wish changed last; zero: it has not
	there  time.Time     // since then, all loaders of the wish read; zero: some are missing
	ready  time.Duration // from a wish for more loaders until they read
	calmed time.Time     // since then, one loader fewer was enough; zero: it is not
	peak   float64       // the most work since then
	hungry time.Time     // since then, ranks wait for loaders; zero: they do not
	trial  trial
	bar    bar
}

// trial judges loaders that were added because ranks waited.
type trial struct {
	from  int     // loaders before; 0: none is under way
	speed float64 // of reading before, in tokens a second
}

// bar is a number of loaders beyond which more do not help.
type bar struct {
	loaders int
	until   time.Time
	lasts   time.Duration
}

// New returns the scaler of a run that begins with the least number of loaders. shares returns the part of the tokens
// of a step that each source has. costs hold until a source is measured.
func New(limits Limits, shares func(step uint64) []float64, costs Costs) *Scaler {
	limits.Max = max(limits.Max, limits.Min)
	begin := Wish{Loaders: limits.Min}
	return &Scaler{limits: limits, need: need{shares: shares, costs: newCosts(costs)}, wish: begin, next: begin,
		ready: firstReady}
}

// Wish returns the newest wish.
func (s *Scaler) Wish() Wish { return s.wish }

// begin makes the loaders that exist the wish, within the limits.
func (s *Scaler) begin(loaders int) {
	s.wish.Loaders = min(max(loaders, s.limits.Min), s.limits.Max)
	s.next = s.wish
}

// Observe takes a sample and decides every few seconds.
func (s *Scaler) Observe(x Sample) {
	if n := len(s.past); n > 0 {
		switch last := &s.past[n-1]; {
		case x.At.Sub(last.At) < often:
			return
		case x.Served < last.Served || x.Waited < last.Waited || len(x.Busy) != len(last.Busy):
			s.past = nil // another attempt began
		}
	}
	s.need.costs.learn(x)
	s.past = trim(append(s.past, x))
	s.welcome(x)
	m, ok := measure(s.past)
	if !ok {
		return
	}
	s.relax(m)
	if x.At.Sub(s.looked) >= every {
		s.looked = x.At
		s.next = s.decide(m)
		s.next.Loaders = min(max(s.next.Loaders, s.limits.Min), s.limits.Max)
	}
}

// welcome notes since when the loaders of the wish read, and how long new ones needed for it.
func (s *Scaler) welcome(x Sample) {
	switch {
	case x.There < s.wish.Loaders:
		s.there = time.Time{}
	case s.there.IsZero():
		s.there = x.At
		if s.wish.kind == grows || s.wish.kind == growsForWaits {
			s.ready = min(max(x.At.Sub(s.moved), time.Second), mostReady)
		}
	}
}

// relax notes since when one loader fewer was enough, and since when ranks wait.
func (s *Scaler) relax(m measures) {
	if m.waited < hungry {
		s.hungry = time.Time{}
	} else if s.hungry.IsZero() {
		s.hungry = m.at
	}
	work := s.need.of(m, m.step).total
	if m.waited >= fed || work >= slack*float64(s.wish.Loaders-1) {
		s.calmed, s.peak = time.Time{}, 0
		return
	}
	if s.calmed.IsZero() {
		s.calmed = m.at
	}
	if !m.at.Add(-m.span).Before(s.calmed) { // no part of it is from before
		s.peak = max(s.peak, work)
	}
}

// Decide returns another wish, if there is one, and changes nothing.
func (s *Scaler) Decide() (Wish, bool) { return s.next, s.next.Loaders != s.wish.Loaders }

// Take makes the wish that Decide returned the newest one.
func (s *Scaler) Take(w Wish) {
	now := s.past[len(s.past)-1].At
	m, _ := measure(s.past)
	s.trial = trial{}
	switch {
	case w.kind == growsForWaits && !s.past[0].At.Before(s.hungry): // else the speed before is not that of the waits
		s.trial = trial{from: s.wish.Loaders, speed: m.reading()}
	case w.kind == goesBack:
		s.bar.lasts = max(2*s.bar.lasts, barred)
		s.bar.loaders, s.bar.until = w.Loaders, now.Add(s.bar.lasts)
	}
	if w.Loaders > s.wish.Loaders {
		s.there = time.Time{}
	}
	s.wish, s.next, s.moved = w, w, now
	s.calmed, s.peak = time.Time{}, 0
}

// decide returns the number of loaders that the measures ask for.
func (s *Scaler) decide(m measures) Wish {
	if !s.isSettled(m.at) {
		return s.wish
	}
	if s.trial.from > 0 && !s.there.IsZero() {
		if m.waited >= hungry && m.reading() < s.trial.speed*paid {
			return Wish{s.trial.from, fmt.Sprintf("ranks wait, and %d loaders read no faster than %d", s.wish.Loaders,
				s.trial.from), goesBack}
		}
		s.trial, s.bar = trial{}, bar{}
	}
	if more := s.more(m); more.Loaders > s.wish.Loaders {
		if s.bar.loaders > 0 && m.at.Before(s.bar.until) {
			more.Loaders = min(more.Loaders, max(s.bar.loaders, s.wish.Loaders))
		}
		return more
	}
	if fewer := s.fewer(m); fewer.Loaders < s.wish.Loaders {
		return fewer
	}
	return s.wish
}

// isSettled reports whether the measures are of the time after the newest move. An engine without room for more loaders
// may never reach a wish.
func (s *Scaler) isSettled(now time.Time) bool {
	if s.moved.IsZero() {
		return true
	}
	since := s.moved
	if s.there.After(since) {
		since = s.there
	}
	return !s.there.IsZero() && (!s.past[0].At.Before(since) || now.Sub(since) >= longest) ||
		now.Sub(s.moved) >= 3*s.ready+longest
}

// more returns the wish if the loaders are too few. It doubles their number at most.
func (s *Scaler) more(m measures) Wish {
	n := s.wish.Loaders
	if s.there.IsZero() {
		return s.wish // those that were wished for are missing
	}
	now := s.need.of(m, m.step)
	if m.waited >= hungry {
		why := fmt.Sprintf("ranks waited for loaders for %.0f %% of %v", 100*m.waited, m.span.Round(time.Second))
		if m.blamed != "" {
			why += ", now for source " + m.blamed
		}
		return Wish{min(max(loadersFor(now.total), n+1), 2*n), why, growsForWaits}
	}
	if min(now.total, m.load()) > full*float64(n) {
		return Wish{min(loadersFor(now.total), 2*n), fmt.Sprintf("ranks take the work of %.1f loaders%s", now.total,
			now.most(m)), grows}
	}
	if later, step, in := s.need.ahead(m, s.ready); later.total > full*float64(n) {
		return Wish{loadersFor(later.total), fmt.Sprintf(
			"from step %d on, in %v, the mixture needs the work of %.1f loaders%s",
			step, in.Round(time.Second), later.total, later.most(m)), grows}
	}
	return s.wish
}

// loadersFor returns the number of loaders for some work.
func loadersFor(work float64) int { return int(math.Ceil(min(work/target, 1e6))) }

// fewer returns the wish if the loaders were too many for long. The time covers the cost of a move: the start of the
// loaders that come back, and the others' reading of their stripes from the seek points. The mixture ahead must not
// need the loaders again within the same time.
//
// Half of the loaders go in one move at most, which is also the most that come back in one. Each stripe then moves
// once, and not with every loader that goes. The loaders that stay keep the read-ahead of their stripes.
func (s *Scaler) fewer(m measures) Wish {
	n, payback := s.wish.Loaders, calm+2*s.ready
	if s.calmed.IsZero() || m.at.Sub(s.calmed) < payback {
		return s.wish
	}
	took := max(s.peak, s.need.of(m, m.step).total)
	peak := max(took, s.need.most(m, payback))
	if peak >= slack*float64(n-1) {
		return s.wish
	}
	return Wish{max((n+1)/2, loadersFor(peak)), fmt.Sprintf(
		"ranks took the work of at most %.1f loaders for %v", took, m.at.Sub(s.calmed).Round(time.Second)), shrinks}
}
