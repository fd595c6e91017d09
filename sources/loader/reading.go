package loader

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources"
)

// reading is one stripe of one source being read under one term. Offers are kept until they are released, so that a restarted
// orchestrator is told again without a byte being read again.
type reading struct {
	source          string
	stripe, stripes uint32
	feed            *sources.Feed
	cancel          context.CancelFunc

	term   atomic.Uint64 // of the assignment
	mu     sync.Mutex    // keeps offers in order; held while they are sent
	out    *reporter
	from   millrace.Ordinal // first ordinal that was not released
	told   []sources.Batch  // what the orchestrator may still need, in order
	failed bool             // the feed has ended with an error: nothing more comes
}

// openSource opens a source once and reports its manifest. An orchestrator that is back asks again, maybe while the opening for its
// predecessor is under way: then it is waited for.
func (l *Loader) openSource(ctx context.Context, out *reporter, name string) error {
	gate := l.gate(name)
	gate.Lock()
	defer gate.Unlock()
	l.mu.Lock()
	src := l.open[name]
	l.mu.Unlock()
	if src == nil {
		spec, err := l.cfg.Spec(name)
		if err != nil {
			return l.fatal(ctx, out, name, err)
		}
		progress := func(done, total int64) {
			_ = l.newest().send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Opening{Opening: &proto.Opening{Source: name, Done: done, Total: total}}})
		}
		src, err = sources.Open(ctx, spec, sources.OpenOptions{IndexFS: indexFS(l.cfg.Fail), Spare: true, Progress: progress, Parallel: l.cfg.Parallel, Logger: l.cfg.Log})
		if err != nil {
			return l.fatal(ctx, out, name, err)
		}
		l.mu.Lock()
		l.open[name] = src
		l.mu.Unlock()
	}
	_ = out.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Manifest{Manifest: wire.ManifestToProto(src.Manifest())}})
	return nil
}

func (l *Loader) gate(source string) *sync.Mutex {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates[source] == nil {
		l.gates[source] = &sync.Mutex{}
	}
	return l.gates[source]
}

// read begins a stripe, or goes on with one that is being read already and still holds what is asked for. Only the session calls it.
func (l *Loader) read(ctx context.Context, out *reporter, order *proto.ReadFrom, group *errgroup.Group) error {
	l.mu.Lock()
	src, old := l.open[order.Source], l.reads[order.Source]
	l.mu.Unlock()
	if src == nil {
		return fmt.Errorf("told to read source %s before it was opened: %w", order.Source, millrace.ErrInvalid)
	}
	l.cfg.Term(millrace.Term(order.Term))
	at := millrace.Ordinal(order.Ordinal)
	if old != nil {
		if old.adopt(out, order, at) {
			return nil
		}
		old.cancel()
	}
	position := sources.Position{Ordinal: at, Anchor: wire.AnchorFromProto(order.Anchor)}
	feed := src.Feed(position, sources.Stripe{Index: order.Stripe, Of: order.Stripes}, sources.FeedConfig{Budget: l.budget, Parallel: l.cfg.Parallel, Hit: l.cfg.Fail.Hit})
	own, cancel := context.WithCancel(ctx)
	r := &reading{source: order.Source, stripe: order.Stripe, stripes: order.Stripes, feed: feed, cancel: cancel, out: out, from: at}
	r.term.Store(order.Term)
	l.mu.Lock()
	l.reads[order.Source] = r
	l.mu.Unlock()
	group.Go(func() error {
		inner, ictx := errgroup.WithContext(own)
		inner.Go(func() error { return feed.Run(ictx) })
		inner.Go(func() error { return l.offer(ictx, r) })
		err := inner.Wait()
		if err == nil || own.Err() != nil {
			return nil // another reading took over, or the process leaves
		}
		return l.fatal(ctx, r.fail(), r.source, err)
	})
	return nil
}

// offer reports what the feed finds, until ctx ends.
func (l *Loader) offer(ctx context.Context, r *reading) error {
	for {
		b, err := r.feed.Next(ctx)
		if err != nil {
			return err
		}
		l.cfg.Fail.Hit("loader/offer/before")
		r.mu.Lock()
		r.told = append(r.told, b)
		// A lost stream is no fault of the reading: a new session is told everything from `told`.
		_ = r.out.send(r.term.Load(), &proto.LoaderEvent{Event: &proto.LoaderEvent_Offers{Offers: offers(r.source, r.stripe, b)}})
		r.mu.Unlock()
		l.cfg.Fail.Hit("loader/offer/after")
		if b.End {
			return nil
		}
	}
}

// adopt lets a new session take over a stripe that is being read, if nothing it needs was released; it is told all over again, but for
// what lies below the place that it asks for.
func (r *reading) adopt(out *reporter, order *proto.ReadFrom, at millrace.Ordinal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if order.Stripe != r.stripe || order.Stripes != r.stripes || at < r.from || r.failed {
		return false
	}
	r.forget(at)
	r.out = out
	r.term.Store(order.Term)
	for _, b := range r.told {
		_ = out.send(order.Term, &proto.LoaderEvent{Event: &proto.LoaderEvent_Offers{Offers: offers(r.source, r.stripe, b)}})
	}
	return true
}

// release forgets what nobody can ask for any more.
func (r *reading) release(below millrace.Ordinal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(below)
}

// forget is release with mu held.
func (r *reading) forget(below millrace.Ordinal) {
	r.feed.Release(below)
	r.from = max(r.from, below)
	n := 0
	for n < len(r.told) && !r.told[n].End && len(r.told[n].Offers) > 0 && r.told[n].Offers[len(r.told[n].Offers)-1].Ordinal < below {
		n++
	}
	r.told = r.told[n:]
}

// fail notes that the feed is over, so that nobody adopts it, and returns who is to hear of it.
func (r *reading) fail() *reporter {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	return r.out
}
