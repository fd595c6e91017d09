// Package least has a heap of numbers, for candidates of merges: a rank above a position.
package least

// Heap is a binary heap: its least number comes first.
type Heap []uint64

// Push adds a number.
func (h *Heap) Push(key uint64) {
	*h = append(*h, key)
	all := *h
	for at := len(all) - 1; at > 0; {
		parent := (at - 1) / 2
		if all[parent] <= all[at] {
			return
		}
		all[parent], all[at] = all[at], all[parent]
		at = parent
	}
}

// Pop removes the least number and returns it. The heap is not empty.
func (h *Heap) Pop() uint64 {
	all := *h
	last := len(all) - 1
	least := all[0]
	all[0] = all[last]
	*h = all[:last]
	all = *h
	for at := 0; ; {
		child := 2*at + 1
		if child >= last {
			return least
		}
		if child+1 < last && all[child+1] < all[child] {
			child++
		}
		if all[at] <= all[child] {
			return least
		}
		all[at], all[child] = all[child], all[at]
		at = child
	}
}
