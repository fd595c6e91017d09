package sources

import "sync"

// Budget counts the bytes that the feeds of one process hold: tokens, and raw text of blocks being tokenised. It never blocks: who
// is refused asks again once woken.
//
// Invariants: (1) a feed can always hold the one thing its head needs (force); (2) the last quarter of the limit is only for feeds
// below an equal share, so that no feed is starved by one that reads further ahead.
type Budget struct {
	limit int64

	mu    sync.Mutex
	used  int64
	peak  int64
	feeds map[*account]struct{}

	turns // of makings
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget {
	return &Budget{limit: limit, feeds: make(map[*account]struct{})}
}

// Used returns the bytes held now and the most ever held.
func (b *Budget) Used() (now, peak int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.peak
}

// account is one feed's part of a budget.
type account struct {
	budget *Budget
	used   int64
	short  bool   // it was refused room
	wake   func() // tells the feed to look again; called without any lock held

	turn // its makings
}

// open adds a feed. wake must not call back into the budget.
func (b *Budget) open(wake func()) *account {
	a := &account{budget: b, wake: wake}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.feeds[a] = struct{}{}
	return a
}

// close gives everything back.
func (a *account) close() {
	b := a.budget
	b.mu.Lock()
	b.used -= a.used
	a.used = 0
	b.leave(a)
	delete(b.feeds, a)
	b.mu.Unlock()
	b.wakeShort()
	b.callNext()
}

// share returns the bytes that are this feed's in any case.
func (a *account) share() int64 {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit / int64(max(len(b.feeds), 1))
}

// take charges n bytes if there is room.
func (a *account) take(n int64) bool {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.limit
	if len(b.feeds) > 1 && a.used+n > b.limit/int64(len(b.feeds)) {
		limit -= limit / 4
	}
	if b.used+n > limit {
		a.short = true
		return false
	}
	a.charge(n)
	return true
}

// force charges n bytes whether there is room or not; a negative n gives back.
func (a *account) force(n int64) {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.charge(n)
}

func (a *account) charge(n int64) {
	a.used += n
	a.budget.used += n
	a.budget.peak = max(a.budget.peak, a.budget.used)
}

// wakeShort tells the feeds that were refused room that there is some. No lock of any feed may be held.
func (b *Budget) wakeShort() {
	b.mu.Lock()
	var wakes []func()
	for a := range b.feeds {
		if a.short {
			a.short = false
			wakes = append(wakes, a.wake)
		}
	}
	b.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}
