// Package share decides which loader reads which stripe: the loaders get equal work within their memory, and few
// stripes move. It is a function of its arguments alone.
//
// Each file uses only later ones:
//
//	share.go    Assign: places for the stripes without one, then moves that make the work more equal
//	load.go     the work and the memory of a loader
//	compare.go  Compare: the order of the names of loaders
package share

import (
	"cmp"
	"slices"
)

// Stripe is a stripe of a source, and the loader to which it belongs.
type Stripe struct {
	Source   int
	Owner    string // empty: none yet
	Work     int64  // at least 1, in any unit
	Resident int64  // bytes that a loader holds for the source, however many stripes of it the loader has
}

// Assign returns the owner of each stripe. loaders are the names of those that may own stripes, each once; their order
// decides between equal choices. memory bounds the resident bytes of a loader; 0: nothing does. Without loaders, no
// stripe has an owner.
//
// A stripe keeps its loader unless that has clearly more work than the mean, or another one clearly less: see level.
// So without a bound of memory, no loader has more than 2 1/4 times the work that it has in the best assignment. The
// numbers of stripes with the work 1 differ by at most one.
//
// The bound of memory holds while all stripes have room on the loaders, each with the largest source beside. Otherwise
// a stripe goes to the loader that holds least.
func Assign(stripes []Stripe, loaders []string, memory int64) []string {
	s := &shares{stripes: stripes, memory: memory, owners: make([]*load, len(stripes))}
	byName := map[string]*load{}
	for i, name := range loaders {
		l := &load{name: name, order: i, stripes: map[int]int{}}
		s.loads, byName[name] = append(s.loads, l), l
	}
	var free []int
	for i, st := range stripes {
		s.total, s.heaviest = s.total+st.Work, max(s.heaviest, st.Work)
		if s.owners[i] = byName[st.Owner]; s.owners[i] != nil {
			s.owners[i].add(st)
		} else {
			free = append(free, i)
		}
	}
	if len(loaders) > 0 {
		slices.SortStableFunc(free, func(a, b int) int { return cmp.Compare(stripes[b].Work, stripes[a].Work) })
		for _, i := range free { // the heaviest first: later ones fill the gaps
			s.own(i, s.taker(stripes[i], nil))
		}
		for s.relieve() || s.level() {
		}
	}
	out := make([]string, len(stripes))
	for i, l := range s.owners {
		if l != nil {
			out[i] = l.name
		}
	}
	return out
}

// shares are the loads of all loaders.
type shares struct {
	stripes  []Stripe
	owners   []*load // by stripe; nil: none
	loads    []*load // in the order of the loaders
	memory   int64   // 0: no bound
	total    int64   // work of all stripes
	heaviest int64   // work of a stripe
}

// own gives a stripe to a loader.
func (s *shares) own(i int, l *load) {
	if before := s.owners[i]; before != nil {
		before.remove(s.stripes[i])
	}
	s.owners[i] = l
	l.add(s.stripes[i])
}

// fits reports whether a loader has room for a stripe.
func (s *shares) fits(l *load, st Stripe) bool {
	return s.memory == 0 || l.stripes[st.Source] > 0 || l.held+st.Resident <= s.memory
}

// taker returns the loader with room that has the least work, and of those the one with the fewest stripes of the
// source. If none has room, it is the one that holds least. The loader that has the stripe is none of them.
func (s *shares) taker(st Stripe, from *load) (best *load) {
	for _, l := range s.loads {
		if l != from && s.fits(l, st) && (best == nil || l.compare(best, st.Source) < 0) {
			best = l
		}
	}
	if best != nil {
		return best
	}
	return slices.MinFunc(s.loads, func(a, b *load) int { return cmp.Compare(a.held, b.held) })
}

// relieve moves one stripe away from a loader that holds too much, if another one has room. It reports whether it did.
// Each such move makes the bytes beyond the bound fewer.
func (s *shares) relieve() bool {
	for i, st := range s.stripes {
		from := s.owners[i]
		if s.memory == 0 || from.held <= s.memory || from.stripes[st.Source] > 1 || st.Resident == 0 {
			continue
		}
		if to := s.taker(st, from); to != from && s.fits(to, st) {
			s.own(i, to)
			return true
		}
	}
	return false
}

// level moves one stripe to a loader with less work, and reports whether it did. The difference of the two must be more
// than the stripe and a gap: a smaller gain is not worth the move. Either the first one has more than the mean by the
// gap, or the second one has less than half of the mean. The loader with most work comes first. Of its stripes, it
// gives the one that makes the two most equal.
//
// The sum of the squares of all work falls with each move, and no loader gets beyond its memory, so the moves end.
func (s *shares) level() bool {
	mean := s.total / int64(len(s.loads))
	gap := min(mean/8, s.heaviest/2)
	byWork := slices.Clone(s.loads)
	slices.SortStableFunc(byWork, func(a, b *load) int { return cmp.Compare(b.work, a.work) })
	for _, from := range byWork {
		best, to := -1, (*load)(nil)
		for i, st := range s.stripes {
			if s.owners[i] != from {
				continue
			}
			l := s.taker(st, from)
			if !s.fits(l, st) || l.work+st.Work+gap >= from.work || from.work <= mean+gap && l.work >= mean/2 {
				continue
			}
			if best < 0 || s.compare(i, l, best, to) <= 0 {
				best, to = i, l
			}
		}
		if best >= 0 {
			s.own(best, to)
			return true
		}
	}
	return false
}

// compare orders two moves from one loader: by the work of the busier of the two loaders after it; then the source goes
// first of which the loader has most, so that the loaders of a source stay many.
func (s *shares) compare(a int, toA *load, b int, toB *load) int {
	from, x, y := s.owners[a], s.stripes[a], s.stripes[b]
	return cmp.Or(
		cmp.Compare(max(from.work-x.Work, toA.work+x.Work), max(from.work-y.Work, toB.work+y.Work)),
		cmp.Compare(from.stripes[y.Source]-toB.stripes[y.Source], from.stripes[x.Source]-toA.stripes[x.Source]),
	)
}
