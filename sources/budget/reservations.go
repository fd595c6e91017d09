package budget

import "runtime"

// The limits of reservations in the whole process, for any number of feeds. They keep a fetch from queueing behind
// read-ahead. Reads block on the disk, so there are more reservations than processors.
const (
	spansUrgent  = 1 // while a fetch waits
	spansPerCore = 4 // otherwise
)

// reservations hands out reservations first come, first served. The budget's lock guards it.
type reservations struct {
	held    int // by all feeds
	urgent  int // Hurry calls without their Calm
	waiting []*Quota
}

// reserved is one feed's part of reservations.
type reserved struct {
	held   int
	queued bool // the feed is in waiting
	called bool // the feed was woken to reserve, and has not reserved or declined yet
}

// free returns the number of reservations that are left.
func (r *reservations) free() int {
	if r.urgent > 0 {
		return spansUrgent - r.held
	}
	return spansPerCore*runtime.GOMAXPROCS(0) - r.held
}

// remove takes out a feed that ends.
func (r *reservations) remove(q *Quota) {
	r.held -= q.held
	q.reserved = reserved{}
	for i, other := range r.waiting {
		if other == q {
			r.waiting = append(r.waiting[:i], r.waiting[i+1:]...)
			return
		}
	}
}

// Reserve asks for a reservation. A refused feed queues up and is woken when it comes first and one is free.
func (q *Quota) Reserve() bool {
	b := q.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	q.called = false
	if b.free() <= 0 {
		if !q.queued {
			q.queued, b.waiting = true, append(b.waiting, q)
		}
		return false
	}
	b.held++
	q.held++
	return true
}

// Return gives a reservation back. The caller holds no lock that a wake takes.
func (q *Quota) Return() {
	b := q.budget
	b.mu.Lock()
	b.held--
	q.held--
	b.mu.Unlock()
	q.PassOn()
}

// Decline reports whether the feed was woken to reserve and has not reserved. If so, the caller calls PassOn.
func (q *Quota) Decline() bool {
	b := q.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	was := q.called
	q.called = false
	return was
}

// PassOn wakes as many queued feeds as there are free reservations. The caller holds no lock that a wake takes.
func (q *Quota) PassOn() { q.budget.passOn() }

func (b *Budget) passOn() {
	b.mu.Lock()
	var wakes []func()
	for n := b.free(); n > 0 && len(b.waiting) > 0; n-- {
		q := b.waiting[0]
		b.waiting = b.waiting[1:]
		q.queued, q.called = false, true
		wakes = append(wakes, q.wake)
	}
	b.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// Hurry announces that a fetch, or the opening of a source, waits. Until Calm, a reservation is granted only if no feed
// holds one.
func (b *Budget) Hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.urgent++
}

// Calm ends one Hurry. The caller holds no lock that a wake takes.
func (b *Budget) Calm() {
	b.mu.Lock()
	b.urgent--
	b.mu.Unlock()
	b.passOn()
}
