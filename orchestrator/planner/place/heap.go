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
