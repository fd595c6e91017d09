// Package share decides which loader reads which stripe: the loaders get equal shares, and as few stripes move as
// possible. It is a function of its arguments alone.
package share

import (
	"cmp"
	"slices"
	"strings"
)

// Stripe is a stripe of a source, and the loader to which it belongs.
type Stripe struct {
	Source int
	Owner  string // empty: none yet
}

// Assign returns the owner of each stripe. loaders are the names of those that may own stripes, each once; their order
// is the order in which they get stripes. Without loaders, no stripe has an owner.
//
// The numbers of stripes of two loaders differ by at most one. No other choice with that property leaves more stripes
// with the loaders that have them. Of a loader with too many, the source goes of which it has most stripes, so that
// the loaders of a source stay many.
func Assign(stripes []Stripe, loaders []string) []string {
	owners := make([]string, len(stripes))
	if len(loaders) == 0 {
		return owners
	}
	s := newShares(stripes, loaders)
	var free []int
	for i, st := range stripes {
		if s.loads[st.Owner] != nil {
			owners[i] = st.Owner
		} else {
			free = append(free, i)
		}
	}
	for _, name := range loaders {
		free = append(free, s.surplus(name, owners)...)
	}
	slices.Sort(free)
	for _, i := range free {
		owners[i] = s.taker(stripes[i].Source)
		s.loads[owners[i]].add(stripes[i].Source, 1)
	}
	return owners
}

// load is the stripes of one loader.
type load struct {
	total, quota int
	bySource     map[int]int
}

func (l *load) add(source, n int) {
	l.total += n
	l.bySource[source] += n
}

// shares are the loads of all loaders.
type shares struct {
	stripes []Stripe
	loaders []string
	loads   map[string]*load
}

func newShares(stripes []Stripe, loaders []string) *shares {
	s := &shares{stripes: stripes, loaders: loaders, loads: map[string]*load{}}
	for _, name := range loaders {
		s.loads[name] = &load{bySource: map[int]int{}}
	}
	for _, st := range stripes {
		if l := s.loads[st.Owner]; l != nil {
			l.add(st.Source, 1)
		}
	}
	// The loaders that have most keep the larger shares.
	each, more := len(stripes)/len(loaders), len(stripes)%len(loaders)
	byLoad := slices.Clone(loaders)
	slices.SortStableFunc(byLoad, func(a, b string) int { return cmp.Compare(s.loads[b].total, s.loads[a].total) })
	for i, name := range byLoad {
		s.loads[name].quota = each
		if i < more {
			s.loads[name].quota++
		}
	}
	return s
}

// surplus takes from a loader the stripes beyond its quota, and returns them.
func (s *shares) surplus(name string, owners []string) (out []int) {
	l := s.loads[name]
	for l.total > l.quota {
		best := -1
		for i := range owners {
			source := s.stripes[i].Source
			if owners[i] == name && (best < 0 || l.bySource[source] >= l.bySource[s.stripes[best].Source]) {
				best = i
			}
		}
		owners[best] = ""
		l.add(s.stripes[best].Source, -1)
		out = append(out, best)
	}
	return out
}

// taker returns the loader with room that has fewest stripes of a source, and of those the one with fewest stripes.
func (s *shares) taker(source int) (best string) {
	for _, name := range s.loaders {
		l := s.loads[name]
		if l.total >= l.quota {
			continue
		}
		b := s.loads[best]
		if b == nil || cmp.Or(cmp.Compare(l.bySource[source], b.bySource[source]), cmp.Compare(l.total, b.total)) < 0 {
			best = name
		}
	}
	return best
}

// Compare orders the names of loaders: by the last number in them, then by the numbers before, then as texts. So
// loader-10 comes after loader-2, and the first loaders of all hosts come before the second ones.
func Compare(a, b string) int {
	x, y := numbers(a), numbers(b)
	for i := range min(len(x), len(y)) {
		if c := cmp.Or(cmp.Compare(len(x[i]), len(y[i])), strings.Compare(x[i], y[i])); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// numbers returns the decimal numbers in a name without leading zeros, the last one first.
func numbers(name string) []string {
	out := strings.FieldsFunc(name, func(r rune) bool { return r < '0' || r > '9' })
	for i := range out {
		out[i] = strings.TrimLeft(out[i], "0")
	}
	slices.Reverse(out)
	return out
}
