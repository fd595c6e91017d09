package dryrun

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sources"
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
	for i := range targets {
		group.Go(func() error { return s.file(ctx, &targets[i]) })
	}
	err := group.Wait()
	for i := range targets {
		out[targets[i].source].add(&targets[i])
	}
	return out, err
}

// add counts a file that was read. The records of a broken file are not counted, because they depend on the damage.
func (s *Scan) add(t *target) {
	if t.err != nil {
		s.Broken = append(s.Broken, &Problem{Source: s.Source, Err: t.err})
		return
	}
	s.Files++
	s.Bytes += t.shard.Size
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
	t.err = s.read(ctx, s.opened.files[t.source], src, t.shard.Path, func(r sources.Record) error {
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

func (s *scanner) read(ctx context.Context, files sources.FS, src *sources.Source, path string,
	take func(sources.Record) error) error {
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	counted := &countedFile{File: f, tell: s.progress}
	return sources.Fence(millrace.ErrDamaged, func() string { return path }, func() error {
		shard, err := src.OpenAlone(ctx, counted)
		if err != nil {
			return err
		}
		defer shard.Close()
		return shard.Scan(ctx, 0, take)
	})
}

// countedFile calls tell with the number of bytes of each read.
type countedFile struct {
	sources.File
	tell func(n int64)
}

// ReadAt implements io.ReaderAt.
func (f *countedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.tell(int64(n))
	return n, err
}
