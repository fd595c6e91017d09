package dryrun

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sources"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed"
	"millrace/sources/read/order"
)

// lengthsAhead is the number of records whose lengths are requested at once.
const lengthsAhead = 1 << 16

// Lengths reads every record of sources that were opened for one pass, one source after the other, so that the sources
// keep the lengths. Sources that differ in their filters alone are read together. It calls tell with the progress in
// records; total is 0 for a source without a count.
func (o *Opened) Lengths(ctx context.Context, tell func(source string, done, total int64)) error {
	for left := slices.Clone(o.Sources); len(left) > 0; {
		src := left[0]
		alike := []*sources.Source{src}
		left = slices.DeleteFunc(left[1:], func(other *sources.Source) bool {
			is := src.IsReadAs(other)
			if is {
				alike = append(alike, other)
			}
			return is
		})
		alike, records, err := unknown(ctx, alike)
		if err != nil {
			return err
		}
		if len(alike) == 0 {
			continue
		}
		show := func(done int64) { tell(alike[0].Name(), done, records) }
		if err := o.lengths(ctx, alike[0].With(alike[1:]), show); err != nil {
			return err
		}
	}
	return o.keepPieces(ctx)
}

// keepPieces keeps the number of pieces in each file of the sources that runs read in pieces. Later runs can then find
// out which pieces were read, although files came or went.
func (o *Opened) keepPieces(ctx context.Context) error {
	for _, src := range o.Sources {
		s, _ := o.Config.Source(src.Name())
		tokens, _ := o.Config.PieceTokens(s)
		if tokens == 0 || src.Manifest().Shuffle != millrace.Global {
			continue
		}
		if err := src.KeepPieces(ctx, tokens); err != nil {
			return err
		}
	}
	return nil
}

// unknown returns the sources without the length of each record, among sources of the same records.
func unknown(ctx context.Context, list []*sources.Source) (out []*sources.Source, records int64, err error) {
	for _, src := range list {
		st, err := src.Stats(ctx)
		if err != nil {
			return nil, 0, err
		}
		records = int64(st.Records)
		if !st.Counted || st.Known < st.Records {
			out = append(out, src)
		}
	}
	return out, records, nil
}

func (o *Opened) lengths(ctx context.Context, src *sources.Source, tell func(done int64)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	feed := feed.New(
		src, feed.Position{}, order.Stripe{},
		feed.Config{Budget: budget.New(o.memory)},
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
