package budget

import "sync"

// Budget counts the bytes in the feeds of one process: tokens, and raw text of blocks. It is safe for concurrent use.
//
// Invariants: (1) a feed can always hold the span that a fetch waits for (Force); (2) of several feeds, only those
// below an equal share use the last quarter of the limit, so a feed that reads far ahead does not starve another;
// (3) spare memory never makes the budget refuse: it is freed first.
type Budget struct {
	limit int64

	mu     sync.Mutex
	used   int64
	quotas map[*Quota]struct{}
	spare  Spare // nil: none
}

// Spare is memory that its owner can free at any time. It takes only the room that the feeds leave.
type Spare interface {
	// Shrink frees memory until at most `bytes` bytes are left. The budget calls it under its lock.
	Shrink(bytes int64)
}

// Default is the limit in bytes of a budget that is not configured.
const Default = 256 << 20

// New returns a budget of limit bytes.
func New(limit int64) *Budget {
	return &Budget{limit: limit, quotas: make(map[*Quota]struct{})}
}

// SetSpare gives the budget the spare memory of the process. It is called once, before the first feed.
func (b *Budget) SetSpare(s Spare) { b.spare = s }

// Limit returns the limit in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Free returns the bytes that the feeds leave.
func (b *Budget) Free() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.limit-b.used, 0)
}

// Quota is one feed's part of a budget. It is safe for concurrent use.
type Quota struct {
	budget *Budget
	used   int64
	short  bool   // Take was refused since the last WakeShort
	wake   func() // lets the feed try again; called without the budget's lock
}

// Open adds a feed. wake is called without any lock of the budget, from calls of other feeds.
func (b *Budget) Open(wake func()) *Quota {
	q := &Quota{budget: b, wake: wake}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quotas[q] = struct{}{}
	return q
}

// Close gives back the feed's bytes, and removes the feed. The caller holds no lock that a wake takes.
func (q *Quota) Close() {
	b := q.budget
	b.mu.Lock()
	b.used -= q.used
	q.used = 0
	delete(b.quotas, q)
	b.mu.Unlock()
	q.WakeShort()
}

// Share returns an equal share of the limit in bytes.
func (q *Quota) Share() int64 {
	b := q.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit / int64(max(len(b.quotas), 1))
}

// Take charges n bytes if there is room. A refused feed is woken by the next WakeShort.
func (q *Quota) Take(n int64) bool {
	b := q.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.limit
	if len(b.quotas) > 1 && q.used+n > b.limit/int64(len(b.quotas)) {
		limit -= limit / 4
	}
	if b.used+n > limit {
		q.short = true
		return false
	}
	q.charge(n)
	return true
}

// Force charges n bytes whether there is room or not; a negative n gives back.
func (q *Quota) Force(n int64) {
	q.budget.mu.Lock()
	defer q.budget.mu.Unlock()
	q.charge(n)
}

// charge adds n bytes; the lock is held.
func (q *Quota) charge(n int64) {
	b := q.budget
	q.used += n
	b.used += n
	if n > 0 && b.spare != nil {
		b.spare.Shrink(max(b.limit-b.used, 0))
	}
}

// WakeShort wakes the feeds that Take refused. The caller holds no lock that a wake takes.
func (q *Quota) WakeShort() {
	b := q.budget
	b.mu.Lock()
	var wakes []func()
	for other := range b.quotas {
		if other.short {
			other.short = false
			wakes = append(wakes, other.wake)
		}
	}
	b.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}
