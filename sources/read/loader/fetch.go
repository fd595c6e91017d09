package loader

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/internal/event"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources/read/feed"
)

// fetchParallel bounds the stripes of one request that are served at the same time. A stripe that waits for its file
// occupies one place.
const fetchParallel = 64

// Fetch implements proto.LoaderServer. It serves the parts of a request side by side. A part under another term than
// its stripe's is refused.
func (l *Loader) Fetch(req *proto.FetchRequest, stream proto.Loader_FetchServer) error {
	l.cfg.Beat.Begin()
	defer l.cfg.Beat.End()
	l.cfg.Fail.Hit("loader/fetch/before")
	shared := arenasOf(stream.Context())
	shared.forget(req.Gone)
	memory, done := shared.use(req.Arena)
	defer done()
	out := newReply(req, memory, &l.cfg, func(r *proto.FetchReply) error {
		l.cfg.Fail.Hit("loader/reply/before")
		err := stream.Send(r)
		l.cfg.Fail.Hit("loader/reply/after")
		return err
	})
	group, ctx := errgroup.WithContext(stream.Context())
	var next atomic.Int64
	for range min(len(req.Part), fetchParallel) {
		group.Go(func() error {
			for {
				k := int(next.Add(1)) - 1
				if k >= len(req.Part) {
					return nil
				}
				if err := l.servePart(ctx, req, k, out); err != nil {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return wire.ToStatus(err)
	}
	err := out.finish()
	l.cfg.Fail.Hit("loader/fetch/after")
	for _, part := range req.Part {
		l.note("fetched", req, part)
	}
	return err
}

// servePart serves the rows of one stripe. Its error is one of the stream; the reply carries the errors of the part.
func (l *Loader) servePart(ctx context.Context, req *proto.FetchRequest, k int, out *reply) error {
	part := req.Part[k]
	r, err := l.readingFor(part)
	if err != nil {
		return out.fail(k, err)
	}
	l.note("fetch", req, part)
	reqs := make([]feed.Request, len(part.Ordinal))
	for i := range reqs {
		reqs[i] = feed.Request{
			Ordinal: millrace.Ordinal(part.Ordinal[i]), Offset: part.Offset[i], Length: part.Length[i],
		}
	}
	var rest []int // numbers of the requests that are not read in place; nil: all are left
	if part.InPlace {
		var placed []feed.Placed
		if placed, rest = r.feed.Places(ctx, reqs); len(placed) > 0 {
			if err := out.place(k, placed); err != nil {
				return err
			}
			l.cfg.Beat.Progress()
		}
		if len(rest) == 0 {
			return nil
		}
		reqs = pick(reqs, rest)
	}
	fetch := r.feed.Fetch
	if req.Again {
		l.cfg.Fail.Hit("loader/again/before")
		fetch = r.feed.FetchAgain
	}
	var lost error // of the stream
	err = fetch(ctx, reqs, func(i int, tokens []uint32, fields string) error {
		l.cfg.Beat.Progress()
		if rest != nil {
			i = rest[i]
		}
		lost = out.add(k, i, tokens, fields)
		return lost
	})
	switch {
	case lost != nil:
		return lost
	case err != nil:
		return out.fail(k, err) // the finished documents need not be made again
	}
	return nil
}

// pick returns some of the requests.
func pick(reqs []feed.Request, which []int) []feed.Request {
	out := make([]feed.Request, len(which))
	for k, i := range which {
		out[k] = reqs[i]
	}
	return out
}

// note writes an event of a part.
func (l *Loader) note(name string, req *proto.FetchRequest, part *proto.FetchPart) {
	if l.cfg.Events == nil {
		return
	}
	l.cfg.Events.Write(event.Record{
		Event: name, Stream: req.GetFence().GetStream(), Attempt: req.GetFence().GetAttempt(), Term: part.Term,
		Step: int64(req.Step), Rank: -1, Micro: -1, Key: stripe{part.Source, part.Stripe}.String(),
	})
}

// readingFor returns the reading of a part's stripe. It refuses a part under another term.
func (l *Loader) readingFor(part *proto.FetchPart) (*reading, error) {
	r := l.reading(stripe{part.Source, part.Stripe})
	if r == nil || r.term.Load() != part.Term {
		return nil, millrace.Errorf(millrace.ErrFenced,
			"fetch stripe %d of source %s: %s does not serve it under term %d",
			part.Stripe, part.Source, l.cfg.Name, part.Term)
	}
	if n := len(part.Ordinal); len(part.Offset) != n || len(part.Length) != n {
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"fetch from source %s: the request has %d ordinals, %d offsets and %d lengths",
			part.Source, n, len(part.Offset), len(part.Length))
	}
	return r, nil
}
