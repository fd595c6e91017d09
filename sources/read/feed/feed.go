package feed

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/internal/failpoint"
	"millrace/sources"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/feed/pool"
	"millrace/sources/read/feed/recent"
	"millrace/sources/read/order"
)

// Config sets the means of a feed. It does not change the delivered content.
type Config struct {
	Budget *budget.Budget // shared by the feeds of a process; default: one of its own of budget.Default bytes
	Pool   *pool.Pool     // shared by the feeds of a process; default: one of its own, which Run runs
	// Parallel is the number of decoders of a pool of its own; default GOMAXPROCS.
	Parallel int
	Recent   *recent.Store // shared by the feeds of a process, and of Budget; default: one of its own
	// Standby: until Run, the feed reads at random only the requested documents, and those of Warm.
	Standby bool
	// Progress is called for every record made, and for every MiB of a long one. Default: nothing.
	Progress func()
	// Fail holds the failpoints of the process; nil for none.
	Fail *failpoint.Set
}

// errStopped is the error of callers that wait when Run ends because its context ended.
var errStopped = errors.New("feed has stopped")

// Feed reads one stripe of one source ahead of need. Run does the work; the other methods may be called at the same
// time as Run and as each other.
//
// One mutex guards all state that changes. Decoders read, decode and tokenise without it. Under it the feed takes only
// the locks of the budget, the pool and the source. None of these calls back under its lock.
type Feed struct {
	src    *sources.Source
	stripe order.Stripe
	cfg    Config
	texts  turn // of random-access reads of block texts

	ownPool bool // Run runs the pool

	mu     sync.Mutex
	news   *sync.Cond // Next and Fetch wait for spans
	ahead  *chooser
	from   Position                // where the feed begins
	shelf  *shelf                  // nil once spans serve everything
	member *pool.Member            // nil before Run
	run    context.Context         // of Run; it ends when the feed fails
	fail   context.CancelCauseFunc // ends run
	err    error                   // why the feed ended
}

// New returns the feed of one stripe that begins at a position. It starts nothing, and joins the budget in Run.
func New(s *sources.Source, from Position, stripe order.Stripe, cfg Config) *Feed {
	if stripe.Of == 0 {
		stripe.Of = 1
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = runtime.GOMAXPROCS(0)
	}
	if cfg.Progress == nil {
		cfg.Progress = func() {}
	}
	ownPool := cfg.Pool == nil
	if ownPool {
		cfg.Pool = pool.New(cfg.Parallel, nil, func(large *budget.Large) *decode.Decoder {
			return decode.New(cfg.Progress, cfg.Fail, large)
		})
	}
	if cfg.Budget == nil {
		cfg.Budget = budget.New(budget.Default)
	}
	if cfg.Recent == nil {
		cfg.Recent = recent.New(cfg.Budget, cfg.Pool.Store())
	}
	f := &Feed{src: s, stripe: stripe, cfg: cfg, texts: newTurn(), ownPool: ownPool}
	f.news = sync.NewCond(&f.mu)
	f.ahead = newChooser(s, stripe, cfg.Pool)
	if cfg.Standby || s.Global() != nil { // the first requests do not wait for the spans around them
		f.shelf = newShelf(from, cfg.Recent)
	}
	f.start(from)
	return f
}

// start sets a feed that does not run yet to a position.
func (f *Feed) start(from Position) {
	f.from = from
	f.ahead.moveTo(from.Ordinal, from.SeekPoint)
}

// Run reads ahead until ctx ends or a read fails for good, and returns the reason. It is called once.
func (f *Feed) Run(ctx context.Context) error {
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group errgroup.Group
	if f.ownPool {
		poolCtx, end := context.WithCancel(context.WithoutCancel(ctx))
		group.Go(func() error { return f.cfg.Pool.Run(poolCtx) })
		defer func() {
			end()
			_ = group.Wait() // the pool was asked to end
		}()
	}
	quota, member := f.cfg.Budget.Open(f.retry), f.cfg.Pool.Join(f)
	f.mu.Lock()
	f.ahead.memory.quota, f.member, f.run, f.fail = quota, member, own, cancel
	f.ahead.due.idle = true
	err := f.checkStart()
	if err != nil {
		cancel(err)
	}
	f.unlock()
	stop := context.AfterFunc(own, f.nudge)
	defer stop()
	<-own.Done()
	member.Leave()
	err = context.Cause(own)
	if ctx.Err() == nil {
		err = fmt.Errorf("source %s: %w", f.src.Name(), err)
	}
	f.shut(err, ctx.Err() != nil)
	quota.Close()
	return err
}

// checkStart returns the error of a seek point that cannot be used; the mutex is held.
func (f *Feed) checkStart() error {
	at := f.from.SeekPoint
	if f.ahead.blocks == nil || at.Ordinal <= f.from.Ordinal && at.Shard < f.src.Blocks().Shards(at.Epoch) {
		return nil
	}
	return millrace.Errorf(millrace.ErrInvalid, "read from ordinal %d: seek point %+v is not before it",
		f.from.Ordinal, at)
}

// shut ends the feed for all callers.
func (f *Feed) shut(err error, stopped bool) {
	f.mu.Lock()
	scans := f.ahead.clear()
	if f.shelf != nil {
		f.shelf.clear()
	}
	f.err = err
	if stopped {
		f.err = fmt.Errorf("source %s: %w", f.src.Name(), errStopped)
	}
	f.ahead.due = signals{news: true}
	f.unlock()
	for _, s := range scans {
		s.close()
	}
}

// Step does the feed's most urgent action, and those that follow from it. The pool calls it.
func (f *Feed) Step(d *decode.Decoder) {
	f.mu.Lock()
	act, err := f.choose()
	for act != nil && err == nil {
		f.unlock()
		if err = act.work(f.run, d); err == nil {
			f.mu.Lock()
			act, err = act.settle()
			continue
		}
		f.mu.Lock()
	}
	if err != nil {
		f.fail(err)
	}
	f.unlock()
}

// choose returns the next action, or nil; the mutex is held. If there is one, another decoder may find one, too.
func (f *Feed) choose() (action, error) {
	if f.run.Err() != nil {
		return nil, nil
	}
	act, err := f.ahead.choose()
	f.ahead.due.idle = f.ahead.due.idle || act != nil
	return act, err
}

// nudge wakes decoders and callers: a context ended.
func (f *Feed) nudge() {
	f.mu.Lock()
	f.ahead.due.idle, f.ahead.due.news = true, true
	f.unlock()
}

// retry wakes decoders: the budget has room again.
func (f *Feed) retry() {
	f.mu.Lock()
	f.ahead.due.idle = true
	f.unlock()
}

// unlock unlocks the mutex and gives the signals that are due. Other feeds are woken without the mutex, because their
// wake takes theirs.
func (f *Feed) unlock() {
	f.broadcast()
	short, quota := f.ahead.due.short, f.ahead.memory.quota
	f.ahead.due = signals{}
	f.mu.Unlock()
	if short && quota != nil {
		quota.WakeShort()
	}
}

// broadcast gives the signals that are due inside the feed and to its decoders; the mutex is held.
func (f *Feed) broadcast() {
	due := &f.ahead.due
	if due.idle && f.member != nil {
		f.member.Offer(f.ahead.urgency())
	}
	if due.news {
		f.news.Broadcast()
	}
	due.idle, due.news = false, false
}

// sleep waits for news; the mutex is held. It returns at once if it had signals for other feeds.
func (f *Feed) sleep() {
	f.broadcast()
	if f.ahead.due != (signals{}) {
		f.unlock()
		f.mu.Lock()
		return
	}
	f.news.Wait()
}

// wait blocks a caller of Next or Fetch until there is news; the mutex is held. The caller has armed nudge for ctx.
func (f *Feed) wait(ctx context.Context) error {
	if f.err != nil {
		return f.err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	f.sleep()
	return nil
}

// Want allows offers of ordinals below until. The feed offers none from until on.
func (f *Feed) Want(until millrace.Ordinal) {
	f.mu.Lock()
	defer f.unlock()
	if position := f.stripe.Position(until); position > f.ahead.cursor.want {
		f.ahead.cursor.want = position
		f.ahead.due.idle, f.ahead.due.news = true, true
	}
}

// Release drops the tokens of ordinals below. They cannot be fetched any more.
func (f *Feed) Release(below millrace.Ordinal) {
	f.mu.Lock()
	defer f.unlock()
	if f.shelf != nil {
		f.shelf.advance(below, millrace.SeekPoint{})
	}
	f.ahead.release(below)
}

// Next waits for the next offers of the stripe and returns them in ordinal order. After End it returns End again.
func (f *Feed) Next(ctx context.Context) (Batch, error) {
	defer context.AfterFunc(ctx, f.nudge)()
	f.mu.Lock()
	defer f.unlock()
	for {
		b := f.ahead.offer()
		if len(b.Offers) > 0 || b.End {
			return b, nil
		}
		if err := f.wait(ctx); err != nil {
			return Batch{}, err
		}
	}
}
