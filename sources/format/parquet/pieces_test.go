package parquet_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	apq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parquet"
	"millrace/sources/sourcetest"
)

// longTexts makes rows of some KB, and a few that are longer than a piece. None is null.
func longTexts(n int, repeat bool) []*string {
	rng := rand.New(rand.NewPCG(1, 9))
	out := make([]*string, n)
	for i := range out {
		number := i
		if repeat {
			number = i % 900
			rng = rand.New(rand.NewPCG(1, uint64(number)))
		}
		var b strings.Builder
		for b.Len() < 500+rng.IntN(4000) {
			fmt.Fprintf(&b, "row %d has %x. ", number, rng.Uint32())
		}
		s := b.String()
		if number%97 == 5 {
			s = strings.Repeat(s, 80)
		}
		if number%31 == 3 {
			s = ""
		}
		out[i] = &s
	}
	return out
}

// countedFile counts the bytes that are read.
type countedFile struct {
	sources.OpenFile
	read *atomic.Int64
}

func (f countedFile) ReadAt(p []byte, off int64) (int, error) {
	f.read.Add(int64(len(p)))
	return f.OpenFile.ReadAt(p, off)
}

// TestFewRowsOfLargePages: rows that are read alone are those of their pages, for every codec, version and encoding.
// From the second reading on, a few rows of a page of plain strings cost a small part of its bytes.
func TestFewRowsOfLargePages(t *testing.T) {
	for _, codec := range []compress.Compression{compress.Codecs.Snappy, compress.Codecs.Uncompressed,
		compress.Codecs.Zstd} {
		for _, version := range []apq.DataPageVersion{apq.DataPageV1, apq.DataPageV2} {
			for _, kind := range []string{"plain", "dictionary"} {
				for _, field := range []string{"text", "with.dot"} {
					t.Run(fmt.Sprint(codec, version, kind, field), func(t *testing.T) {
						testFewRows(t, codec, version, kind == "dictionary", field)
					})
				}
			}
		}
	}
}

func testFewRows(t *testing.T, codec compress.Compression, version apq.DataPageVersion, dictionary bool,
	field string) {
	rows := longTexts(2000, dictionary)
	file := byArrow(t, rows, 1000, v(version), apq.WithCompression(codec), apq.WithDictionaryDefault(dictionary),
		apq.WithDataPageSize(1<<21), apq.WithDictionaryPageSizeLimit(1<<24))
	f, err := sourcetest.Files{"a.parquet": file}.Open("a.parquet")
	if err != nil {
		t.Fatal(err)
	}
	var read atomic.Int64
	s, err := keeping().Open(
		t.Context(),
		countedFile{f, &read},
		sources.Field{Text: field},
		sources.Limits{}.Resolved(),
		nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	var costs []int64
	for from := range 8 {
		var numbers []uint64
		for n := from * 37 % 401; n < len(rows); n += 401 {
			numbers = append(numbers, uint64(n))
		}
		before, at := read.Load(), 0
		if err := s.Read(t.Context(), numbers, func(r sources.Record) error {
			if want := *rows[numbers[at]]; r.Err != nil || r.Number != numbers[at] || string(r.Text) != want {
				t.Fatalf("record %d has %d bytes, %v, want %d", r.Number, len(r.Text), r.Err, len(want))
			}
			at++
			return nil
		}); err != nil || at != len(numbers) {
			t.Fatalf("read %d of %d: %v", at, len(numbers), err)
		}
		costs = append(costs, read.Load()-before)
	}
	if codec != compress.Codecs.Zstd && costs[7] > costs[0]/2 {
		t.Errorf("the readings cost %d bytes of %d", costs, len(file))
	}
	known, told := parquet.KnownMemory(s), s.Abilities().Memory.Memory()
	if known == 0 || told < known || told > 64<<10 {
		t.Errorf("the shard says that it takes %d bytes; its pages and pieces take %d", told, known)
	}
}

// TestChangedPieces: rows that are read alone from a file that changed after its pages were decoded are those of
// before, or an error. They are never others.
func TestChangedPieces(t *testing.T) {
	rows := longTexts(1200, false)
	whole := byArrow(t, rows, 600, apq.WithCompression(compress.Codecs.Snappy), apq.WithDictionaryDefault(false),
		apq.WithDataPageSize(1<<21))
	numbers := []uint64{3, 70, 150, 290, 410, 755, 1000, 1190}
	damaged := 0
	for at := len(whole) / 90; at < len(whole); at += len(whole) / 90 {
		file := append([]byte(nil), whole...)
		f, err := sourcetest.Files{"a.parquet": file}.Open("a.parquet")
		if err != nil {
			t.Fatal(err)
		}
		s, err := keeping().Open(t.Context(), f, sources.Field{Text: "text"}, sources.Limits{}.Resolved(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var seen []string
		take := func(r sources.Record) error {
			if seen = append(seen, string(r.Text)); r.Err != nil {
				return r.Err
			}
			return nil
		}
		if err := s.Read(t.Context(), numbers, take); err != nil {
			t.Fatal(err)
		}
		file[at] ^= 0x55
		seen = nil
		err = s.Read(t.Context(), numbers, take)
		if err != nil && !errors.Is(err, millrace.ErrDamaged) && !errors.Is(err, millrace.ErrBadSample) {
			t.Fatalf("byte %d changed: %v", at, err)
		}
		for i, text := range seen {
			if err == nil && text != *rows[numbers[i]] {
				t.Errorf("byte %d changed: row %d has another text", at, numbers[i])
			}
		}
		if err != nil {
			damaged++
		}
	}
	if damaged == 0 {
		t.Error("no change was in a page that was read")
	}
}
