package pack

import "math/bits"

const (
	mostCandidates = 128     // segments from which one bin is completed
	mostGranules   = 1 << 15 // of a room, if sums of lengths are computed
)

// subsets finds, among a few segments, those whose lengths add up to a sum as closely as possible from below. After
// each segment it keeps the set of all sums so far, one bit a sum. If the sum is more than mostGranules, it counts
// in granules of several units and rounds lengths up, so a result never exceeds the sum. It keeps its memory from one
// call to the next.
type subsets struct {
	granule uint32   // units
	sums    []uint64 // a set of sums for no segment, for the first one, and so on
	used    []uint32 // the segments of these sets but the first
	picked  []uint32
}

// reset prepares for rooms up to a capacity.
func (s *subsets) reset(capacity uint32) {
	if words := int(min(capacity, mostGranules))/64 + 1; len(s.sums) < words*(mostCandidates+1) {
		s.sums = make([]uint64, words*(mostCandidates+1))
	}
}

// of returns the segments among at most mostCandidates whose units add up to at most room, and to more than the units
// of other choices. Of equally good choices it takes the earliest candidates. The result is valid until the next call.
func (s *subsets) of(room uint32, candidates, units []uint32) (picked []uint32) {
	s.granule = (room + mostGranules - 1) / mostGranules
	room /= s.granule
	words := int(room)/64 + 1
	set := s.sums[:words]
	clear(set)
	set[0] = 1
	s.used, s.picked = s.used[:0], s.picked[:0]
	for _, i := range candidates {
		size := s.size(units[i])
		if size > room {
			continue
		}
		s.used = append(s.used, i)
		next := s.sums[len(s.used)*words:][:words]
		addShifted(next, set, size)
		set = next
		if set[room>>6]>>(room&63)&1 == 1 {
			break
		}
	}
	sum := highest(set, room)
	for k := len(s.used); sum > 0; k-- {
		if before := s.sums[(k-1)*words:]; before[sum>>6]>>(sum&63)&1 == 0 {
			s.picked = append(s.picked, s.used[k-1])
			sum -= s.size(units[s.used[k-1]])
		}
	}
	return s.picked
}

// size returns the number of granules that hold the units.
func (s *subsets) size(units uint32) uint32 { return (units + s.granule - 1) / s.granule }

// addShifted sets out to the numbers of a set, and the same numbers plus by, as far as they have room.
func addShifted(out, set []uint64, by uint32) {
	from, shift := int(by>>6), by&63
	copy(out[:from], set)
	if shift == 0 {
		for w := from; w < len(out); w++ {
			out[w] = set[w] | set[w-from]
		}
		return
	}
	carry := uint64(0)
	for w := from; w < len(out); w++ {
		low := set[w-from]
		out[w] = set[w] | low<<shift | carry
		carry = low >> (64 - shift)
	}
}

// highest returns the largest number of a set that is at most `most`, which is in the set's last word. The set
// has 0.
func highest(set []uint64, most uint32) uint32 {
	w := len(set) - 1
	word := set[w] & (^uint64(0) >> (63 - most&63))
	for word == 0 {
		w--
		word = set[w]
	}
	return uint32(w*64 + bits.Len64(word) - 1)
}
