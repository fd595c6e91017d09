package parquet_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow/go/v17/parquet/compress"

	apq "github.com/apache/arrow/go/v17/parquet"
	pq "github.com/parquet-go/parquet-go"

	"millrace/sources"
	"millrace/sources/facts/identity"
	"millrace/sources/format/parquet"
	"millrace/sources/sourcetest"
)

// farFile is a file that fetches bytes before they are read, as those of stores do. It notes how it is used.
type farFile struct {
	sources.OpenFile
	t testing.TB

	mu    sync.Mutex
	asked int                     // announcements with ranges, and reads of other bytes: each takes a round trip
	open  map[int][]sources.Range // announcements
}

func (f *farFile) Expect(list func() []sources.Range) (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ranges := list()
	if len(ranges) == 0 {
		return func() {}
	}
	for i, r := range ranges {
		if r.Start < 0 || r.Start >= r.End || r.End > f.Size() || i > 0 && r.Start < ranges[i-1].Start {
			f.t.Errorf("range %d of %v of %d bytes", i, ranges, f.Size())
		}
	}
	f.asked++
	n := f.asked
	if f.open == nil {
		f.open = map[int][]sources.Range{}
	}
	f.open[n] = ranges
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.open[n] == nil {
			f.t.Errorf("announcement %d is taken back twice", n)
		}
		delete(f.open, n)
	}
}

func (f *farFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	isAnnounced := false
	for _, ranges := range f.open {
		for _, r := range ranges {
			isAnnounced = isAnnounced || off >= r.Start && off+int64(len(p)) <= r.End
		}
	}
	if !isAnnounced {
		f.asked++
	}
	f.mu.Unlock()
	return f.OpenFile.ReadAt(p, off)
}

// left returns the announcements that were not taken back, and the round trips since it was called last.
func (f *farFile) left() (open, asked int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, f.asked = f.asked, 0
	return len(f.open), asked
}

// farFormat opens files as far ones.
type farFormat struct {
	parquet.Format
	t testing.TB
}

func (f farFormat) Open(ctx context.Context, file sources.File, field sources.Field, lim sources.Limits,
	index []byte) (sources.Shard, error) {
	return f.Format.Open(ctx, &farFile{OpenFile: opened{file}, t: f.t}, field, lim, index)
}

// opened makes an OpenFile of a file.
type opened struct{ sources.File }

func (opened) Close() error                     { return nil }
func (opened) Identity() (identity.File, error) { return identity.File{}, nil }

// TestContractFar: a file whose bytes are fetched before they are read has the same records.
func TestContractFar(t *testing.T) {
	rows := texts(600, true)
	whole := texts(600, false)
	long := longTexts(1200, false)
	var dict []dictRow
	for _, r := range rows {
		dict = append(dict, dictRow{r})
	}
	sourcetest.Run(t, "parquet", func(sources.FS) sources.Format { return farFormat{t: t} }, []sourcetest.Fixture{
		fixture("small chunks", "text", byArrow(t, rows, 50, apq.WithDataPageSize(3000), apq.WithBatchSize(16)),
			wants(rows)),
		fixture("large chunks", "text", byArrow(t, long, 900, apq.WithCompression(compress.Codecs.Snappy),
			apq.WithDataPageSize(100_000), apq.WithBatchSize(8), apq.WithDictionaryDefault(false)), wants(long)),
		fixture("dictionary overflows into plain", "text", byArrow(t, whole, 600,
			apq.WithDictionaryPageSizeLimit(2000), apq.WithDataPageSize(2000), apq.WithBatchSize(16)), wants(whole)),
		fixture("page index", "text", byParquetGo(t, dict, pq.PageBufferSize(2000), pq.Compression(&pq.Snappy)),
			wants(rows)),
		fixture("page index, large chunks", "text", byParquetGo(t, plainRows(long), pq.PageBufferSize(100_000),
			pq.MaxRowsPerRowGroup(900)), wants(long)),
	})
}

func plainRows(texts []*string) (rows []plainRow) {
	for _, r := range texts {
		rows = append(rows, plainRow{*r})
	}
	return rows
}

// TestRoundTrips: a random read of many pages takes a few round trips, not one a page. Afterwards nothing is announced.
func TestRoundTrips(t *testing.T) {
	rows := farRows(3000)
	for _, c := range []struct {
		name                 string
		file                 []byte
		field                sources.Field
		open, first, further int // round trips
	}{
		{"page index, text", withIndex(t, rows, 1000), sources.Field{Text: "text"}, 1, 2, 1},
		{"page index, ids", withIndex(t, rows, 1000), sources.Field{Others: []string{"ids"}}, 1, 2, 1},
		{"page index, both", withIndex(t, rows, 1000), sources.Field{Text: "text", Others: []string{"ids"}}, 1, 3, 2},
		// statistics with long texts make a long footer, which takes a read of its own
		{"no index, small chunks", withoutIndex(t, rows, 500), sources.Field{Text: "text"}, 2, 1, 1},
		// of each of the two row groups, a stretch with its first header, and the rest
		{"no index, large chunks", withoutIndex(t, rows, 1500), sources.Field{Text: "text"}, 1, 5, 1},
	} {
		inner, err := sourcetest.Files{"a.parquet": c.file}.Open("a.parquet")
		if err != nil {
			t.Fatal(err)
		}
		f := &farFile{OpenFile: inner, t: t}
		s, err := keeping().Open(t.Context(), f, c.field, sources.Limits{}.Resolved(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if open, asked := f.left(); open != 0 || asked != c.open {
			t.Errorf("%s: the file was opened with %d round trips, and %d announcements are left", c.name, asked, open)
		}
		for i, most := range []int{c.first, c.further} {
			var numbers []uint64
			for n := i * 7; n < len(rows); n += 101 {
				numbers = append(numbers, uint64(n))
			}
			if err := s.Read(t.Context(), numbers, func(r sources.Record) error {
				if r.Err == nil && c.field.Text != "" && string(r.Text) != rows[r.Number].Text {
					return fmt.Errorf("record %d is another", r.Number)
				}
				return r.Err
			}); err != nil {
				t.Fatal(err)
			}
			if open, asked := f.left(); open != 0 || asked > most {
				t.Errorf("%s: read %d took %d round trips, want %d; %d announcements are left", c.name, i, asked, most,
					open)
			}
		}
		n := 0
		if err := s.Scan(t.Context(), 0, func(r sources.Record) error {
			n++
			return r.Err
		}); err != nil || n != len(rows) {
			t.Errorf("%s: %d records, %v", c.name, n, err)
		}
		if open, asked := f.left(); open != 0 || asked > 4 {
			t.Errorf("%s: a scan took %d round trips, and %d announcements are left", c.name, asked, open)
		}
	}
}

type farRow struct {
	Text string  `parquet:"text,plain"`
	IDs  []int32 `parquet:"ids,list"`
}

// farRows makes texts of about 2 KB and lists of about 300 ids.
func farRows(n int) []farRow {
	rng := rand.New(rand.NewPCG(4, 2))
	words := strings.Fields("the quick brown fox jumps over the lazy dog and it was all the same to him because nobody")
	rows := make([]farRow, n)
	for i := range rows {
		var b strings.Builder
		for range 300 + rng.IntN(100) {
			fmt.Fprintf(&b, "%s%d ", words[rng.IntN(len(words))], rng.IntN(10))
		}
		rows[i].Text = b.String()
		for range rng.IntN(600) {
			rows[i].IDs = append(rows[i].IDs, rng.Int32N(50_000))
		}
	}
	return rows
}

func withIndex(t testing.TB, rows []farRow, group int64) []byte {
	var out bytes.Buffer
	w := pq.NewGenericWriter[farRow](&out, pq.PageBufferSize(1<<20), pq.MaxRowsPerRowGroup(group),
		pq.Compression(&pq.Snappy), pq.DataPageVersion(1))
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func withoutIndex(t testing.TB, rows []farRow, group int64) []byte {
	texts := make([]*string, len(rows))
	for i := range rows {
		texts[i] = &rows[i].Text
	}
	return byArrow(t, texts, group, apq.WithCompression(compress.Codecs.Snappy), apq.WithDictionaryDefault(false),
		apq.WithDataPageSize(1<<20), apq.WithBatchSize(64))
}
