package mixing

import (
	"math/bits"
	"slices"
)

// Bounds are the least and the most of the mixture that each source may have, in parts of 2^62. They hold for sources
// with a positive proportion; a proportion of 0 stays 0. The zero Bounds bound nothing.
type Bounds struct {
	Least []uint64 // per source
	Most  []uint64 // per source; 0: the whole
}

// Whole is the whole mixture in the parts of Proportions and Bounds.
const Whole = wholeParts

// Within brings proportions into bounds by water-filling: one factor scales all proportions, and each stops at its
// bound. Sources that are not active get nothing (all are active if active is nil). If too many sources have left and
// the others' most add up to less than the whole, these divide it in proportion to their most; likewise if their least
// add up to more. Each part is rounded down, so together they fall short of 2^62 by less than one part per source.
func (p Proportions) Within(b Bounds, active []bool) Proportions {
	masked := make(Proportions, len(p))
	for i, x := range p {
		if active == nil || active[i] {
			masked[i] = x
		}
	}
	if b.Least == nil && b.Most == nil {
		return masked
	}
	w := waterFill{parts: masked, least: make([]uint64, len(p)), most: make([]uint64, len(p))}
	for i, x := range masked {
		if x == 0 {
			continue
		}
		w.most[i] = wholeParts
		if b.Most != nil && b.Most[i] > 0 {
			w.most[i] = b.Most[i]
		}
		if b.Least != nil {
			w.least[i] = min(b.Least[i], w.most[i])
		}
	}
	return w.fill()
}

// waterFill finds the factor f with sum of clamp(f*parts, least, most) = whole.
type waterFill struct {
	parts       Proportions
	least, most []uint64
}

// event is a factor, as a fraction, at which a source leaves its least or reaches its most.
type event struct {
	over, under uint64
	source      int
	arrives     bool
}

func (w *waterFill) fill() Proportions {
	if short, long := cappedSum(w.most), cappedSum(w.least); short < wholeParts {
		return w.most
	} else if long >= wholeParts {
		return w.least
	}
	var events []event
	for i, x := range w.parts {
		if x > 0 {
			events = append(events, event{w.least[i], x, i, false}, event{w.most[i], x, i, true})
		}
	}
	slices.SortFunc(events, compareEvents)
	fixed, moving := cappedSum(w.least), uint64(0) // sources at a bound, and the parts of the others
	for _, e := range events {
		// Up to this event the total is fixed + moving * factor. Stop if that reaches the whole.
		if high, low := bits.Mul64(moving, e.over); lessThan(w.missing(fixed, e.under), [2]uint64{high, low}) {
			break
		}
		if e.arrives {
			moving -= w.parts[e.source]
			fixed += w.most[e.source]
		} else {
			moving += w.parts[e.source]
			fixed -= w.least[e.source]
		}
	}
	out := make(Proportions, len(w.parts))
	for i, x := range w.parts {
		out[i] = w.most[i]
		if x > 0 && moving > 0 {
			out[i] = min(max(scale(x, wholeParts-fixed, moving), w.least[i], 1), w.most[i])
		}
	}
	return out
}

// missing returns the rest of the whole, times a denominator.
func (w *waterFill) missing(fixed, under uint64) [2]uint64 {
	high, low := bits.Mul64(wholeParts-fixed, under)
	return [2]uint64{high, low}
}

// compareEvents orders by factor. At equal factors, leaving the least comes first.
func compareEvents(a, b event) int {
	ah, al := bits.Mul64(a.over, b.under)
	bh, bl := bits.Mul64(b.over, a.under)
	switch x, y := [2]uint64{ah, al}, [2]uint64{bh, bl}; {
	case lessThan(x, y):
		return -1
	case lessThan(y, x):
		return 1
	case a.arrives != b.arrives && b.arrives:
		return -1
	case a.arrives != b.arrives:
		return 1
	}
	return a.source - b.source
}

func lessThan(a, b [2]uint64) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }

// scale returns x*over/under rounded down, at most the whole.
func scale(x, over, under uint64) uint64 {
	high, low := bits.Mul64(x, over)
	if high >= under {
		return wholeParts
	}
	quotient, _ := bits.Div64(high, low, under)
	return min(quotient, wholeParts)
}

// cappedSum returns the sum of parts, at most the whole, so it cannot overflow.
func cappedSum(parts []uint64) uint64 {
	total := uint64(0)
	for _, x := range parts {
		total = min(total+x, wholeParts)
	}
	return total
}
