package dryrun

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sources"
	"millrace/sources/store/cache"
	"millrace/sources/store/remote"
)

const (
	// scanParallel bounds the files read side by side: a zstd window may take 128 MiB.
	scanParallel = 4
	// shownRejects bounds the bad records listed of one source; all are counted.
	shownRejects = 20
)

// Scan is the result of reading a source's files to their end.
type Scan struct {
	Source  string
	Files   int   // read to their end
	Skipped int   // not read: the budget was spent
	Bytes   int64 // of these files
	Taken   int64 // bytes of these files that their reading took
	Blocks  int64 // bytes of the blocks that a cache of files would keep of them
	Fetched int64 // bytes that came from the store for it; 0 if the files are local
	Records uint64
	Bad     uint64                // records that cannot be decoded
	Rejects []millrace.Quarantine // the first of these
	Broken  []*Problem            // files that are unreadable as a whole

	bad map[millrace.SampleID]bool // all bad records
}

// Complete reports whether every file was read.
func (s *Scan) Complete() bool { return s.Skipped == 0 && len(s.Broken) == 0 }

// ScanOptions say how much is read.
type ScanOptions struct {
	Budget   int64 // bytes of files; negative: all
	Progress func(done, total int64)
}

// target is a file to be read.
type target struct {
	source int
	number uint32 // of the shard in its source
	shard  millrace.Shard

	taken   int64
	blocks  int64
	records uint64
	bad     []uint64 // records that cannot be decoded
	rejects []millrace.Quarantine
	err     error // why it is unreadable as a whole
}

// Scan reads the files of all sources to their end. It decodes every record and tokenises none. When the budget is
// spent, it skips the remaining files. Sources take turns.
func (o *Opened) Scan(ctx context.Context, opt ScanOptions) ([]Scan, error) {
	out := make([]Scan, len(o.Sources))
	targets, total := o.targets(opt.Budget, out)
	s := &scanner{opened: o, total: total, tell: opt.Progress}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(min(scanParallel, runtime.GOMAXPROCS(0)))
	for i := range out {
		out[i].Fetched = -o.fetched(i)
	}
	for i := range targets {
		group.Go(func() error { return s.file(ctx, &targets[i]) })
	}
	err := group.Wait()
	for i := range out {
		out[i].Fetched += o.fetched(i)
	}
	for i := range targets {
		out[targets[i].source].add(&targets[i])
	}
	return out, err
}

// fetched returns the bytes that came from a source's store so far.
func (o *Opened) fetched(source int) int64 {
	if files, ok := o.files[source].(*remote.Files); ok {
		return files.Fetched()
	}
	return 0
}

// add counts a file that was read. The records of a broken file are not counted, because they depend on the damage.
func (s *Scan) add(t *target) {
	if t.err != nil {
		s.Broken = append(s.Broken, &Problem{Source: s.Source, Err: t.err})
		return
	}
	s.Files++
	s.Bytes += t.shard.Size
	s.Taken, s.Blocks = s.Taken+t.taken, s.Blocks+t.blocks
	s.Records += t.records
	s.Bad += uint64(len(t.bad))
	for _, record := range t.bad {
		if s.bad == nil {
			s.bad = map[millrace.SampleID]bool{}
		}
		s.bad[millrace.SampleID{Shard: t.number, Record: record}] = true
	}
	s.Rejects = append(s.Rejects, t.rejects[:min(len(t.rejects), shownRejects-len(s.Rejects))]...)
}

// targets chooses the files, source by source in turn.
func (o *Opened) targets(budget int64, out []Scan) (chosen []target, total int64) {
	ms := o.Manifests()
	for i := range out {
		out[i].Source = ms[i].Source
	}
	for n, more := 0, true; more; n++ {
		more = false
		for i, m := range ms {
			if n >= len(m.Shards) {
				continue
			}
			more = true
			if sh := m.Shards[n]; budget < 0 || total+sh.Size <= budget || n == 0 {
				chosen = append(chosen, target{source: i, number: uint32(n), shard: sh})
				total += sh.Size
			} else {
				out[i].Skipped++
			}
		}
	}
	return chosen, total
}

type scanner struct {
	opened *Opened
	total  int64
	tell   func(done, total int64)

	mu   sync.Mutex
	done int64
}

func (s *scanner) progress(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done += n
	if s.tell != nil {
		s.tell(min(s.done, s.total), s.total)
	}
}

// file reads one file. It notes damage in t. An error ends the reading of all files.
func (s *scanner) file(ctx context.Context, t *target) error {
	src := s.opened.Sources[t.source]
	judge := src.Judge()
	t.err = s.read(ctx, s.opened.files[t.source], src, t, func(r sources.Record) error {
		t.records++
		if _, left := judge.LeavesOut(&r, r.Err); r.Err == nil || left {
			return nil
		}
		t.bad = append(t.bad, r.Number)
		if len(t.rejects) < shownRejects {
			t.rejects = append(
				t.rejects,
				millrace.Quarantine{
					Source: src.Name(),
					ID:     fmt.Sprintf("%s#%d", t.shard.Name, r.Number),
					Offset: r.Offset,
					Reason: r.Err.Error(),
				},
			)
		}
		return nil
	})
	return context.Cause(ctx)
}

func (s *scanner) read(ctx context.Context, files sources.FS, src *sources.Source, t *target,
	take func(sources.Record) error) error {
	path := t.shard.Path
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	counted := &countedFile{File: f, tell: s.progress}
	defer counted.sum(t)
	return sources.Fence(millrace.ErrDamaged, func() string { return path }, func() error {
		shard, err := src.OpenAlone(ctx, t.shard, counted)
		if err != nil {
			return err
		}
		defer shard.Close()
		return shard.Scan(ctx, 0, take)
	})
}

// countedFile calls tell with the number of bytes of each read, and notes the blocks that are read.
type countedFile struct {
	sources.File
	tell func(n int64)

	mu     sync.Mutex
	taken  int64
	blocks map[int64]bool
}

// ReadAt implements io.ReaderAt.
func (f *countedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.tell(int64(n))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken += int64(n)
	if f.blocks == nil {
		f.blocks = map[int64]bool{}
	}
	for at := off / cache.BlockBytes; at*cache.BlockBytes < off+int64(n); at++ {
		f.blocks[at] = true
	}
	return n, err
}

// Expect implements sources.Expecter.
func (f *countedFile) Expect(list func() []sources.Range) (done func()) {
	return sources.Expect(f.File, list)
}

// sum notes the bytes that were read in t.
func (f *countedFile) sum(t *target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t.taken = min(f.taken, f.Size()) // headers are read more than once
	for at := range f.blocks {
		t.blocks += min(cache.BlockBytes, f.Size()-at*cache.BlockBytes)
	}
}
