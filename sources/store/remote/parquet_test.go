package remote

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"millrace/sources"
	"millrace/sources/format/parquet"
)

// BenchmarkParquet reads a Parquet file from a store that answers after 50 ms, with a page index and without one: 32
// records at random just after the file was opened, further 32 records, and all records in order.
func BenchmarkParquet(b *testing.B) {
	const records, latency = 32, 50 * time.Millisecond
	rows := parquetRows(20_000)
	for _, c := range []struct {
		name  string
		group int64 // rows
		field sources.Field
	}{
		{"text", 10_000, sources.Field{Text: "text"}},
		{"ids", 10_000, sources.Field{Others: []string{"ids"}}},
		{"text, groups of 500", 500, sources.Field{Text: "text"}},
	} {
		indexed := parquetFile(b, rows, c.group)
		for _, file := range []struct {
			name    string
			content []byte
		}{{"page index", indexed}, {"no page index", withoutPageIndex(b, indexed)}} {
			s := newFileStore(b, latency, file.content)
			for _, part := range []string{"first", "further", "in order"} {
				b.Run(c.name+"/"+file.name+"/"+part, func(b *testing.B) {
					rng := rand.New(rand.NewPCG(1, 1))
					shard := s.open(b, c.field)
					read := func() int {
						var numbers []uint64
						for i := range uint64(records) {
							numbers = append(numbers, (i*uint64(len(rows))+rng.Uint64N(uint64(len(rows))))/records)
						}
						return readAll(b, func(take func(sources.Record) error) error {
							return shard.Read(b.Context(), numbers, take)
						})
					}
					if part == "further" {
						read()
					}
					n := 0
					requests, sent := s.requests.Load(), s.bytes.Load()
					for b.Loop() {
						if part != "further" {
							shard = s.open(b, c.field)
						}
						if part == "in order" {
							n += readAll(b, func(take func(sources.Record) error) error {
								return shard.Scan(b.Context(), 0, take)
							})
							continue
						}
						n += read()
					}
					per := float64(n)
					b.ReportMetric(float64(s.requests.Load()-requests)/per, "requests/record")
					b.ReportMetric(float64(s.bytes.Load()-sent)/per/1000, "KB/record")
					b.ReportMetric(float64(b.Elapsed().Microseconds())/per/1000, "ms/record")
				})
			}
		}
	}
}

func readAll(b *testing.B, walk func(func(sources.Record) error) error) (n int) {
	if err := walk(func(r sources.Record) error {
		n++
		return r.Err
	}); err != nil {
		b.Fatal(err)
	}
	return n
}

// fileStore serves one file after a latency, and counts requests and bytes.
type fileStore struct {
	url             string
	requests, bytes atomic.Int64
}

// countedAnswer counts the bytes of an answer.
type countedAnswer struct {
	http.ResponseWriter
	to *fileStore
}

func (c countedAnswer) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.to.bytes.Add(int64(n))
	return n, err
}

func newFileStore(t testing.TB, latency time.Duration, content []byte) *fileStore {
	s := &fileStore{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(latency)
		s.requests.Add(1)
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(countedAnswer{w, s}, r, "", time.Unix(1, 0), bytes.NewReader(content))
	}))
	t.Cleanup(web.Close)
	s.url = web.URL + "/a.parquet"
	return s
}

// open opens the file as a run does.
func (s *fileStore) open(t testing.TB, field sources.Field) sources.Shard {
	t.Helper()
	f := open(t, NewHost(Options{}).Files("web", Storage{}), s.url)
	format := parquet.Format{Pages: parquet.NewPages(8 << 20)}
	shard, err := format.Open(t.Context(), f, field, sources.Limits{}.Resolved(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shard.Close() })
	return shard
}

type parquetRow struct {
	Text string  `parquet:"text,plain"`
	IDs  []int32 `parquet:"ids,list"`
}

// parquetRows makes texts of about 2 KB and lists of about 300 ids.
func parquetRows(n int) []parquetRow {
	rng := rand.New(rand.NewPCG(4, 2))
	words := strings.Fields("the quick brown fox jumps over the lazy dog and it was all the same to him because nobody")
	rows := make([]parquetRow, n)
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

// parquetFile writes rows with a page index, in pages of version 1.
func parquetFile(t testing.TB, rows []parquetRow, group int64) []byte {
	var out bytes.Buffer
	w := pq.NewGenericWriter[parquetRow](&out, pq.PageBufferSize(1<<20), pq.MaxRowsPerRowGroup(group),
		pq.Compression(&pq.Snappy), pq.DataPageVersion(1))
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// withoutPageIndex returns the file with a footer that names no page index.
func withoutPageIndex(t testing.TB, file []byte) []byte {
	f, err := pq.OpenFile(bytes.NewReader(file), int64(len(file)), pq.SkipPageIndex(true))
	if err != nil {
		t.Fatal(err)
	}
	meta := *f.Metadata()
	for i := range meta.RowGroups {
		for k := range meta.RowGroups[i].Columns {
			c := &meta.RowGroups[i].Columns[k]
			c.OffsetIndexOffset, c.OffsetIndexLength, c.ColumnIndexOffset, c.ColumnIndexLength = 0, 0, 0, 0
		}
	}
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), (*format.FileMetaData)(&meta))
	if err != nil {
		t.Fatal(err)
	}
	old := int(binary.LittleEndian.Uint32(file[len(file)-8:]))
	out := append(bytes.Clone(file[:len(file)-8-old]), footer...)
	return append(binary.LittleEndian.AppendUint32(out, uint32(len(footer))), "PAR1"...)
}
