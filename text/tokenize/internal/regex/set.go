package regex

import (
	"slices"
	"unicode"
)

// set is characters as disjoint ranges in ascending order, with at least one character between two of them.
type set []span

// span is the characters from lo to hi, both included.
type span struct{ lo, hi rune }

func every() set { return set{{0, unicode.MaxRune}} }

// setOf returns the characters of any spans.
func setOf(spans ...span) set {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b span) int { return int(a.lo - b.lo) })
	var s set
	for _, r := range spans {
		if n := len(s); n > 0 && r.lo <= s[n-1].hi+1 {
			s[n-1].hi = max(s[n-1].hi, r.hi)
		} else {
			s = append(s, r)
		}
	}
	return s
}

func (s set) union(t set) set { return setOf(slices.Concat(s, t)...) }

func (s set) complement() set {
	var c set
	next := rune(0)
	for _, r := range s {
		if r.lo > next {
			c = append(c, span{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= unicode.MaxRune {
		c = append(c, span{next, unicode.MaxRune})
	}
	return c
}

func (s set) intersection(t set) set { return s.complement().union(t.complement()).complement() }

func (s set) minus(t set) set { return s.intersection(t.complement()) }

func (s set) has(r rune) bool {
	_, found := slices.BinarySearchFunc(s, r, func(in span, r rune) int {
		switch {
		case in.hi < r:
			return -1
		case in.lo > r:
			return 1
		}
		return 0
	})
	return found
}
