// Package order sorts indices by sizes and costs, largest first. Best-fit-decreasing and LPT begin with it.
package order

import (
	"cmp"
	"slices"
)

// Descending returns the indices of loads, largest first, equals in index order. Long lists are sorted byte by byte,
// from the lowest byte in which they differ to the highest. That is several times as fast as a sort by comparisons.
func Descending[T uint32 | uint64](loads []T) []uint32 {
	const many = 256
	order := make([]uint32, len(loads))
	for i := range order {
		order[i] = uint32(i)
	}
	if len(loads) < many {
		slices.SortFunc(order,
			func(a, b uint32) int { return cmp.Or(cmp.Compare(loads[b], loads[a]), cmp.Compare(a, b)) })
		return order
	}
	most, sorted := slices.Max(loads), make([]uint32, len(loads))
	for shift, span := 0, most-slices.Min(loads); span>>shift > 0; shift += 8 {
		var at [1<<8 + 1]uint32
		for _, l := range loads {
			at[int(byte((most-l)>>shift))+1]++
		}
		for digit := range 1 << 8 {
			at[digit+1] += at[digit]
		}
		for _, i := range order {
			digit := byte((most - loads[i]) >> shift)
			sorted[at[digit]] = i
			at[digit]++
		}
		order, sorted = sorted, order
	}
	return order
}

// Counted returns the indices of sizes (each at most max), largest first, equals in index order. It counts the sizes,
// unless they are too few for that. order and count (max+2 long) are reused.
func Counted(sizes []uint32, max uint32, order, count []uint32) []uint32 {
	if int(max)/8 > len(sizes) {
		return Descending(sizes)
	}
	clear(count)
	for _, u := range sizes {
		count[max-u+1]++
	}
	for u := range max + 1 {
		count[u+1] += count[u]
	}
	if cap(order) < len(sizes) {
		order = make([]uint32, len(sizes), len(sizes)+len(sizes)/4)
	}
	order = order[:len(sizes)]
	for i, u := range sizes {
		at := &count[max-u]
		order[*at] = uint32(i)
		*at++
	}
	return order
}
