// Package keeper carries the goals of an orchestrator to an engine, and repeats the newest one until the engine has
// accepted it. The orchestrator never waits for an engine.
package keeper

import (
	"context"
	"sync"
	"time"

	"millrace/internal/seam"
	"millrace/orchestrator/placer"
)

const (
	answerWithin = 30 * time.Second // bound of a request to the engine
	firstPause   = time.Second      // after a request that failed; doubles each time
	mostPause    = 30 * time.Second
)

// News is a report of a keeper about its engine. One of its fields is set.
type News struct {
	Exist []placer.Instance // the processes at the start; nil in later news
	Err   error             // why the engine does not take the newest goal; nil: it has taken it
}

// Keeper carries goals to an engine. Its methods may be called from any goroutine.
type Keeper struct {
	placer placer.Placer
	clock  seam.Clock
	tell   func(context.Context, News)

	mu     sync.Mutex
	goal   *placer.Desired // nil: the engine has the newest one
	wanted chan struct{}   // holds one token after a new goal
}

// New returns the keeper of an engine. Run calls tell, which returns when its context ends.
func New(p placer.Placer, clock seam.Clock, tell func(context.Context, News)) *Keeper {
	return &Keeper{placer: p, clock: clock, tell: tell, wanted: make(chan struct{}, 1)}
}

// Want makes a goal the newest one. It does not block.
func (k *Keeper) Want(goal placer.Desired) {
	k.mu.Lock()
	k.goal = &goal
	k.mu.Unlock()
	select {
	case k.wanted <- struct{}{}:
	default:
	}
}

// Run reports which processes exist, and then carries out goals until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	pause := firstPause
	for !k.observe(ctx) {
		if pause = k.rest(ctx, pause); ctx.Err() != nil {
			return
		}
	}
	pause = firstPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wanted:
			pause = firstPause
		}
		for !k.apply(ctx) {
			if pause = k.rest(ctx, pause); ctx.Err() != nil {
				return
			}
		}
	}
}

// rest waits, also for a newer goal, and returns the next pause.
func (k *Keeper) rest(ctx context.Context, pause time.Duration) time.Duration {
	select {
	case <-ctx.Done():
	case <-k.clock.After(pause):
	}
	return min(2*pause, mostPause)
}

func (k *Keeper) observe(ctx context.Context) bool {
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	exist, err := k.placer.Observe(within)
	if err != nil {
		k.tellUnlessOver(ctx, News{Err: err})
		return false
	}
	k.tell(ctx, News{Exist: append([]placer.Instance{}, exist...)})
	return true
}

// apply carries the newest goal to the engine, and reports whether all is done.
func (k *Keeper) apply(ctx context.Context) bool {
	k.mu.Lock()
	goal := k.goal
	k.mu.Unlock()
	if goal == nil {
		return true
	}
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := k.placer.Apply(within, *goal); err != nil {
		k.tellUnlessOver(ctx, News{Err: err})
		return false
	}
	k.mu.Lock()
	if k.goal == goal {
		k.goal = nil
	}
	k.mu.Unlock()
	k.tell(ctx, News{})
	return true
}

func (k *Keeper) tellUnlessOver(ctx context.Context, n News) {
	if ctx.Err() == nil {
		k.tell(ctx, n)
	}
}
