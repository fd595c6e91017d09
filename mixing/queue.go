package mixing

import "math/bits"

// few is the number of sources that Next compares one by one. It keeps more sources in a queue.
const few = 8

// queue orders many sources by their turns, so that Next looks at those alone whose turn has changed. While shares,
// theta and the centre stay, the time at which a source is due does not depend on the charges placed meanwhile. Neither
// does the time from which on it is eligible. So an entry holds until its source is charged or gets another size.
//
// The zero queue holds nothing; Next fills it.
type queue struct {
	due     heap     // eligible sources, by the time at which they are due
	later   heap     // the others with a share and a segment, by the time from which on they are eligible
	tickets []uint32 // by source: the ticket of its entry, any other entry is void; 0: the source is in touched
	touched []uint32 // sources that have been charged or have another size
	issued  uint32   // tickets
	filled  bool
}

// clear forgets all entries.
func (q *queue) clear() { q.filled = false }

// touch observes that a source has been charged or has another size.
func (q *queue) touch(source int) {
	if q.filled && q.tickets[source] != 0 {
		q.tickets[source] = 0
		q.touched = append(q.touched, uint32(source))
	}
}

// beginsVoid reports whether the first entry of a heap is void.
func (q *queue) beginsVoid(h heap) bool { return len(h) > 0 && h[0].ticket != q.tickets[h[0].source] }

// put adds an entry to a heap, in the place of the first one if that is void.
func (q *queue) put(h *heap, e entry) {
	replaces := q.beginsVoid(*h)
	q.issued++
	q.tickets[e.source], e.ticket = q.issued, q.issued
	if replaces {
		h.sink(e)
	} else {
		h.push(e)
	}
}

// drop removes the void entries with which a heap begins.
func (q *queue) drop(h *heap) {
	for q.beginsVoid(*h) {
		h.pop()
	}
}

// queued returns the source that is drawn first of all, -1 if none can be drawn.
func (a *Apportioner) queued() int {
	q := &a.queue
	// A void entry stays until it is the first of its heap, and a ticket has 32 bits: a queue is filled anew in time.
	if !q.filled || len(q.due)+len(q.later) > 2*len(a.accounts)+few || q.issued > 1<<31 {
		a.fillQueue()
	}
	q.drop(&q.later)
	for len(q.later) > 0 && q.later[0].whole <= a.since {
		q.put(&q.due, a.dueEntry(int(q.later[0].source)))
		a.requeue(1) // mostly the source drawn last, whose entry takes the place of the one that is now void
		q.drop(&q.later)
	}
	a.requeue(len(q.touched))
	if q.drop(&q.due); len(q.due) > 0 {
		return int(q.due[0].source)
	}
	return a.firstAhead()
}

// fillQueue makes the entries of all sources.
func (a *Apportioner) fillQueue() {
	q := &a.queue
	q.filled, q.issued = true, 0
	q.due, q.later, q.touched = q.due[:0], q.later[:0], q.touched[:0]
	if q.tickets == nil {
		q.tickets = make([]uint32, len(a.accounts))
	}
	for i := range a.accounts {
		a.enqueue(i)
	}
}

// requeue makes the entries of up to n touched sources.
func (a *Apportioner) requeue(n int) {
	q := &a.queue
	for ; n > 0 && len(q.touched) > 0; n-- {
		newest := len(q.touched) - 1
		source := q.touched[newest]
		q.touched = q.touched[:newest]
		a.enqueue(int(source))
	}
}

// enqueue makes the entry of a source, if it has a share and a segment.
func (a *Apportioner) enqueue(i int) {
	q, account := &a.queue, &a.accounts[i]
	if account.size < 0 || account.share == 0 {
		q.issued++
		q.tickets[i] = q.issued
		return
	}
	deficit := account.base + account.share*a.since - a.centre
	short := (a.theta-account.share)*account.size - deficit
	if account.size == 0 || short <= 0 {
		q.put(&q.due, a.dueEntry(i))
		return
	}
	at := a.since + (short+account.share-1)/account.share
	q.put(&q.later, entry{whole: at, source: uint32(i)})
}

// dueEntry returns the entry of a source in the heap due. Segments that cost nothing come before all others.
func (a *Apportioner) dueEntry(i int) entry {
	account := &a.accounts[i]
	if account.size == 0 {
		return entry{whole: -1 << 63, source: uint32(i)}
	}
	deficit := account.base + account.share*a.since - a.centre
	whole, rest := floorDiv(account.size*(One-a.theta)-deficit, account.share)
	part, _ := bits.Div64(uint64(rest)>>(64-partBits), uint64(rest)<<partBits, uint64(account.share))
	return entry{whole: a.since + whole, part: part, source: uint32(i)}
}

// partBits is the precision of a time below the unit of charges. Two fractions with denominators below 2^30 differ by
// more than 2^-60, so rounded down to 60 bits they keep their order, and equal times are equal fractions.
const partBits = 2 * shareBits

// entry is a source in a heap. Times are counted in charges placed since the accounts were last folded.
type entry struct {
	whole  int64
	part   uint64 // in parts of 2^partBits
	source uint32
	ticket uint32
}

// before returns 1 if e comes before o, else 0: the earlier one, or of equal times the smaller index. It has no branch,
// because half of the branches would be mispredicted.
func (e *entry) before(o *entry) int {
	const sign = 1 << 63
	_, borrow := bits.Sub64(uint64(e.source), uint64(o.source), 0)
	_, borrow = bits.Sub64(e.part, o.part, borrow)
	_, borrow = bits.Sub64(uint64(e.whole)^sign, uint64(o.whole)^sign, borrow)
	return int(borrow)
}

// heap is a heap of entries, first one first. Each entry has up to four children.
type heap []entry

func (h *heap) push(e entry) {
	*h = append(*h, e)
	old := *h
	i := len(old) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if e.before(&old[parent]) == 0 {
			break
		}
		old[i] = old[parent]
		i = parent
	}
	old[i] = e
}

// pop removes the first entry.
func (h *heap) pop() {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	if last > 0 {
		h.sink(e)
	}
}

// sink puts an entry in the place of the first one and moves it down.
func (h heap) sink(e entry) {
	i := 0
	for child := 1; child < len(h); child = 4*i + 1 {
		if child+4 <= len(h) {
			c := (*[4]entry)(h[child:])
			low, high := c[1].before(&c[0]), 2+c[3].before(&c[2])
			child += low + (high-low)*c[high&3].before(&c[low&3])
		} else {
			for other := child + 1; other < len(h); other++ {
				child += (other - child) * h[other].before(&h[child])
			}
		}
		if h[child].before(&e) == 0 {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = e
}
