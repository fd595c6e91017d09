package dryrun

import (
	"context"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sources"
	"millrace/sources/budget"
	"millrace/sources/feed"
	"millrace/sources/order"
)

// lengthsAhead is the number of records whose lengths are requested at once.
const lengthsAhead = 1 << 16

// Lengths reads every record of sources that were opened for one pass, one source after the other, so that the sources
// keep the lengths. It calls tell with the progress in records; total is 0 for a source without a count.
func (o *Opened) Lengths(ctx context.Context, tell func(source string, done, total int64)) error {
	for _, src := range o.Sources {
		st, err := src.Stats(ctx)
		if err != nil {
			return err
		}
		if st.Counted && st.Known == st.Records {
			continue
		}
		if err := o.lengths(ctx, src, func(done int64) { tell(src.Name(), done, int64(st.Records)) }); err != nil {
			return err
		}
	}
	return nil
}

func (o *Opened) lengths(ctx context.Context, src *sources.Source, tell func(done int64)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	feed := feed.New(
		src, feed.Position{}, order.Stripe{},
		feed.Config{Budget: budget.New(min(int64(o.Config.Limits.LoaderMemory)/2, mostMemory))},
	)
	var group errgroup.Group
	group.Go(func() error { return feed.Run(ctx) })
	defer func() {
		stop()
		_ = group.Wait() // Next has returned the error
	}()
	for below := millrace.Ordinal(0); ; {
		feed.Want(below + lengthsAhead)
		b, err := feed.Next(ctx)
		if err != nil {
			return err
		}
		if n := len(b.Offers); n > 0 {
			below = b.Offers[n-1].Ordinal + 1
			feed.Release(below)
			tell(int64(below))
		}
		if b.End {
			return nil
		}
	}
}
