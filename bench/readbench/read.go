package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"time"

	"millrace/app/config"
	"millrace/app/setup"
	"millrace/sources"
	"millrace/sources/find"
	"millrace/sources/format/registry"
)

// options has the flags.
type options struct {
	format, text string
	random       bool
	group        int
	least        time.Duration
}

// result has the figures. Seconds are CPU time of the process; a record's bytes are those of its document.
type result struct {
	Documents int     `json:"documents"` // in the files
	CRC       uint32  `json:"crc"`       // of all documents in file order
	Indexed   float64 `json:"index_seconds"`
	Records   int     `json:"records"` // that were read
	Bytes     int64   `json:"bytes"`   // of their documents
	CPU       float64 `json:"cpu_seconds"`
	Wall      float64 `json:"wall_seconds"`
	Allocs    uint64  `json:"allocs"`
	Allocated uint64  `json:"allocated_bytes"`
}

// shards are the open files of a measurement, in the order of their names.
type shards struct {
	files   []sources.OpenFile
	open    []sources.Shard
	indexed time.Duration // CPU time of indexing
}

// open opens the files below paths. Files that only a scan can count are indexed first.
func open(ctx context.Context, o options, paths []string) (*shards, error) {
	found, err := find.Resolve(nil, find.Query{Base: ".", Patterns: paths, Format: o.format})
	if err != nil {
		return nil, err
	}
	settings := &config.Source{Format: registry.Name(o.format), Record: "text"}
	if settings.Format == registry.TFRecord {
		settings.Record = "example"
	}
	format, err := setup.Format(settings, sources.OSFS())
	if err != nil {
		return nil, err
	}
	s := &shards{}
	for _, file := range found.Files {
		if err := s.add(ctx, format, file.Path, sources.Field{Text: o.text}); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

func (s *shards) add(ctx context.Context, format sources.Format, path string, field sources.Field) error {
	limits := sources.Limits{}.Resolved()
	f, err := sources.OSFS().Open(path)
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	shard, err := format.Open(ctx, f, field, limits, nil)
	if err != nil {
		return err
	}
	if _, ok := shard.Count(); !ok {
		before := processTime()
		index, err := shard.Index(ctx, func(int64) {})
		s.indexed += processTime() - before
		shard.Close()
		if err != nil {
			return err
		}
		if shard, err = format.Open(ctx, f, field, limits, index); err != nil {
			return err
		}
	}
	s.open = append(s.open, shard)
	return nil
}

func (s *shards) close() {
	for _, shard := range s.open {
		shard.Close()
	}
	for _, f := range s.files {
		f.Close()
	}
}

// check reads all records once, and sums their documents up.
func (s *shards) check(ctx context.Context, out *result) error {
	var ids []byte
	return s.scan(ctx, func(r sources.Record) error {
		if r.Err != nil {
			return r.Err
		}
		out.Documents++
		ids = ids[:0]
		for _, id := range r.Tokens {
			ids = binary.LittleEndian.AppendUint32(ids, id)
		}
		out.CRC = crc32.Update(crc32.Update(out.CRC, crc32.IEEETable, r.Text), crc32.IEEETable, ids)
		return nil
	})
}

func (s *shards) scan(ctx context.Context, fn func(sources.Record) error) error {
	for _, shard := range s.open {
		if err := shard.Scan(ctx, 0, fn); err != nil {
			return err
		}
	}
	return nil
}

// measure reads for o.least, in whole passes or at random.
func (s *shards) measure(ctx context.Context, o options, out *result) error {
	sum := func(r sources.Record) error {
		out.Records++
		out.Bytes += int64(len(r.Text) + 4*len(r.Tokens))
		return r.Err
	}
	pass := func() error { return s.scan(ctx, sum) }
	if o.random {
		order, err := s.shuffled(o.group)
		if err != nil {
			return err
		}
		next := 0
		pass = func() error { // a part of an epoch, so that slow readers end in time
			for range min(64, len(order)) {
				some := order[next%len(order)]
				next++
				if err := s.open[some.shard].Read(ctx, some.numbers, sum); err != nil {
					return err
				}
			}
			return nil
		}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := processTime(), time.Now()
	for time.Since(start) < o.least {
		if err := pass(); err != nil {
			return err
		}
	}
	out.CPU, out.Wall = (processTime() - cpu).Seconds(), time.Since(start).Seconds()
	runtime.ReadMemStats(&after)
	out.Allocs, out.Allocated = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	return nil
}

// read is one random read of a shard: ascending numbers of records.
type read struct {
	shard   int
	numbers []uint64
}

// shuffled returns all records of all shards in random order, in groups of one shard each.
func (s *shards) shuffled(group int) ([]read, error) {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []read
	for i, shard := range s.open {
		n, ok := shard.Count()
		if !ok || !shard.Seekable() {
			return nil, fmt.Errorf("%s cannot be read at random", s.files[i].Name())
		}
		numbers := make([]uint64, n)
		for k := range numbers {
			numbers[k] = uint64(k)
		}
		rng.Shuffle(len(numbers), func(a, b int) { numbers[a], numbers[b] = numbers[b], numbers[a] })
		for some := range slices.Chunk(numbers, group) {
			slices.Sort(some)
			all = append(all, read{i, some})
		}
	}
	rng.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
	return all, nil
}

// processTime returns the user and system time of the process.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // cannot fail for RUSAGE_SELF
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
