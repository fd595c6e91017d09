package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"millrace"
	"millrace/sources"
)

// mostRecords is the number of records after which a reader counts as endless.
const mostRecords = 1 << 20

// record is the content of a record of a dataset.
type record struct {
	shard  string
	number uint64
	text   []byte
	tokens []uint32
	others []any
	why    string // of a bad record
}

func (r *record) equal(o *record) bool {
	return r.shard == o.shard && r.number == o.number && r.why == o.why && bytes.Equal(r.text, o.text) &&
		slices.Equal(r.tokens, o.tokens) && reflect.DeepEqual(r.others, o.others)
}

func (r *record) String() string {
	return fmt.Sprintf("%s#%d %.60q %v %v %s", r.shard, r.number, r.text, r.tokens, r.others, r.why)
}

// fault is a broken rule of reading.
type fault struct{ error }

func faulty(format string, args ...any) error { return fault{fmt.Errorf(format, args...)} }

// readAll surveys, indexes and reads a source as a run does: all records in order, then some at random, and then all
// again from a source that is opened anew.
func readAll(ctx context.Context, spec sources.Spec, rng *rand.Rand) ([]*record, error) {
	first, err := readOnce(ctx, spec, rng)
	again, errAgain := readOnce(ctx, spec, nil)
	if text(err) != text(errAgain) {
		return nil, faulty("the first time the error is %v, the second time %v", err, errAgain)
	}
	if err != nil {
		return first, err
	}
	return first, same("the second time", again, first)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func same(what string, got, want []*record) error {
	if len(got) != len(want) {
		return faulty("%s there are %d records, before there were %d", what, len(got), len(want))
	}
	for i := range got {
		if !got[i].equal(want[i]) {
			return faulty("%s record %d is %v, before it was %v", what, i, got[i], want[i])
		}
	}
	return nil
}

// readOnce reads a source in order, and at random if rng is not nil.
func readOnce(ctx context.Context, spec sources.Spec, rng *rand.Rand) (all []*record, err error) {
	s, err := sources.Open(ctx, spec, sources.OpenOptions{Parallel: 1})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	m := s.Manifest()
	for i := range m.Shards {
		o, err := s.Acquire(ctx, uint32(i))
		if err != nil {
			return all, err
		}
		found, err := readShard(ctx, o, m.Shards[i], rng)
		s.Release(o)
		all = append(all, found...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func readShard(ctx context.Context, o *sources.OpenShard, sh millrace.Shard, rng *rand.Rand) (found []*record,
	err error) {
	err = collect(&found, sh.Name, func(fn func(sources.Record) error) error { return o.Scan(ctx, 0, fn) })
	if err != nil {
		return found, o.Explain(err)
	}
	if count, ok := o.Count(); ok && count != uint64(len(found)) {
		return found, faulty("%s: the count is %d, and there are %d records", sh.Name, count, len(found))
	}
	if err := lengthsFit(o.Shard, found); err != nil {
		return found, err
	}
	if rng == nil || !sh.Counted || !o.Seekable() {
		return found, nil
	}
	for _, numbers := range someOf(rng, len(found)) {
		var got, want []*record
		err := collect(&got, sh.Name, func(fn func(sources.Record) error) error { return o.Read(ctx, numbers, fn) })
		if err != nil {
			return found, o.Explain(err)
		}
		for _, n := range numbers {
			want = append(want, found[n])
		}
		if err := same("at random", got, want); err != nil {
			return found, err
		}
	}
	return found, nil
}

// lengthsFit checks that the lengths that are known without reading are those of the records.
func lengthsFit(s sources.Shard, found []*record) error {
	l := s.Abilities().Lengths
	if l == nil {
		return nil
	}
	for i, r := range found {
		if n, known := l.Length(uint64(i)); known && (r.why != "" || n != uint32(len(r.tokens))) {
			return faulty("the length of record %d is %d, and it is %v", i, n, r)
		}
	}
	return nil
}

// someOf returns sets of ascending numbers below n: all of them, and a few alone in random order.
func someOf(rng *rand.Rand, n int) (sets [][]uint64) {
	var all []uint64
	for i := range n {
		all = append(all, uint64(i))
	}
	for range min(n, 4) {
		sets = append(sets, []uint64{rng.Uint64N(uint64(n))})
	}
	return append(sets, all)
}

func collect(to *[]*record, shard string, walk func(fn func(sources.Record) error) error) error {
	return walk(func(r sources.Record) error {
		out := &record{shard: shard, number: r.Number, text: bytes.Clone(r.Text), tokens: slices.Clone(r.Tokens),
			others: slices.Clone(r.Others)}
		for i, v := range out.others {
			if missing, ok := v.(*sources.MissingError); ok {
				out.others[i] = missing.Error()
			}
		}
		if r.Err != nil {
			out.why = r.Err.Error()
			if !errors.Is(r.Err, millrace.ErrBadSample) {
				return faulty("record %d has an error that is not of a bad record: %w", r.Number, r.Err)
			}
		}
		if *to = append(*to, out); len(*to) > mostRecords {
			return faulty("the records do not end")
		}
		return nil
	})
}

// readWithIndex reads the damaged files below dir with the indexes of the whole files, as after a silent change of a
// disk.
func readWithIndex(ctx context.Context, spec sources.Spec, indexes map[string][]byte) error {
	for _, path := range sortedKeys(indexes) {
		if err := readIndexed(ctx, spec, path, indexes[path]); err != nil {
			return err
		}
	}
	return nil
}

func readIndexed(ctx context.Context, spec sources.Spec, path string, index []byte) error {
	f, err := sources.OSFS().Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := spec.Format.Open(ctx, f, spec.Field, spec.Limits, index)
	if err != nil {
		return err
	}
	defer s.Close()
	var found, again []*record
	err = collect(&found, path, func(fn func(sources.Record) error) error { return s.Scan(ctx, 0, fn) })
	if err != nil {
		return err
	}
	count, ok := s.Count()
	if !ok || !s.Seekable() {
		return nil
	}
	var numbers []uint64
	for n := range count {
		numbers = append(numbers, n)
	}
	return collect(&again, path, func(fn func(sources.Record) error) error { return s.Read(ctx, numbers, fn) })
}

// indexesOf returns the index of every shard of a whole sample, by the path of its file.
func indexesOf(ctx context.Context, spec sources.Spec) (map[string][]byte, error) {
	s, err := sources.Open(ctx, spec, sources.OpenOptions{Parallel: 1})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	out := map[string][]byte{}
	for i, sh := range s.Manifest().Shards {
		o, err := s.Acquire(ctx, uint32(i))
		if err != nil {
			return nil, err
		}
		blob, err := o.Index(ctx, func(int64) {})
		s.Release(o)
		if err != nil {
			return nil, err
		}
		out[filepath.Clean(sh.Path)] = blob
	}
	return out, nil
}

// replace writes a file anew, so that its content is b.
func replace(path string, b []byte) error { return os.WriteFile(path, b, 0o644) }
