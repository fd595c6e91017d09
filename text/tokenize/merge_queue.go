package tokenize

import "millrace/text/tokenize/internal/least"

// mergeQueue merges a piece in O(n log n). Candidates wait in a heap by rank and position. A candidate is void if its
// parts have changed: they merge into another token now, or into none.
type mergeQueue struct {
	tokens []uint32 // by the part's first byte; noToken inside a part
	next   []int32
	prev   []int32
	heap   least.Heap // rank above the position of the left part
}

// merge appends the tokens of a piece to dst.
func (q *mergeQueue) merge(dst []uint32, table *mergeTable, piece []byte, stride *stride) []uint32 {
	q.start(table, piece)
	n := int32(len(piece))
	for len(q.heap) > 0 {
		stride.went(1)
		key := q.heap.Pop()
		rank, i := uint32(key>>32), int32(uint32(key))
		if q.tokens[i] == noToken || q.next[i] == n || table.Find(q.tokens[i], q.tokens[q.next[i]]) != rank {
			continue
		}
		gone := q.next[i]
		after := q.next[gone]
		q.tokens[i], q.tokens[gone], q.next[i] = rank, noToken, after
		if after < n {
			q.prev[after] = i
			q.offer(i, table.Find(rank, q.tokens[after]))
		}
		if before := q.prev[i]; before >= 0 {
			q.offer(before, table.Find(q.tokens[before], rank))
		}
	}
	for i := int32(0); i < n; i = q.next[i] {
		dst = append(dst, q.tokens[i])
	}
	return dst
}

// start makes every byte a part and every mergeable pair of neighbours a candidate.
func (q *mergeQueue) start(table *mergeTable, piece []byte) {
	q.tokens, q.next, q.prev, q.heap = q.tokens[:0], q.next[:0], q.prev[:0], q.heap[:0]
	for i, b := range piece {
		q.tokens = append(q.tokens, table.bytes[b])
		q.next = append(q.next, int32(i+1))
		q.prev = append(q.prev, int32(i-1))
		if i+1 < len(piece) {
			q.offer(int32(i), table.starts[uint(b)|uint(piece[i+1])<<8])
		}
	}
}

// offer adds the candidate of the part at i, if it merges with the next one.
func (q *mergeQueue) offer(i int32, rank uint32) {
	if rank == noToken {
		return
	}
	q.heap.Push(uint64(rank)<<32 | uint64(i))
}
