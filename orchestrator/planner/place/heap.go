package place

import "math/bits"

// slot is an entry of a heap. The least key is first; ties go by the smaller id.
type slot struct {
	key int64
	id  uint32
}

// before returns 1 if s comes before o, else 0. It has no branch, because half of the branches would be mispredicted.
func (s slot) before(o slot) (yes int) {
	const sign = 1 << 63
	_, borrow := bits.Sub64(uint64(s.id), uint64(o.id), 0)
	_, borrow = bits.Sub64(uint64(s.key)^sign, uint64(o.key)^sign, borrow)
	return int(borrow)
}

// heap is a binary heap of slots, least first.
type heap []slot

func (h *heap) push(s slot) {
	*h = append(*h, s)
	old := *h
	i := len(old) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if s.before(old[parent]) == 0 {
			break
		}
		old[i] = old[parent]
		i = parent
	}
	old[i] = s
}

func (h *heap) pop() slot {
	old := *h
	top, last := old[0], old[len(old)-1]
	*h = old[:len(old)-1]
	if len(*h) > 0 {
		(*h).sink(last)
	}
	return top
}

// replace puts s in the place of the first slot.
func (h heap) replace(s slot) { h.sink(s) }

// sink puts s in the place of the first slot and moves it down.
func (h heap) sink(s slot) {
	i := 0
	for child := 1; child < len(h); child = 2*i + 1 {
		if child+1 < len(h) {
			child += h[child+1].before(h[child])
		}
		if h[child].before(s) == 0 {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = s
}

// newHeap returns a heap of ids 0 … n-1, all with key 0.
func newHeap(n int) heap {
	h := make(heap, n)
	for i := range h {
		h[i].id = uint32(i)
	}
	return h
}

// spread assigns items, given by descending cost, to groups of at most most items each: always to the least loaded
// group with room (LPT). It returns the group of each item. groups × most must hold all items.
func spread(costs []uint64, groups, most int) []uint32 {
	group := make([]uint32, len(costs))
	count := make([]int, groups)
	h := newHeap(groups)
	for i, c := range costs {
		top := h[0]
		group[i] = top.id
		if count[top.id]++; count[top.id] == most {
			h.pop()
			continue
		}
		h.replace(slot{top.key + int64(c), top.id})
	}
	return group
}

// race knows the least of the slots of many ids while their keys change. It is a binary tree in which each node has the
// least slot below it. The nodes above a leaf are known before their slots are, so the processor reads them at the same
// time. In a heap, each step waits for the comparison before it.
type race []slot

// out is the key of an id that takes no part. It comes after all others.
const out = 1<<63 - 1

// newRace returns a race of ids 0 … n-1 with these keys.
func newRace(n int, key func(id uint32) int64) race {
	leaves := 1
	for leaves < n {
		leaves *= 2
	}
	r := make(race, 2*leaves)
	for i := range leaves {
		r[leaves+i] = slot{out, uint32(i)}
		if i < n {
			r[leaves+i].key = key(uint32(i))
		}
	}
	for i := leaves - 1; i > 0; i-- {
		r[i] = r[2*i+r[2*i+1].before(r[2*i])]
	}
	return r
}

// first returns the least slot. Its key is out if no id takes part.
func (r race) first() slot { return r[1] }

// set gives an id another key.
func (r race) set(id uint32, key int64) {
	s := slot{key, id}
	i := len(r)/2 + int(id)
	r[i] = s
	for ; i > 1; i /= 2 {
		other := r[i^1]
		take := -int64(other.before(s)) // all ones: the other one is first
		s.key ^= (s.key ^ other.key) & take
		s.id ^= (s.id ^ other.id) & uint32(take)
		r[i/2] = s
	}
}
