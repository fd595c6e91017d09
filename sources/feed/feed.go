package feed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/internal/failpoint"
	"millrace/sources"
	"millrace/sources/budget"
	"millrace/sources/order"
)

// Position is where a feed begins. In block orders SeekPoint is the newest known one that is not after Ordinal (the
// zero SeekPoint is the stream's start); global order does not need it.
type Position struct {
	Ordinal   millrace.Ordinal
	SeekPoint millrace.SeekPoint
}

// Config says with what means a feed reads; nothing in it changes what it delivers.
type Config struct {
	Budget   *budget.Budget // shared by the feeds of a process; default: one of its own of 256 MiB
	Parallel int            // goroutines that read and tokenise; default GOMAXPROCS
	// Standby: the feed stands by until Run. It reads at random what it is asked for, and nothing else but Warm's.
	Standby bool
	// Progress is told of every record made, and of every MiB on the way; nil: nobody counts.
	Progress func()
	// Fail holds the failpoints of the process; nil for none.
	Fail *failpoint.Set
}

// Offer is what a feed reports ahead of need: one ordinal's metadata, in ordinal order within its stripe.
type Offer struct {
	millrace.SampleMeta
	Quarantine *millrace.Quarantine // set where Reject is: what to record
}

// Batch is the next metadata of a stripe, in ordinal order.
type Batch struct {
	Offers     []Offer
	SeekPoints []millrace.SeekPoint // of blocks that start at or before the next offer; block orders only
	End        bool                 // no offer follows
	EndOrdinal millrace.Ordinal     // with End: the source's ordinals, over all stripes
}

// Request asks for tokens Offset … Offset+Length of a document.
type Request struct {
	Ordinal millrace.Ordinal
	Offset  uint32
	Length  uint32
}

// SampleError is a document that cannot be served although it was offered; it wraps millrace.ErrBadSample.
type SampleError struct {
	Ordinal    millrace.Ordinal
	Quarantine millrace.Quarantine
}

// Error names the sample and the reason.
func (e *SampleError) Error() string {
	return fmt.Sprintf("fetch %s %s (ordinal %d): %s", e.Quarantine.Source, e.Quarantine.ID, e.Ordinal, e.Quarantine.Reason)
}

// Sample says which document it is.
func (e *SampleError) Sample() (millrace.Ordinal, millrace.Quarantine) {
	return e.Ordinal, e.Quarantine
}

// Unwrap returns millrace.ErrBadSample.
func (e *SampleError) Unwrap() error { return millrace.ErrBadSample }

// errStopped is what waiting callers get once Run has returned without an error of its own.
var errStopped = errors.New("feed has stopped")

const defaultBudget = 256 << 20

// batchOffers bounds the offers of one Batch.
const batchOffers = 4096

// Feed is one stripe of one source, read ahead of need. Run does the work; the other methods may be called
// concurrently with it and with each other.
//
// Positions (see order.Stripe) count the stripe's ordinals. head ≤ offered; spans cover head … frontier without a
// gap, or nothing yet.
type Feed struct {
	src    *sources.Source
	stripe order.Stripe
	cfg    Config
	from   millrace.Ordinal

	mu    sync.Mutex
	idle  *sync.Cond    // decoders wait for something to do
	news  *sync.Cond    // Next and Fetch wait for spans
	quota *budget.Quota // nil before Run
	err   error         // why the feed ended

	spans    []*span
	edges    edges
	frontier uint64           // position after the last span
	head     uint64           // positions below are released
	want     uint64           // positions below may be offered
	offered  uint64           // positions below were offered
	demanded uint64           // positions below are wanted by a Fetch
	end      millrace.Ordinal // of the source's stream; MaxUint64 while unknown
	ready    []action         // parts of makings begun
	sizes    sizes

	blockFeed
	first millrace.SeekPoint // where the feed began
	aside *aside             // nil once spans serve everything
	asked bool               // tokens were
}

// sizes is what was learnt of the records so far, to size spans and charges.
type sizes struct {
	guess   int64 // bytes of a record's tokens, before any was seen
	records int64
	tokens  int64
	window  int64 // bytes of tokens in the next span, in global order
}

// action is one piece of a feed's work, done by a decoder without the feed's mutex.
type action func(ctx context.Context, m *decoder) error

// New returns the feed of one stripe that begins at a position. It starts nothing; the budget is joined by Run.
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
	if cfg.Budget == nil {
		cfg.Budget = budget.New(defaultBudget)
	}
	f := &Feed{src: s, stripe: stripe, cfg: cfg, from: from.Ordinal, end: math.MaxUint64}
	f.idle, f.news = sync.NewCond(&f.mu), sync.NewCond(&f.mu)
	f.sizes = sizes{guess: s.RecordBytes(), window: firstWindow}
	if s.Global() != nil {
		f.end = s.Global().End()
	}
	// What is asked first need not wait for all that lies around it.
	if cfg.Standby || s.Global() != nil {
		f.aside = &aside{below: from.Ordinal, seekPoint: from.SeekPoint, warmed: math.MaxUint64, made: make(map[millrace.Ordinal]document)}
	}
	f.start(from)
	return f
}

// start sets a feed that does not run yet to a position; the mutex is held, or nobody else has the feed.
func (f *Feed) start(from Position) {
	f.head = f.stripe.Position(from.Ordinal)
	f.want, f.offered, f.frontier = f.head, f.head, f.head
	if f.src.Global() == nil {
		f.blockFeed, f.first = newBlockFeed(from.SeekPoint), from.SeekPoint
		f.frontier = f.stripe.Position(from.SeekPoint.Ordinal)
	}
}

// Run reads ahead until ctx ends or something cannot be read, and returns why. It is called once.
func (f *Feed) Run(ctx context.Context) error {
	quota := f.cfg.Budget.Open(f.nudge)
	f.mu.Lock()
	f.quota = quota
	f.mu.Unlock()
	g, gctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(gctx, f.nudge)
	defer stop()
	if a := f.next; a.Ordinal > f.from || int(a.Shard) >= len(f.src.Manifest().Shards) {
		g.Go(func() error {
			return millrace.Errorf(millrace.ErrInvalid, "read from ordinal %d: seek point %+v is not before it", f.from, a)
		})
	}
	for range f.cfg.Parallel {
		g.Go(func() error { return f.serve(gctx) })
	}
	err := g.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else {
		err = fmt.Errorf("source %s: %w", f.src.Name(), err)
	}
	f.shut(err, ctx.Err() != nil)
	quota.Close()
	return err
}

// shut ends the feed for everyone who waits.
func (f *Feed) shut(err error, stopped bool) {
	f.stopScans()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	if stopped {
		f.err = fmt.Errorf("source %s: %w", f.src.Name(), errStopped)
	}
	f.spans, f.edges, f.ready, f.quota = nil, edges{}, nil, nil
	f.news.Broadcast()
}

// nudge lets everyone look again: room was given back, or a context ended.
func (f *Feed) nudge() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle.Broadcast()
	f.news.Broadcast()
}

// serve does one action after another.
func (f *Feed) serve(ctx context.Context) error {
	m := newDecoder(f)
	for {
		act, err := f.await(ctx)
		if err != nil {
			return err
		}
		if err := act(ctx, m); err != nil {
			return err
		}
	}
}

func (f *Feed) await(ctx context.Context) (action, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		act, err := f.choose()
		if f.quota.Decline() { // it had a turn and made nothing of it
			f.mu.Unlock()
			f.quota.PassOn()
			f.mu.Lock()
			if act == nil && err == nil {
				continue
			}
		}
		if act != nil || err != nil {
			return act, err
		}
		f.idle.Wait()
	}
}

// wait blocks a caller of Next or Fetch until there is news; the mutex is held. wake must be armed by f.watch.
func (f *Feed) wait(ctx context.Context) error {
	if f.err != nil {
		return f.err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	f.news.Wait()
	return nil
}

// Want says that metadata is needed for ordinals below until; no more is offered than asked.
func (f *Feed) Want(until millrace.Ordinal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if position := f.stripe.Position(until); position > f.want {
		f.want = position
		f.idle.Broadcast()
		f.news.Broadcast()
	}
}

// Release says that ordinals below are not fetched any more; their payload is dropped.
func (f *Feed) Release(below millrace.Ordinal) {
	if a := f.standing(); a != nil {
		a.follow(below, millrace.SeekPoint{})
	}
	f.mu.Lock()
	f.head = max(f.head, f.stripe.Position(below))
	f.offered = max(f.offered, f.head)
	n := 0
	for n < len(f.spans) && f.spans[n].hi <= f.head {
		f.release(f.spans[n])
		n++
	}
	f.spans = slices.Delete(f.spans, 0, n)
	f.edges.shift(n)
	if f.src.Global() != nil {
		f.frontier = max(f.frontier, f.head)
	}
	quota := f.quota
	f.idle.Broadcast()
	f.mu.Unlock()
	if n > 0 && quota != nil {
		quota.WakeShort()
	}
}

// release takes a span out of use; the mutex is held.
func (f *Feed) release(p *span) {
	p.gone = true
	if p.pins == 0 && p.held {
		f.drop(p)
	}
	if p.block != nil {
		f.spareText(p.block)
	}
}

// drop frees a span's tokens; the mutex is held.
func (f *Feed) drop(p *span) {
	p.parts, p.held = nil, false
	if !p.gone {
		f.edges.held = min(f.edges.held, f.indexOf(p))
	}
	f.quota.Force(-p.charge)
	p.charge = 0
}
