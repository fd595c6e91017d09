package follow

import (
	"context"
	"slices"
	"sync"
	"time"

	"millrace/checkpoint"
	"millrace/internal/seam"
	"millrace/orchestrator/lease"
)

// Times of the leader. A listed follower that does not acknowledge within patience is removed from the list, and after
// a lag already if another listed one has acknowledged: two copies are left then. It comes back after a pause at the
// earliest, so a slow one delays few steps. A follower that is nearly in step is awaited for a moment before it is
// listed.
const (
	patience  = time.Second
	lag       = 250 * time.Millisecond // behind another follower
	pause     = 10 * time.Second
	nearly    = 64 // batches
	forMoment = 100 * time.Millisecond
)

// Leader ships the journal of one stream of the process that has the lease. One goroutine, which alone writes to the
// store, calls Begin, Settle and Admit.
type Leader struct {
	store  *checkpoint.Store
	keeper lease.Keeper
	host   string
	clock  seam.Clock
	places *Places

	mu        *sync.Mutex // of places
	followers []*follower
	listed    []inStep      // the leader's own is the first
	changed   chan struct{} // closed when a follower acknowledges, comes or goes
}

// NewLeader returns the leader of a stream with its open store. host names this host for people. The leaders of all
// streams of the process have the same places.
func NewLeader(store *checkpoint.Store, keeper lease.Keeper, host string, clock seam.Clock, places *Places) *Leader {
	l := &Leader{store: store, keeper: keeper, host: host, clock: clock, places: places, mu: &places.mu,
		changed: make(chan struct{})}
	places.add(l)
	return l
}

// inStep is a listed copy, with the process that has it.
type inStep struct {
	lease.Journal
	identity string
}

// follower is one stream of a follower, as the leader knows it. Leader.mu guards it.
type follower struct {
	host, identity string
	cut            context.CancelFunc // ends the stream
	served         chan struct{}      // closed when it has a place
	hasPlace       bool
	queue          *queue

	journal  string // name of its copy; empty until the copy is whole
	sent     uint64 // number of the newest batch that was sent
	acked    uint64 // number of the newest batch that it has
	earliest time.Time
}

// Begin lists the leader's journal alone: no other copy is known to have all of it.
func (l *Leader) Begin(ctx context.Context) error { return l.list(ctx, nil) }

// Settle returns when every listed copy has everything that is in the store. It first removes from the list a follower
// that is gone or does not answer.
func (l *Leader) Settle(ctx context.Context) error {
	number := l.store.Number()
	late := l.clock.After(patience)
	var lags <-chan time.Time // from the first acknowledgement on
	for isLate, hasLagged := false, false; ; {
		behind, gone, changed := l.behind(number)
		isCopied := len(behind) < len(l.others()) // a listed follower has everything
		switch {
		case len(behind) == 0:
			return nil
		case isLate || hasLagged && isCopied:
			gone = behind
		case isCopied && lags == nil:
			lags = l.clock.After(lag)
		}
		if len(gone) > 0 {
			if err := l.remove(ctx, gone); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			isLate = true
		case <-lags:
			hasLagged = true
		case <-changed:
		}
	}
}

// behind returns the names of the listed copies that lack a batch, and those of them whose followers are gone. The
// channel closes at the next change.
func (l *Leader) behind(number uint64) (behind, gone []string, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range l.listed[1:] {
		i := slices.IndexFunc(l.followers, func(f *follower) bool { return f.journal == j.ID })
		if i < 0 {
			gone = append(gone, j.ID)
		}
		if i < 0 || l.followers[i].acked < number {
			behind = append(behind, j.ID)
		}
	}
	return behind, gone, l.changed
}

// remove removes copies from the list.
func (l *Leader) remove(ctx context.Context, journals []string) error {
	isRemoved := func(id string) bool { return slices.Contains(journals, id) }
	l.mu.Lock()
	var kept []inStep
	for _, j := range l.listed[1:] {
		if !isRemoved(j.ID) {
			kept = append(kept, j)
		}
	}
	for _, f := range l.followers {
		if isRemoved(f.journal) {
			f.earliest = l.clock.Now().Add(pause)
		}
	}
	l.mu.Unlock()
	return l.list(ctx, kept)
}

// Admit lists the copies that are in step and not listed. The caller writes nothing to the store meanwhile.
func (l *Leader) Admit(ctx context.Context) error {
	number := l.store.Number()
	moment := l.clock.After(forMoment)
	for {
		in, near, changed := l.arrived(number)
		if len(in) > 0 {
			return l.list(ctx, append(l.others(), in...))
		}
		if !near {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moment:
			return nil
		case <-changed:
		}
	}
}

// arrived returns the copies that are not listed and have everything up to a batch. near reports whether another one
// nearly has.
func (l *Leader) arrived(number uint64) (in []inStep, near bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.followers {
		isListed := slices.ContainsFunc(l.listed, func(j inStep) bool { return j.ID == f.journal })
		switch {
		case f.journal == "" || isListed || l.clock.Now().Before(f.earliest):
		case f.acked >= number:
			in = append(in, inStep{lease.Journal{ID: f.journal, Host: f.host}, f.identity})
		case f.acked+nearly >= number:
			near = true
		}
	}
	return in, near, l.changed
}

// others returns the listed copies beside the leader's.
func (l *Leader) others() []inStep {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.listed[1:])
}

// list lists the leader's journal and others.
func (l *Leader) list(ctx context.Context, others []inStep) error {
	all := append([]inStep{{Journal: lease.Journal{ID: l.store.ID(), Host: l.host}}}, others...)
	var journals []lease.Journal
	for _, j := range all {
		journals = append(journals, j.Journal)
	}
	if err := l.keeper.List(ctx, journals); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listed = all
	return nil
}

// change wakes the waiting goroutines because a follower has changed. The caller holds mu.
func (l *Leader) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// join adds a follower. It takes the place of an earlier stream of the same process.
func (l *Leader) join(f *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.followers {
		if g.identity == f.identity {
			g.cut()
		}
	}
	l.followers = slices.DeleteFunc(l.followers, func(g *follower) bool { return g.identity == f.identity })
	l.followers = append(l.followers, f)
	l.places.join(f.identity)
}

// leave removes a follower.
func (l *Leader) leave(f *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.followers = slices.DeleteFunc(l.followers, func(g *follower) bool { return g == f })
	l.places.leave(f.identity)
}

// has reports whether a process has a stream to this leader. The caller holds mu.
func (l *Leader) has(identity string) bool {
	return slices.ContainsFunc(l.followers, func(f *follower) bool { return f.identity == identity })
}

// lists reports whether the copy of a process is listed. The caller holds mu.
func (l *Leader) lists(identity string) bool {
	return slices.ContainsFunc(l.listed, func(j inStep) bool { return j.identity == identity })
}
