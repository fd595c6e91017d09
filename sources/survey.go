package sources

import (
	"context"
	"fmt"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sources/find"
)

// The kinds of blobs a source keeps for a shard.
const (
	kindIndex  = "index"
	kindBlocks = "blocks"
	kindDeep   = "deep"
)

// surveyed is a shard with what its head told.
type surveyed struct {
	millrace.Shard
	seekable bool
	guard    *guard
}

// survey digests and opens every file, several at a time.
func (s *Source) survey(ctx context.Context, files []find.File, opts OpenOptions) ([]surveyed, error) {
	found := make([]surveyed, len(files))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(opts.Parallel)
	for i, f := range files {
		g.Go(func() (err error) {
			found[i], err = s.surveyFile(ctx, f, opts)
			return err
		})
	}
	return found, g.Wait()
}

func (s *Source) surveyFile(ctx context.Context, f find.File, opts OpenOptions) (surveyed, error) {
	out := surveyed{Shard: millrace.Shard{Name: f.Name, Path: f.Path}}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	var err error
	if out.guard, err = s.newGuard(out.Shard); err != nil {
		return out, err
	}
	if out.Size, out.Digest, err = shardDigest(s.fs, s.spec.Format, f.Path, false); err != nil {
		return out, err
	}
	if opts.Deep {
		if err := s.compareDeep(out.Shard); err != nil {
			return out, err
		}
	}
	if err := out.guard.admit(ctx, out.Shard); err != nil {
		return out, err
	}
	return out, s.inspect(ctx, &out)
}

// inspect opens a shard with what is remembered of it and fills in what it tells.
func (s *Source) inspect(ctx context.Context, f *surveyed) error {
	o, err := s.openShardOf(ctx, f.Shard, f.guard)
	if err != nil {
		return err
	}
	defer o.close()
	f.seekable = o.Seekable()
	f.Count, f.Counted = o.Count()
	return nil
}

// compareDeep hashes every byte of a shard and compares with the hash first seen for this digest.
func (s *Source) compareDeep(sh millrace.Shard) error {
	_, deep, err := shardDigest(s.fs, s.spec.Format, sh.Path, true)
	if err != nil {
		return err
	}
	kind := s.kind(kindDeep)
	was, ok := s.memory.blobs.Load(sh.Digest, kind)
	if !ok {
		return s.memory.blobs.Save(sh.Digest, kind, deep[:])
	}
	if string(was) != string(deep[:]) {
		return millrace.Errorf(millrace.ErrMismatch, "file %s changed between its first and last MiB since it was first checked; restore it, or remove %s to accept it",
			sh.Path, s.spec.IndexDir)
	}
	return nil
}

// kind names a blob of this source's format.
func (s *Source) kind(kind string) string { return s.spec.Format.Name() + "-" + kind }

// index builds what global order needs of the shards that do not have it, several at a time. Each finished shard is kept at once,
// so an interrupted run goes on where it stopped.
func (s *Source) index(ctx context.Context, found []surveyed, opts OpenOptions) error {
	tell := &progress{tell: opts.Progress}
	for _, f := range found {
		if !f.Counted {
			tell.total += f.Size
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(opts.Parallel)
	for i := range found {
		if found[i].Counted {
			continue
		}
		g.Go(func() error { return s.indexShard(ctx, &found[i], tell) })
	}
	return g.Wait()
}

func (s *Source) indexShard(ctx context.Context, f *surveyed, tell *progress) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o, err := s.openShardOf(ctx, f.Shard, f.guard)
	if err != nil {
		return err
	}
	defer o.close()
	o.file.hash = &contentHash{hash: xxh3.New()}
	part := tell.part(f.Size)
	var blob []byte
	what := func() string { return f.Path }
	err = Fence(millrace.ErrDamaged, what, func() (err error) {
		blob, err = o.Index(ctx, part)
		return err
	})
	if err != nil {
		return fmt.Errorf("index %s: %w", f.Path, o.Explain(err))
	}
	part(f.Size)
	if blob != nil {
		content, err := o.file.content()
		if err != nil {
			return fmt.Errorf("index %s: %w", f.Path, err)
		}
		if err := s.saveIndex(f.Shard, blob, content); err != nil {
			return fmt.Errorf("index %s: %w", f.Path, err)
		}
		f.guard.indexed(content)
	}
	again, err := s.openFile(ctx, f.Shard, f.guard, blob)
	if err != nil {
		return err
	}
	defer again.close()
	if f.Count, f.Counted = again.Count(); !f.Counted {
		return fmt.Errorf("index %s: format %s counted no records", f.Path, s.spec.Format.Name())
	}
	return nil
}

// openShardOf opens a file with its remembered index, or without one. An index that does not fit is as good as none: the survey
// finds the shard uncounted and it is indexed again.
func (s *Source) openShardOf(ctx context.Context, sh millrace.Shard, g *guard) (*OpenShard, error) {
	blob, _, ok := s.loadIndex(sh)
	if !ok || g.doubts() {
		return s.openFile(ctx, sh, g, nil)
	}
	o, err := s.openFile(ctx, sh, g, blob)
	if err == nil || !IsDamage(err) {
		return o, err
	}
	s.log.Warn("index does not fit its file; it is made again", "file", sh.Path, "err", err)
	return s.openFile(ctx, sh, g, nil)
}

// openShard opens a shard of the manifest, for the shard set. It was there when the source was opened, so that it is waited for.
func (s *Source) openShard(ctx context.Context, shard uint32) (o *OpenShard, err error) {
	sh := s.manifest.Shards[shard]
	err = s.patience.try(ctx, "opening "+sh.Path, Passing, func() error {
		o, err = s.openShardOf(ctx, sh, s.guards[shard])
		return err
	})
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, ctx.Err()
	case err == nil && o.file.Size() != sh.Size:
		o.close()
		return nil, millrace.Errorf(millrace.ErrMismatch, "open shard %s: it had %d bytes and has %d", sh.Path, sh.Size, o.file.Size())
	}
	return o, err
}

// progress adds up the bytes that several shards report.
type progress struct {
	tell  func(done, total int64)
	total int64

	mu   sync.Mutex
	done int64
}

// part returns a function that takes one shard's position and reports the sum.
func (p *progress) part(size int64) func(position int64) {
	last := int64(0)
	return func(position int64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		position = min(max(position, last), size)
		p.done += position - last
		last = position
		p.tell(p.done, p.total)
	}
}
