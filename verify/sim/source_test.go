package sim

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"path/filepath"
	"strconv"

	"millrace"
	"millrace/sources"
)

// numbers is a format of tokens. Each line is the length of a record, or marks it as bad. A file that begins with
// `streams` can only be streamed.
type numbers struct {
	rot *rot // nil: no record goes bad
	p   *process
}

const (
	streams = "streams"
	bad     = "bad"
)

func (numbers) Name() string { return "jsonl" }

func (n numbers) Open(_ context.Context, f sources.File, _ sources.Field, _ sources.Limits,
	_ []byte) (sources.Shard, error) {
	raw, err := io.ReadAll(sources.NewReader(f, 0, f.Size()))
	if err != nil {
		return nil, err
	}
	h := fnv.New32a()
	io.WriteString(h, filepath.Base(filepath.Dir(f.Name()))+filepath.Base(f.Name()))
	s := &shard{numbers: n, name: f.Name(), salt: h.Sum32()}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		switch text := lines.Text(); text {
		case streams:
			s.streams = true
		case bad:
			s.lengths = append(s.lengths, -1)
		default:
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil, millrace.Errorf(millrace.ErrDamaged, "read %s: %v", f.Name(), err)
			}
			s.lengths = append(s.lengths, n)
		}
	}
	return s, nil
}

// shard is a file of numbers. Its tokens encode file, record and position.
type shard struct {
	numbers numbers
	name    string
	salt    uint32
	streams bool
	lengths []int // -1: bad
}

// Abilities implements sources.Shard.
func (s *shard) Abilities() sources.Abilities { return sources.Abilities{Sizes: s, Pieces: s} }

func (s *shard) Count() (uint64, bool)                              { return uint64(len(s.lengths)), !s.streams }
func (s *shard) Seekable() bool                                     { return !s.streams }
func (s *shard) Close() error                                       { return nil }
func (s *shard) Index(context.Context, func(int64)) ([]byte, error) { return nil, nil }

func (s *shard) Scan(_ context.Context, from uint64, fn func(sources.Record) error) error {
	for i := from; i < uint64(len(s.lengths)); i++ {
		if err := fn(s.record(i)); err != nil {
			return err
		}
	}
	return nil
}

func (s *shard) Read(_ context.Context, records []uint64, fn func(sources.Record) error) error {
	for _, i := range records {
		if err := fn(s.record(i)); err != nil {
			return err
		}
	}
	return nil
}

// Size implements sources.Sizer.
func (s *shard) Size(i uint64) uint32 { return uint32(max(s.lengths[i], 0)) }

// ReadPieces implements sources.PieceReader.
func (s *shard) ReadPieces(_ context.Context, parts []sources.DocumentPart, fn func(sources.Record) error) error {
	for _, part := range parts {
		r := s.record(part.Record)
		r.Start, r.Total = part.Start, uint32(len(r.Tokens))
		r.Tokens = r.Tokens[min(part.Start, r.Total):min(part.Start+part.Length, r.Total)]
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *shard) record(i uint64) sources.Record {
	r := sources.Record{Number: i, Offset: -1, Raw: 1}
	file := filepath.Base(filepath.Dir(s.name)) + "/" + filepath.Base(s.name)
	if !s.numbers.rot.reads(s.numbers.p, fmt.Sprintf("%s#%d", file, i), s.lengths[i] < 0) {
		r.Err = millrace.Errorf(millrace.ErrBadSample, "%s#%d is no number", s.name, i)
		return r
	}
	n := s.lengths[i]
	if n < 0 {
		n = healedLength
	}
	r.Raw = int64(4 * n)
	r.Tokens = make([]uint32, n)
	for t := range r.Tokens {
		r.Tokens[t] = s.salt ^ uint32(i)<<12 ^ uint32(t)
	}
	return r
}

// Traits implements sources.Format.
func (numbers) Traits() sources.Traits { return sources.Traits{} }
