// Package leasetest is the contract of every lease, as tests.
package leasetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"millrace"
	"millrace/orchestrator/lease"
)

// Process is one process of a run that wants the run's lease.
type Process struct {
	Leaser lease.Leaser
	// Journal seals plans in the journal of the process, as a holder does before it commits them.
	Journal func(plans ...lease.Plan)
	// Depose takes the lease from the process, which is not asked.
	Depose func()
	// Exit ends the process after its lease has ended.
	Exit func()
	// Has names the journal of the process; nil: the lease keeps no list of journals.
	Has func(journal string)
}

// Run starts a process of one run each time that it is called.
type Run func() *Process

const (
	shortly  = 300 * time.Millisecond // a candidate that must not succeed waits so long
	patience = 20 * time.Second
)

// Contract tests the promises of a lease. newRun makes an empty run. Candidates of a run may wait for each other.
func Contract(t *testing.T, newRun func(t *testing.T) Run) {
	for name, test := range map[string]func(*contract){
		"terms grow":                 (*contract).termsGrow,
		"one holder at a time":       (*contract).oneHolder,
		"candidates take turns":      (*contract).turns,
		"a step keeps its digests":   (*contract).digests,
		"a later holder sees them":   (*contract).laterHolder,
		"a released lease is over":   (*contract).released,
		"a lost lease is over":       (*contract).deposed,
		"a lease ends with its user": (*contract).ends,
		"a journal must be listed":   (*contract).listed,
	} {
		t.Run(name, func(t *testing.T) { test(&contract{T: t, start: newRun(t)}) })
	}
}

// contract is one test of a fresh run.
type contract struct {
	*testing.T
	start   Run
	mu      sync.Mutex
	highest millrace.Term // of all grants, as journals have it
}

// grant is a lease and its context.
type grant struct {
	lease.Lease
	ctx context.Context
	c   *contract
}

// try waits for the lease until a time is over.
func (c *contract) try(p *Process, within time.Duration) (*grant, error) {
	ctx, cancel := context.WithCancel(c.Context())
	late := time.AfterFunc(within, cancel)
	c.mu.Lock()
	above := c.highest
	c.mu.Unlock()
	l, held, err := p.Leaser.Acquire(ctx, above)
	if err != nil {
		cancel()
		return nil, err
	}
	late.Stop()
	c.Cleanup(cancel)
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.Term() <= c.highest {
		c.Errorf("term %d is not above %d", l.Term(), c.highest)
	}
	c.highest = l.Term()
	return &grant{l, held, c}, nil
}

// acquire expects the lease.
func (c *contract) acquire(p *Process) *grant {
	c.Helper()
	g, err := c.try(p, patience)
	if err != nil {
		c.Fatalf("acquire: %v", err)
	}
	if err := g.ctx.Err(); err != nil {
		c.Fatalf("the context of a new lease has ended: %v", context.Cause(g.ctx))
	}
	return g
}

// commits expects the mark of a commit's error; nil: none.
func (g *grant) commits(mark error, plans ...lease.Plan) {
	g.c.Helper()
	if err := g.Commit(g.c.Context(), plans); !errors.Is(err, mark) {
		g.c.Fatalf("commit %v: %v, want %v", plans, err, mark)
	}
}

// isOver expects that the lease has ended, and that nothing can be committed under it.
func (g *grant) isOver() {
	g.c.Helper()
	g.commits(millrace.ErrFenced, plan(900, 1))
	g.commits(millrace.ErrFenced)
	if g.ctx.Err() == nil {
		g.c.Fatal("the context of the lease has not ended")
	}
	if why := context.Cause(g.ctx); !errors.Is(why, millrace.ErrFenced) {
		g.c.Fatalf("the context ended because of: %v", why)
	}
}

// leave ends a process that has the lease.
func (g *grant) leave(p *Process) {
	g.Release()
	p.Exit()
}

// plan is the plan of a step with some content.
func plan(step millrace.Step, content byte) lease.Plan {
	return lease.Plan{Attempt: 1, Step: step, Content: millrace.Digest{content}, Placement: millrace.Digest{content, 1}}
}

func (c *contract) termsGrow() {
	for range 3 {
		p := c.start()
		c.acquire(p).leave(p) // try compares the terms
	}
	p := c.start()
	c.highest += 1000
	if g, err := c.try(p, shortly); err == nil {
		g.leave(p)
	} else if !errors.Is(err, millrace.ErrMismatch) {
		c.Errorf("a journal whose term is higher than all grants: %v", err)
	}
}

func (c *contract) oneHolder() {
	first, second := c.start(), c.start()
	held := c.acquire(first)
	if g, err := c.try(second, shortly); err == nil {
		c.Fatalf("a second holder has term %d while term %d is held", g.Term(), held.Term())
	}
	got := make(chan error, 1)
	var next *grant
	go func() { // read below
		var err error
		next, err = c.try(second, patience)
		got <- err
	}()
	select {
	case err := <-got:
		c.Fatalf("a waiting candidate got an answer while the lease was held: %v", err)
	case <-time.After(shortly):
	}
	held.commits(nil)
	held.leave(first)
	if err := <-got; err != nil {
		c.Fatal(err)
	}
	next.commits(nil)
	held.isOver()
	next.leave(second)
}

func (c *contract) turns() {
	const candidates, rounds = 4, 3
	var wg sync.WaitGroup
	holders := make(chan struct{}, 1)
	for range candidates {
		p := c.start()
		wg.Go(func() {
			for range rounds {
				g, err := c.try(p, patience)
				if err != nil {
					c.Error(err)
					return
				}
				select {
				case holders <- struct{}{}:
				default:
					c.Error("two processes hold the lease")
				}
				if err := g.Commit(c.Context(), nil); err != nil {
					c.Error(err)
				}
				<-holders
				g.leave(p)
			}
		})
	}
	wg.Wait()
}

func (c *contract) digests() {
	p := c.start()
	g := c.acquire(p)
	p.Journal(plan(0, 1), plan(1, 2), plan(2, 3))
	g.commits(nil, plan(0, 1), plan(1, 2))
	g.commits(nil, plan(1, 2), plan(2, 3)) // once more
	g.commits(millrace.ErrMismatch, plan(1, 9))
	other := plan(2, 3)
	other.Placement[3]++
	g.commits(millrace.ErrMismatch, plan(0, 1), other)
	again := plan(1, 9) // another attempt is another plan
	again.Attempt = 2
	p.Journal(again)
	g.commits(nil, again, plan(1, 2))
	g.leave(p)
}

func (c *contract) laterHolder() {
	first := c.start()
	g := c.acquire(first)
	first.Journal(plan(0, 1), plan(1, 2))
	g.commits(nil, plan(0, 1), plan(1, 2))
	g.leave(first)
	second := c.start()
	g = c.acquire(second)
	g.commits(nil, plan(1, 2))
	g.commits(millrace.ErrMismatch, plan(0, 2))
	g.commits(nil) // a difference does not end the lease
	second.Journal(plan(2, 2))
	g.commits(nil, plan(2, 2))
	g.leave(second)
}

func (c *contract) released() {
	p := c.start()
	g := c.acquire(p)
	p.Journal(plan(0, 1))
	g.Release()
	g.isOver()
	g.commits(millrace.ErrFenced, plan(0, 1))
	g.Release()
	next := c.acquire(p) // the same process may take it again
	next.commits(nil)
	g.Release() // an ended lease has no hold on the next
	next.commits(nil)
	next.leave(p)
}

func (c *contract) deposed() {
	p := c.start()
	g := c.acquire(p)
	p.Journal(plan(0, 1), plan(900, 1))
	g.commits(nil, plan(0, 1))
	p.Depose()
	g.commits(millrace.ErrFenced, plan(0, 1))
	g.isOver()
	g.leave(p)
	next := c.start()
	held := c.acquire(next)
	held.commits(nil, plan(0, 1))
	held.commits(millrace.ErrMismatch, plan(0, 2))
	held.leave(next)
}

func (c *contract) ends() {
	p := c.start()
	ctx, cancel := context.WithCancel(c.Context())
	l, held, err := p.Leaser.Acquire(ctx, c.highest)
	if err != nil {
		c.Fatal(err)
	}
	cancel()
	<-held.Done()
	if err := l.Commit(c.Context(), nil); !errors.Is(err, millrace.ErrFenced) {
		c.Errorf("a commit under a lease whose user has ended: %v", err)
	}
	l.Release()
	if _, _, err := p.Leaser.Acquire(ctx, l.Term()); !errors.Is(err, context.Canceled) {
		c.Errorf("a candidate whose context has ended: %v", err)
	}
	p.Exit()
}

// listed: a lease that is a lease.Keeper elects only processes with a listed journal, once there is a list.
func (c *contract) listed() {
	first, second, third := c.start(), c.start(), c.start()
	g := c.acquire(first)
	keeper, isKeeper := g.Lease.(lease.Keeper)
	if first.Has == nil {
		if isKeeper {
			c.Fatal("the lease keeps a list, and no process has a journal")
		}
		g.leave(first)
		return
	}
	list := func(keeper lease.Keeper, mark error, names ...string) {
		c.Helper()
		var all []lease.Journal
		for _, name := range names {
			all = append(all, lease.Journal{ID: name, Host: "host-" + name})
		}
		if err := keeper.List(c.Context(), all); !errors.Is(err, mark) {
			c.Fatalf("list %v: %v, want %v", names, err, mark)
		}
	}
	first.Has("a")
	second.Has("b")
	third.Has("c")
	list(keeper, nil, "a", "b")
	g.leave(first)
	list(keeper, millrace.ErrFenced, "a", "b", "c")
	if g, err := c.try(third, shortly); err == nil {
		c.Fatalf("a process whose journal is not listed got term %d", g.Term())
	}
	g = c.acquire(second)
	list(g.Lease.(lease.Keeper), nil, "b", "c")
	g.leave(second)
	if g, err := c.try(first, shortly); err == nil {
		c.Fatalf("a process whose journal is no longer listed got term %d", g.Term())
	}
	g = c.acquire(third)
	list(g.Lease.(lease.Keeper), nil, "c")
	waits := make(chan error, 1)
	var late *grant
	go func() { // read below
		var err error
		late, err = c.try(first, patience)
		waits <- err
	}()
	time.Sleep(shortly) // until it waits
	list(g.Lease.(lease.Keeper), nil, "c", "a")
	third.Has("d") // its copy is replaced by another
	g.leave(third)
	if err := <-waits; err != nil {
		c.Fatalf("a process whose journal was listed while it waited: %v", err)
	}
	late.leave(first)
}
