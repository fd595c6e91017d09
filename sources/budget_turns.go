package sources

import "runtime"

// How many packs that no Fetch waits for are made at a time in the whole process, however many feeds it has: what is waited for must not
// stand in line behind what nobody has asked for. Reads that wait for a disk want company, and so there are more of them than processors.
const (
	makingsBehind = 1 // while something is waited for
	makingsEach   = 4 // for each processor, else
)

// turns shares out makings among the feeds of a budget, first come, first served. The budget's mutex guards it.
type turns struct {
	making  int
	urgent  int // Hurries without their Calm
	waiting []*account
}

// turn is one feed's part of turns.
type turn struct {
	making int
	queued bool // it is among those that wait
	called bool // it was told to ask again, and has not
}

func (t *turns) free() int {
	if t.urgent > 0 {
		return makingsBehind - t.making
	}
	return makingsEach*runtime.GOMAXPROCS(0) - t.making
}

// leave takes a feed out that ends.
func (t *turns) leave(a *account) {
	t.making -= a.making
	a.turn = turn{}
	for i, other := range t.waiting {
		if other == a {
			t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
			return
		}
	}
}

// begin asks for a making. A feed that is refused is called when it is its turn.
func (a *account) begin() bool {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	a.called = false
	if b.free() <= 0 {
		if !a.queued {
			a.queued, b.waiting = true, append(b.waiting, a)
		}
		return false
	}
	b.making++
	a.turn.making++
	return true
}

// end gives a making back. No lock of any feed may be held.
func (a *account) end() {
	b := a.budget
	b.mu.Lock()
	b.making--
	a.turn.making--
	b.mu.Unlock()
	b.callNext()
}

// decline reports whether the feed was called and had nothing to make: then it is another's turn.
func (a *account) decline() bool {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	was := a.called
	a.called = false
	return was
}

// callNext calls as many feeds as may make something. No lock of any feed may be held.
func (b *Budget) callNext() {
	b.mu.Lock()
	var wakes []func()
	for n := b.free(); n > 0 && len(b.waiting) > 0; n-- {
		a := b.waiting[0]
		b.waiting = b.waiting[1:]
		a.queued, a.called = false, true
		wakes = append(wakes, a.wake)
	}
	b.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// Hurry says that something is waited for, a Fetch or a source that is being opened, until Calm.
func (b *Budget) Hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.urgent++
}

// Calm ends a Hurry. No lock of any feed may be held.
func (b *Budget) Calm() {
	b.mu.Lock()
	b.urgent--
	b.mu.Unlock()
	b.callNext()
}
