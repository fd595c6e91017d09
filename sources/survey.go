package sources

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sources/facts/guard"
	"millrace/sources/facts/identity"
	"millrace/sources/find"
)

// surveyor finds out which shards a source has, and indexes them.
type surveyor struct {
	*opener
	guards   *guard.Group
	seen     *guard.Seen
	indexDir string
	settings uint64 // hash of the settings that decide the facts in a shard's head
	unnamed  []Unnamed
	opts     OpenOptions
}

// survey has the shards of a source with the facts from their heads, in the order of their names.
type survey struct {
	shards  []millrace.Shard
	known   []identity.File // of all files of each shard in turn, as they were found to be the shard
	width   int             // most files of a shard
	doubts  map[uint32]bool // shards whose kept index may be of another file
	later   []bool          // new shards that are remembered once they were indexed, or will not be; nil after that
	streams atomic.Int64    // the first shard that only streams, len(shards) if there is none

	mu     sync.Mutex // guards doubts and lacks
	lacks  lackedBy   // the fields that some shards lack
	lacked []bool     // shards that lack a field: they are looked at by each run
}

// files returns the identities of a shard's n files.
func (v *survey) files(shard, n int) []identity.File { return v.known[shard*v.width:][:n:n] }

// settingsOf returns the hash of the settings that decide the facts in a shard's head.
func (s Spec) settingsOf(constants []string) uint64 {
	in := appendText([]byte("millrace facts 1"), settled(s.Format))
	in = appendText(in, s.Field.Text)
	for _, other := range s.Field.Others {
		in = appendText(in, other)
	}
	in = binary.LittleEndian.AppendUint64(in, uint64(s.Limits.SampleBytes))
	if s.wantsCopies() {
		in = append(in, "copies"...)
	}
	for _, name := range constants {
		in = appendText(in, "constant "+name)
	}
	for _, u := range s.Unnamed {
		in = appendText(in, "unnamed "+u.Path)
	}
	return xxh3.Hash(in)
}

// survey looks at every file, several at a time. It reads those that were not seen before.
func (s *surveyor) survey(ctx context.Context, files []find.File) (*survey, error) {
	v := &survey{shards: make([]millrace.Shard, len(files)), doubts: make(map[uint32]bool)}
	v.width = mostPaths(s.format, files)
	v.known = make([]identity.File, len(files)*v.width)
	v.later, v.lacked, v.lacks = make([]bool, len(files)), make([]bool, len(files)), lackedBy{}
	v.streams.Store(int64(len(files)))
	tell := progress{tell: s.opts.Looked, total: int64(len(files))}
	var looked atomic.Int64
	err := each(ctx, len(files), s.opts.Parallel, func(ctx context.Context, i int) error {
		v.shards[i] = millrace.Shard{Name: files[i].Name, Path: files[i].Path}
		if err := s.look(ctx, v, i); err != nil {
			return err
		}
		if n := looked.Add(1); n%1024 == 0 || n == int64(len(files)) {
			s.opts.Tried()
			tell.upTo(n)
		}
		return nil
	})
	if err == nil {
		err = v.lacks.check(len(files))
	}
	return v, err
}

// look finds the facts of one shard: in the memory of exactly this file, else by reading the file.
func (s *surveyor) look(ctx context.Context, v *survey, i int) error {
	sh := &v.shards[i]
	paths := shardPaths(s.format, sh.Path)
	known := v.files(i, len(paths))
	for n, path := range paths {
		var err error
		if known[n], err = s.fs.Identity(path); err != nil {
			return besideError(sh.Path, path, err)
		}
	}
	if !s.opts.Deep && !known[0].IsZero() {
		if digest, facts, ok := s.seen.Recall(sh.Path, known, s.settings); ok {
			sh.Size, sh.Digest = known[0].Size, digest
			sh.Count, sh.Counted = facts.Count, facts.Counted
			v.noteSeekable(i, facts.Seekable)
			return nil
		}
	}
	g := s.guards.Watch(*sh, paths, known)
	var err error
	if sh.Size, sh.Digest, err = s.Digest(sh.Path); err != nil {
		return err
	}
	if s.opts.Deep {
		if err := s.compareDeep(*sh, s.indexDir); err != nil {
			return err
		}
	}
	if err := g.Admit(ctx, *sh); err != nil {
		return err
	}
	if g.Doubts() {
		v.mu.Lock()
		v.doubts[uint32(i)] = true
		v.mu.Unlock()
	}
	return s.inspect(ctx, v, i, g)
}

// besideError explains that a file is missing which the format needs beside a shard's file.
func besideError(shard, path string, err error) error {
	if path == shard || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("look at %s: the file beside it that says where its documents end is missing: %w", shard, err)
}

// noteSeekable notes whether a shard can be read at random.
func (v *survey) noteSeekable(i int, seekable bool) {
	for first := v.streams.Load(); !seekable && int64(i) < first; first = v.streams.Load() {
		if v.streams.CompareAndSwap(first, int64(i)) {
			return
		}
	}
}

// inspect opens a shard with its kept index, and fills in the facts from its head.
func (s *surveyor) inspect(ctx context.Context, v *survey, i int, g *guard.Guard) error {
	o, err := s.open(ctx, v.shards[i], g)
	if err != nil {
		return err
	}
	defer o.close()
	if err := s.checkUnnamed(ctx, v.shards[i], g); err != nil {
		return err
	}
	isRandom := s.readsAtRandom(o)
	v.noteSeekable(i, isRandom)
	v.shards[i].Count, v.shards[i].Counted = o.Count()
	if s.needsCopy(o) {
		v.shards[i].Count, v.shards[i].Counted = 0, false
	}
	if lacks := lacksOf(o.Shard); len(lacks) > 0 {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.lacks.note(lacks)
		v.lacked[i] = true
	}
	if !v.shards[i].Counted && isRandom {
		v.later[i] = true
		return nil
	}
	if v.lacked[i] {
		return nil
	}
	return g.Remember(s.facts(v.shards[i], isRandom))
}

func (s *surveyor) facts(sh millrace.Shard, seekable bool) identity.Facts {
	return identity.Facts{Settings: s.settings, Count: sh.Count, Counted: sh.Counted, Seekable: seekable}
}

// rememberUncounted remembers the new shards of a source that is not indexed.
func (s *surveyor) rememberUncounted(ctx context.Context, v *survey) error {
	return each(ctx, len(v.shards), s.opts.Parallel, func(_ context.Context, i int) error {
		if !v.later[i] || v.lacked[i] {
			return nil
		}
		return v.watch(s.guards, s.format, uint32(i)).Remember(s.facts(v.shards[i], true))
	})
}

// watch returns the guard of a surveyed shard.
func (v *survey) watch(group *guard.Group, format Format, shard uint32) *guard.Guard {
	sh := v.shards[shard]
	paths := shardPaths(format, sh.Path)
	g := group.Watch(sh, paths, v.files(int(shard), len(paths)))
	v.mu.Lock()
	defer v.mu.Unlock()
	if g != nil && v.doubts[shard] {
		g.Doubt()
	}
	return g
}

// indexAll counts and indexes the shards that global order cannot read yet, several at a time. Finished indexes are
// kept in batches, so an interrupted run continues near the place where it ended.
func (s *surveyor) indexAll(ctx context.Context, v *survey) error {
	tell := &progress{tell: s.opts.Progress}
	var todo []int
	for i := range v.shards {
		if !v.shards[i].Counted {
			tell.total += v.shards[i].Size
			todo = append(todo, i)
		}
	}
	return each(ctx, len(todo), s.opts.Parallel, func(ctx context.Context, n int) error {
		return s.indexShard(ctx, v, todo[n], tell)
	})
}

func (s *surveyor) indexShard(ctx context.Context, v *survey, i int, tell *progress) error {
	sh := &v.shards[i]
	g := v.watch(s.guards, s.format, uint32(i))
	o, err := s.open(ctx, *sh, g)
	if err != nil {
		return err
	}
	part := tell.part(sh.Size)
	if o, err = s.complete(ctx, o, *sh, g, part); err != nil {
		return err
	}
	defer o.close()
	part(sh.Size)
	if sh.Count, sh.Counted = o.Count(); !sh.Counted {
		return fmt.Errorf("index %s: format %s counted no records", sh.Path, s.format.Name())
	}
	v.mu.Lock()
	delete(v.doubts, uint32(i))
	v.mu.Unlock()
	if v.lacked[i] {
		return nil
	}
	return g.Remember(s.facts(*sh, o.Seekable()))
}

// each calls act for 0 … n−1 on several goroutines, until one fails or ctx ends.
func each(ctx context.Context, n, parallel int, act func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(parallel, n) {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := act(ctx, i); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// progress adds up the bytes, or the number, of shards that report at the same time.
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

// upTo reports that n are done, if fewer were before.
func (p *progress) upTo(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > p.done {
		p.done = n
		p.tell(n, p.total)
	}
}
