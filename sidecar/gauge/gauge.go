// Package gauge has the waits of a host's trainers, as the trainers measure them, and the steps that are ready for each
// rank. Nothing here decides content.
package gauge

import (
	"slices"
	"sync"
	"time"

	"millrace"
	"millrace/internal/activity"
	"millrace/internal/wire"
	"millrace/proto"
)

// longWait is the length from which on a wait is counted.
const longWait = time.Second

// Ranks has the figures of each rank of a host. The zero value is ready. It is safe for concurrent use; every method of
// a nil Ranks does nothing.
type Ranks struct {
	Now func() time.Time

	mu    sync.Mutex
	ranks map[millrace.Rank]*rank
}

type rank struct {
	first          time.Time     // of the first commit
	base           time.Duration // waited until then: the run began
	waited         time.Duration // since then
	waits          uint64
	longest        time.Duration
	current        time.Duration // of the wait that is under way; 0: none is
	heard          time.Time     // of current
	isLong         bool          // current was counted
	cause          activity.Cause
	consumed, here millrace.Step
}

func (r *Ranks) of(of millrace.Rank) *rank {
	if r.ranks == nil {
		r.ranks = map[millrace.Rank]*rank{}
	}
	k := r.ranks[of]
	if k == nil {
		k = &rank{}
		r.ranks[of] = k
	}
	return k
}

// Committed notes that a trainer has consumed the steps below one, and how long it has waited in all.
func (r *Ranks) Committed(of millrace.Rank, below millrace.Step, waited time.Duration) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.of(of)
	if k.consumed = below; k.first.IsZero() || waited < k.base+k.waited { // the first, or of another trainer
		k.first, k.base = r.Now(), waited
	}
	k.waited, k.current, k.isLong, k.cause = waited-k.base, 0, false, activity.Cause{}
}

// Waits notes that a trainer waits: how long in all, with the wait that is under way, and why.
func (r *Ranks) Waits(of millrace.Rank, waited, current time.Duration, cause activity.Cause) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.of(of)
	k.isLong = k.isLong && current > k.current // else a new wait
	k.current, k.heard, k.cause = current, r.Now(), cause
	if k.first.IsZero() {
		return
	}
	if current >= longWait && !k.isLong {
		k.waits, k.isLong = k.waits+1, true
	}
	k.waited, k.longest = max(waited-k.base, k.waited), max(k.longest, current)
}

// Delivered notes that a batch was sent to a trainer, so that it does not wait.
func (r *Ranks) Delivered(of millrace.Rank) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.of(of)
	k.current, k.isLong, k.cause = 0, false, activity.Cause{}
}

// Ready notes that the tokens of the steps below one are here for a rank.
func (r *Ranks) Ready(of millrace.Rank, below millrace.Step) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(of).here = below
}

// Left notes that a trainer is gone.
func (r *Ranks) Left(of millrace.Rank) { r.Delivered(of) }

// Figures returns the figures of all ranks, by rank.
func (r *Ranks) Figures() (out []*proto.RankFigures) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	for of, k := range r.ranks {
		f := &proto.RankFigures{Rank: uint32(of), Waited: k.waited.Seconds(), Waits: k.waits,
			Longest: k.longest.Seconds(), Buffered: uint32(max(int64(k.here)-int64(k.consumed), 0))}
		if !k.first.IsZero() {
			f.Connected = now.Sub(k.first).Seconds()
		}
		if k.current > 0 {
			f.Waiting, f.WaitingFor = wire.CauseToProto(k.cause), (k.current + now.Sub(k.heard)).Seconds()
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *proto.RankFigures) int { return int(a.Rank) - int(b.Rank) })
	return out
}
