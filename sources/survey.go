package sources

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sources/find"
	"millrace/sources/guard"
)

// opener opens shards of one source.
type opener struct {
	evidence
	field  Field
	limits Limits
}

// open opens a file with its kept index, or without one. If the index does not fit, it opens without one: the survey
// finds the shard uncounted and indexes it again.
func (op *opener) open(ctx context.Context, sh millrace.Shard, g *guard.Guard) (*OpenShard, error) {
	blob, _, ok := op.loadIndex(sh)
	if !ok || g.Doubts() {
		return op.openWith(ctx, sh, g, nil)
	}
	o, err := op.openWith(ctx, sh, g, blob)
	if err == nil || !IsDamage(err) {
		return o, err
	}
	op.log.Warn("index does not fit its file; it is made again", "file", sh.Path, "err", err)
	return op.openWith(ctx, sh, g, nil)
}

// openWith opens a shard's file and reads its head; the index may be nil.
func (op *opener) openWith(ctx context.Context, sh millrace.Shard, g *guard.Guard, index []byte) (*OpenShard, error) {
	f, err := op.fs.Open(sh.Path)
	if err != nil {
		return nil, err
	}
	file := &retryFile{OpenFile: f, patience: op.patience, guard: g}
	if err := file.check(); err != nil {
		f.Close()
		return nil, err
	}
	o := &OpenShard{file: file}
	what := func() string { return sh.Path }
	err = Fence(millrace.ErrDamaged, what, func() (err error) {
		o.Shard, err = op.format.Open(ctx, file, op.field, op.limits, index)
		return err
	})
	if err != nil {
		err = o.Explain(err)
		f.Close()
		return nil, err
	}
	return o, nil
}

// openAgain opens a shard of the manifest. The shard was there when the source was opened, so openAgain waits for it.
func (op *opener) openAgain(ctx context.Context, sh millrace.Shard, g *guard.Guard) (o *OpenShard, err error) {
	err = op.patience.try(ctx, "opening "+sh.Path, Passing, func() error {
		o, err = op.open(ctx, sh, g)
		return err
	})
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, ctx.Err()
	case err == nil && o.file.Size() != sh.Size:
		o.close()
		return nil, millrace.Errorf(millrace.ErrMismatch,
			"open shard %s: it had %d bytes and has %d; restore the file, or begin a new run with it",
			sh.Path, sh.Size, o.file.Size())
	}
	return o, err
}

// surveyor finds out which shards a source has, and indexes them.
type surveyor struct {
	*opener
	guards   *guard.Group
	indexDir string
	opts     OpenOptions
}

// surveyed is a shard with the facts from its head.
type surveyed struct {
	millrace.Shard
	seekable bool
	guard    *guard.Guard
}

// survey digests and opens every file, several at a time.
func (s *surveyor) survey(ctx context.Context, files []find.File) ([]surveyed, error) {
	found := make([]surveyed, len(files))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.opts.Parallel)
	for i, f := range files {
		g.Go(func() (err error) {
			found[i], err = s.surveyFile(ctx, f)
			return err
		})
	}
	return found, g.Wait()
}

func (s *surveyor) surveyFile(ctx context.Context, f find.File) (surveyed, error) {
	out := surveyed{Shard: millrace.Shard{Name: f.Name, Path: f.Path}}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	var err error
	if out.guard, err = s.guards.New(out.Shard, shardPaths(s.format, f.Path)); err != nil {
		return out, err
	}
	if out.Size, out.Digest, err = s.Digest(f.Path); err != nil {
		return out, err
	}
	if s.opts.Deep {
		if err := s.compareDeep(out.Shard, s.indexDir); err != nil {
			return out, err
		}
	}
	if err := out.guard.Admit(ctx, out.Shard); err != nil {
		return out, err
	}
	return out, s.inspect(ctx, &out)
}

// inspect opens a shard with its kept index, and fills in the facts from its head.
func (s *surveyor) inspect(ctx context.Context, f *surveyed) error {
	o, err := s.open(ctx, f.Shard, f.guard)
	if err != nil {
		return err
	}
	defer o.close()
	f.seekable = o.Seekable()
	f.Count, f.Counted = o.Count()
	return nil
}

// indexAll counts and indexes the shards that global order cannot read yet, several at a time. Each finished index is
// kept at once, so an interrupted run continues with the next shard.
func (s *surveyor) indexAll(ctx context.Context, found []surveyed) error {
	tell := &progress{tell: s.opts.Progress}
	for _, f := range found {
		if !f.Counted {
			tell.total += f.Size
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.opts.Parallel)
	for i := range found {
		if found[i].Counted {
			continue
		}
		g.Go(func() error { return s.indexShard(ctx, &found[i], tell) })
	}
	return g.Wait()
}

func (s *surveyor) indexShard(ctx context.Context, f *surveyed, tell *progress) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o, err := s.open(ctx, f.Shard, f.guard)
	if err != nil {
		return err
	}
	defer o.close()
	o.file.hash = newContentHash()
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
		f.guard.NoteIndexed(content != nil)
	}
	again, err := s.openWith(ctx, f.Shard, f.guard, blob)
	if err != nil {
		return err
	}
	defer again.close()
	if f.Count, f.Counted = again.Count(); !f.Counted {
		return fmt.Errorf("index %s: format %s counted no records", f.Path, s.format.Name())
	}
	return nil
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
