package orchestrator

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"millrace"
	"millrace/checkpoint"
	"millrace/checkpoint/disk/disktest"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/leasetest"
	"millrace/orchestrator/ledger"
	"millrace/orchestrator/planner"
	"millrace/proto"
)

// soloProcess takes the solo lease of a directory: it opens the journal, once its lock is free.
type soloProcess struct {
	t     *testing.T
	dir   string
	store *checkpoint.Store
}

func (p *soloProcess) Acquire(ctx context.Context, above millrace.Term) (lease.Lease, context.Context, error) {
	for p.store == nil {
		store, err := checkpoint.Open(checkpoint.Config{Dir: p.dir})
		switch {
		case err == nil:
			p.store = store
		case !errors.Is(err, checkpoint.ErrLocked):
			return nil, nil, err
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		default:
			time.Sleep(time.Millisecond)
		}
	}
	o := &Orchestrator{cfg: Config{Stream: millrace.Train}, opt: Options{Store: p.store}}
	o.opt.Leaser = lease.NewSolo(sealed{o})
	s, _, err := facts.Read(p.store, millrace.Train, &planner.Spec{})
	if err != nil {
		return nil, nil, err
	}
	s.Term = max(s.Term, uint64(above))
	err = o.begin(ctx, s)
	return o.held, o.lease, err
}

func (p *soloProcess) journal(plans ...lease.Plan) {
	p.t.Helper()
	var c checkpoint.Commit
	for _, plan := range plans {
		entry := ledger.NewEntry(&proto.Plan{Content: plan.Content[:], Placement: plan.Placement[:]}, nil)
		c.Plans = append(c.Plans, checkpoint.Plan{
			Key:    checkpoint.StepKey{Stream: "train", Attempt: uint32(plan.Attempt), Step: uint64(plan.Step)},
			Digest: entry.Encode(),
		})
	}
	c.Records = []checkpoint.Record{{Step: checkpoint.NoStep}} // an empty message has no fact
	if _, err := p.store.Commit(c); err != nil {
		p.t.Fatal(err)
	}
}

// depose closes the journal, so its lock is free.
func (p *soloProcess) depose() {
	if err := p.store.Close(); err != nil {
		p.t.Error(err)
	}
}

func (p *soloProcess) exit() {
	if p.store != nil {
		p.store.Close() // it may be closed
		p.store = nil
	}
}

func TestSoloLease(t *testing.T) {
	leasetest.Contract(t, func(t *testing.T) leasetest.Run {
		dir := t.TempDir()
		return func() *leasetest.Process {
			p := &soloProcess{t: t, dir: dir}
			t.Cleanup(p.exit)
			return &leasetest.Process{Leaser: p, Journal: p.journal, Depose: p.depose, Exit: p.exit}
		}
	})
}

// registrar grants a lease that refuses the plan of one step, and remembers the plans that it recorded.
type registrar struct {
	refuses millrace.Step // 0: none

	mu       sync.Mutex
	term     millrace.Term
	plans    map[millrace.Step]lease.Plan
	first    []lease.Plan // of the first commit
	commits  int
	released int
}

func (k *registrar) Acquire(ctx context.Context, above millrace.Term) (lease.Lease, context.Context, error) {
	k.term, k.plans = above+41, map[millrace.Step]lease.Plan{}
	return k, ctx, nil
}

func (k *registrar) Term() millrace.Term { return k.term }

func (k *registrar) Commit(_ context.Context, plans []lease.Plan) error {
	time.Sleep(3 * time.Millisecond) // a plan that is published too early arrives meanwhile
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.commits++; k.commits == 1 {
		k.first = plans
	}
	for _, p := range plans {
		if k.refuses > 0 && p.Step >= k.refuses {
			return millrace.Errorf(millrace.ErrFenced, "the lease has ended")
		}
		k.plans[p.Step] = p
	}
	return nil
}

func (k *registrar) Release() {
	k.mu.Lock()
	k.released++
	k.mu.Unlock()
}

// recorded reports whether the lease has a plan.
func (k *registrar) recorded(p *proto.Plan) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.plans[millrace.Step(p.Step)] == leased(p)
}

// TestNothingIsPublishedWithoutTheLease: a plan is committed under the lease before it is published. If the lease ends
// between journal and commit, the plan is not published, and the next holder commits it first.
func TestNothingIsPublishedWithoutTheLease(t *testing.T) {
	const steps, refused = 60, 30
	disk := disktest.NewMemory()
	first := &registrar{refuses: refused}
	l := liveUnder(t, first, newConfig(t, 1), disk)
	if l.o.Term() != 41 {
		t.Errorf("term %d", l.o.Term())
	}
	published := func(k *registrar) func(*proto.Plan) {
		return func(p *proto.Plan) {
			if !k.recorded(p) {
				t.Errorf("the plan of step %d was published before it was committed", p.Step)
			}
		}
	}
	l.load(0)
	h := l.serve("fresh", 1, steps, published(first))
	if err := l.wait(); !errors.Is(err, millrace.ErrFenced) {
		t.Fatalf("the run ended with: %v", err)
	}
	l.stop()
	<-h.over
	if len(h.contents) == 0 || h.contents[refused] != "" || first.released == 0 {
		t.Errorf("%d plans, step %d is %q, released %d times", len(h.contents), refused, h.contents[refused],
			first.released)
	}
	second := &registrar{}
	again := liveUnder(t, second, newConfig(t, 1), disk)
	if again.o.Term() != 82 {
		t.Errorf("term %d", again.o.Term())
	}
	journaled := false
	for _, p := range second.first {
		journaled = journaled || p.Step == refused
	}
	if !journaled {
		t.Errorf("the next holder first committed %v, without the plan of step %d", second.first, refused)
	}
	again.load(0)
	h = again.serve("latest", 1, steps, published(second))
	h.reach(t, 1, steps)
	again.stop()
	<-h.over
}
