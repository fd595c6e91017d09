package loader

import (
	"context"
	"fmt"
	"sync"

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

	mu    sync.Mutex
	term  uint64
	out   *reporter
	from  millrace.Ordinal // first ordinal that was not released
	told  []sources.Batch  // what the orchestrator may still need, in order
	first millrace.Ordinal // where the feed began
}

// openSource opens a source once and reports its manifest.
func (l *Loader) openSource(ctx context.Context, out *reporter, name string) error {
	l.mu.Lock()
	src := l.open[name]
	l.mu.Unlock()
	if src == nil {
		spec, err := l.cfg.Spec(name)
		if err != nil {
			return l.fatal(ctx, out, name, err)
		}
		progress := func(done, total int64) {
			_ = out.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Opening{Opening: &proto.Opening{Source: name, Done: done, Total: total}}})
		}
		src, err = sources.Open(ctx, spec, sources.OpenOptions{Progress: progress, Parallel: l.cfg.Parallel, Logger: l.cfg.Log})
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

// read begins a stripe, or goes on with one that is being read already and still holds what is asked for.
func (l *Loader) read(ctx context.Context, out *reporter, order *proto.ReadFrom, group *errgroup.Group) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	src := l.open[order.Source]
	if src == nil {
		return fmt.Errorf("told to read source %s before it was opened: %w", order.Source, millrace.ErrInvalid)
	}
	l.cfg.Term(millrace.Term(order.Term))
	at := millrace.Ordinal(order.Ordinal)
	if r := l.reads[order.Source]; r != nil {
		if r.adopt(out, order, at) {
			return nil
		}
		r.cancel()
	}
	position := sources.Position{Ordinal: at, Anchor: wire.AnchorFromProto(order.Anchor)}
	feed := src.Feed(position, sources.Stripe{Index: order.Stripe, Of: order.Stripes}, sources.FeedConfig{Budget: l.budget, Parallel: l.cfg.Parallel, Hit: l.cfg.Fail.Hit})
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	r := &reading{source: order.Source, stripe: order.Stripe, stripes: order.Stripes, feed: feed, cancel: cancel, term: order.Term, out: out, from: at, first: at}
	l.reads[order.Source] = r
	group.Go(func() error {
		inner, ctx := errgroup.WithContext(ctx)
		inner.Go(func() error { return feed.Run(ctx) })
		inner.Go(func() error { return l.offer(ctx, r) })
		if err := inner.Wait(); err != nil && !canceled(err) {
			return l.fatal(outer, r.reporter(), r.source, err)
		}
		return nil
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
		out, term := r.out, r.term
		// A lost stream is no fault of the reading: a new session is told everything from `told`.
		_ = out.send(term, &proto.LoaderEvent{Event: &proto.LoaderEvent_Offers{Offers: offers(r.source, r.stripe, b)}})
		r.mu.Unlock()
		l.cfg.Fail.Hit("loader/offer/after")
		if b.End {
			return nil
		}
	}
}

// adopt lets a new session take over a stripe that is being read, if nothing it needs was released; it is told all over again.
func (r *reading) adopt(out *reporter, order *proto.ReadFrom, at millrace.Ordinal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if order.Stripe != r.stripe || order.Stripes != r.stripes || at < r.from {
		return false
	}
	r.out, r.term = out, order.Term
	for _, b := range r.told {
		_ = out.send(r.term, &proto.LoaderEvent{Event: &proto.LoaderEvent_Offers{Offers: offers(r.source, r.stripe, b)}})
	}
	return true
}

// release forgets what nobody can ask for any more.
func (r *reading) release(below millrace.Ordinal) {
	r.feed.Release(below)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from = max(r.from, below)
	n := 0
	for n < len(r.told) && !r.told[n].End && len(r.told[n].Offers) > 0 && r.told[n].Offers[len(r.told[n].Offers)-1].Ordinal < below {
		n++
	}
	r.told = r.told[n:]
}

func (r *reading) reporter() *reporter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out
}

func (r *reading) fence() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term
}
