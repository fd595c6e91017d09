package dryrun

import (
	"context"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"millrace/sources"
	"millrace/sources/store/cache"
)

// CacheFill counts the shards of a source by their place in the token cache. Scripts rely on the JSON names.
type CacheFill struct {
	Cached int `json:"cached"` // with an entry
	Left   int `json:"left"`   // for which the cache has no room
}

// Tokens fills the token cache with the documents of every source of text, several shards at a time. An interrupted
// call continues with the next shard. It calls tell with the progress in records; total is 0 for a source without a
// count. The result has an element for each source. The mixture file has a token cache.
func (o *Opened) Tokens(ctx context.Context, tell func(source string, done, total int64)) ([]CacheFill, error) {
	out := make([]CacheFill, len(o.Sources))
	for i, src := range o.Sources {
		if src.HoldsTokens() {
			continue
		}
		st, err := src.Stats(ctx)
		if err != nil {
			return nil, err
		}
		show := func(done int64) { tell(src.Name(), done, int64(st.Records)) }
		if err := o.fill(ctx, src, &out[i], show); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// tellEach is the number of records between two reports of progress.
const tellEach = 256

// fill fills the entries of one source.
func (o *Opened) fill(ctx context.Context, src *sources.Source, out *CacheFill, tell func(done int64)) error {
	var mu sync.Mutex
	done := int64(0)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for shard := range src.Manifest().Shards {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			passed := int64(0)
			told := func(all bool) {
				if passed < tellEach && !all {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				done += passed
				passed = 0
				tell(done)
			}
			result, err := o.cache.Fill(ctx, src, uint32(shard), func() {
				passed++
				told(false)
			})
			told(true)
			mu.Lock()
			defer mu.Unlock()
			if result == cache.Left {
				out.Left++
			} else {
				out.Cached++
			}
			return err
		})
	}
	return group.Wait()
}
