package parquet_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	apq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	pq "github.com/parquet-go/parquet-go"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parquet"
	"millrace/sources/sourcetest"
)

func format(sources.FS) sources.Format { return keeping() }

// keeping returns a format that keeps pages of random reads, as that of a loader does.
func keeping() parquet.Format { return parquet.Format{Pages: parquet.NewPages(8 << 20)} }

// texts makes rows, with nils among them if nulls. Some rows repeat, for dictionaries.
func texts(n int, nulls bool) []*string {
	rng := rand.New(rand.NewPCG(7, 8))
	out := make([]*string, n)
	for i := range out {
		s := strings.Repeat(fmt.Sprintf("row %d ünïcödé 😀 ", i%97), rng.IntN(12))
		if !nulls || rng.IntN(4) > 0 {
			out[i] = &s
		}
	}
	return out
}

func wants(rows []*string) []sourcetest.Want {
	out := make([]sourcetest.Want, len(rows))
	for i, r := range rows {
		if r == nil {
			out[i].Bad = "null"
		} else {
			out[i].Text = *r
		}
	}
	return out
}

// byArrow writes rows with Apache Arrow's writer: a column before the text, the text, and the text again in a struct
// that may be null.
func byArrow(t testing.TB, rows []*string, groupRows int64, props ...apq.WriterProperty) []byte {
	inner := arrow.StructOf(arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		arrow.Field{Name: "body", Type: arrow.BinaryTypes.String, Nullable: true})
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "meta", Type: inner, Nullable: true},
		{Name: "list", Type: arrow.ListOf(arrow.BinaryTypes.String)},
		{Name: "with.dot", Type: arrow.BinaryTypes.Binary, Nullable: false},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i, r := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		l := b.Field(3).(*array.ListBuilder)
		l.Append(true)
		l.ValueBuilder().(*array.StringBuilder).AppendValues([]string{"a", "b"}, nil)
		st := b.Field(2).(*array.StructBuilder)
		if r == nil {
			b.Field(1).AppendNull()
			st.AppendNull()
			b.Field(4).(*array.BinaryBuilder).Append(nil)
			continue
		}
		b.Field(1).(*array.StringBuilder).Append(*r)
		st.Append(true)
		st.FieldBuilder(0).AppendNull()
		st.FieldBuilder(1).(*array.StringBuilder).Append(*r)
		b.Field(4).(*array.BinaryBuilder).Append([]byte(*r))
	}
	rec := b.NewRecord()
	defer rec.Release()
	table := array.NewTableFromRecords(schema, []arrow.Record{rec})
	defer table.Release()
	var out bytes.Buffer
	if err := pqarrow.WriteTable(table, &out, groupRows, apq.NewWriterProperties(props...),
		pqarrow.DefaultWriterProps()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// byParquetGo writes the text column alone, in the encoding of T's tag.
func byParquetGo[T any](t testing.TB, rows []T, o ...pq.WriterOption) []byte {
	var out bytes.Buffer
	w := pq.NewGenericWriter[T](&out, o...)
	for len(rows) > 0 {
		n := min(len(rows), 300)
		if _, err := w.Write(rows[:n]); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		rows = rows[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func fixture(name, field string, b []byte, want []sourcetest.Want) sourcetest.Fixture {
	return sourcetest.Fixture{
		Name:     name,
		Files:    sourcetest.Files{name + ".parquet": b},
		Field:    sources.Field{Text: field},
		Want:     want,
		Seekable: true,
		Limits:   sources.Limits{SampleBytes: 1 << 20},
	}
}

func v(version apq.DataPageVersion) apq.WriterProperty { return apq.WithDataPageVersion(version) }

func TestContractArrow(t *testing.T) {
	rows := texts(600, true)
	whole := texts(600, false)
	var fixtures []sourcetest.Fixture
	for name, codec := range map[string]compress.Compression{
		"none": compress.Codecs.Uncompressed, "snappy": compress.Codecs.Snappy, "zstd": compress.Codecs.Zstd,
		"gzip":   compress.Codecs.Gzip,
		"brotli": compress.Codecs.Brotli,
	} {
		for _, dictionary := range []bool{false, true} {
			for version, ver := range map[string]apq.DataPageVersion{"v1": apq.DataPageV1, "v2": apq.DataPageV2} {
				b := byArrow(t, rows, 250, apq.WithCompression(codec), apq.WithDictionaryDefault(dictionary), v(ver),
					apq.WithDataPageSize(3000), apq.WithBatchSize(16))
				fixtures = append(fixtures,
					fixture(fmt.Sprintf("%s %s dictionary=%v", name, version, dictionary), "text", b, wants(rows)))
			}
		}
	}
	mixed := byArrow(t, whole, 600, apq.WithDictionaryPageSizeLimit(2000), apq.WithDataPageSize(2000),
		apq.WithBatchSize(16))
	nested := byArrow(t, rows, 400, v(apq.DataPageV2))
	binary := byArrow(t, whole, 400)
	fixtures = append(fixtures,
		fixture("dictionary overflows into plain", "text", mixed, wants(whole)),
		fixture("nested", "meta.body", nested, wants(rows)),
		fixture("name with a dot, required", "with.dot", binary, wants(whole)),
		fixture("no rows", "text", byArrow(t, nil, 10), nil),
		fixture("nulls alone", "text", byArrow(t, make([]*string, 30), 10), wants(make([]*string, 30))),
	)
	for _, e := range []apq.Encoding{apq.Encodings.DeltaLengthByteArray, apq.Encodings.DeltaByteArray} {
		// One page a row group: in Arrow's writer, the first DELTA_BYTE_ARRAY value of a further page depends on the
		// page before. The format forbids that, because each page must be readable by itself.
		b := byArrow(t, rows, 250, apq.WithDictionaryDefault(false), apq.WithEncodingFor("text", e))
		fixtures = append(fixtures, fixture(e.String(), "text", b, wants(rows)))
	}
	sourcetest.Run(t, "parquet", format, fixtures)
}

type plainRow struct {
	Text string `parquet:"text,plain"`
}
type dictRow struct {
	Text *string `parquet:"text,optional,dict"`
}
type deltaRow struct {
	Text string `parquet:"text,delta"`
}
type lengthRow struct {
	Text string `parquet:"text,optional,delta"`
}

func TestContractParquetGo(t *testing.T) {
	whole, rows := texts(600, false), texts(600, true)
	var plain []plainRow
	var delta []deltaRow
	var dict []dictRow
	var length []lengthRow
	var sparse []*string
	for i := range whole {
		plain = append(plain, plainRow{*whole[i]})
		delta = append(delta, deltaRow{*whole[i]})
		dict = append(dict, dictRow{rows[i]})
		length = append(length, lengthRow{*whole[i]})
		if sparse = append(sparse, whole[i]); *whole[i] == "" {
			sparse[i] = nil // that writer writes zero values as nulls
		}
	}
	small := pq.PageBufferSize(2000)
	sourcetest.Run(t, "parquet", format, []sourcetest.Fixture{
		fixture("plain lz4", "text", byParquetGo(t, plain, small, pq.Compression(&pq.Lz4Raw)), wants(whole)),
		fixture("plain v1", "text", byParquetGo(t, plain, small, pq.DataPageVersion(1), pq.Compression(&pq.Snappy)),
			wants(whole)),
		fixture("delta zstd", "text", byParquetGo(t, delta, small, pq.Compression(&pq.Zstd)), wants(whole)),
		fixture("delta optional", "text", byParquetGo(t, length, small), wants(sparse)),
		fixture("dictionary v1 gzip", "text",
			byParquetGo(t, dict, small, pq.DataPageVersion(1), pq.Compression(&pq.Gzip)), wants(rows)),
		fixture("dictionary v2", "text", byParquetGo(t, dict, small), wants(rows)),
		fixture("no row groups", "text", byParquetGo[plainRow](t, nil), nil),
	})
}

func TestBadRows(t *testing.T) {
	rows := []plainRow{{"good"}, {"\xff\xfe"}, {strings.Repeat("x", 2000)}, {""}, {"good"}}
	f := fixture("rows", "text", byParquetGo(t, rows),
		[]sourcetest.Want{{Text: "good"}, {Bad: "UTF-8"}, {Bad: "sample_bytes"}, {Text: ""}, {Text: "good"}})
	f.Limits.SampleBytes = 1999
	sourcetest.Run(t, "parquet", format, []sourcetest.Fixture{f})
}

func TestWrongColumn(t *testing.T) {
	b := byArrow(t, texts(10, true), 5)
	for field, says := range map[string]string{
		"content": "there are: id, text, meta, list, with.dot", "meta.text": "meta.n, meta.body", "meta": "no string",
		"list": "holds", "list.list.element": "is a list", "id": "INT64", "text.x": "there are",
	} {
		err := sourcetest.Open(t, format, fixture("f", field, b, nil))
		if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), "f.parquet") {
			t.Errorf("%s: got %v, want ErrInvalid with %q", field, err, says)
		}
	}
}

func TestDamage(t *testing.T) {
	rows := texts(40, true)
	checked := byParquetGo(t, []plainRow{{"one"}, {"two two two two"}, {"three"}}, pq.Compression(&pq.Zstd))
	sourcetest.Damage(t, format, []sourcetest.Fixture{
		fixture("snappy dictionary v1", "text", byArrow(t, rows, 20, apq.WithCompression(compress.Codecs.Snappy)), nil),
		fixture(
			"zstd v2",
			"meta.body",
			byArrow(t, rows, 40, apq.WithCompression(compress.Codecs.Zstd), apq.WithDictionaryDefault(false),
				v(apq.DataPageV2)),
			nil,
		),
		fixture(
			"gzip delta",
			"text",
			byArrow(t, rows, 40, apq.WithCompression(compress.Codecs.Gzip), apq.WithDictionaryDefault(false),
				apq.WithEncodingFor("text", apq.Encodings.DeltaByteArray)),
			nil,
		),
		fixture("lz4 with checksums", "text", checked, nil),
		fixture("brotli", "text", byArrow(t, rows, 40, apq.WithCompression(compress.Codecs.Brotli)), nil),
	}, 64<<20)
}

// TestChecksums: parquet-go's writer adds checksums, so a flip inside a page is noticed.
func TestChecksums(t *testing.T) {
	text := strings.Repeat("summed ", 50)
	b := byParquetGo(t, []plainRow{{text}}, pq.Compression(&pq.Uncompressed))
	plain := append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
	at := bytes.Index(b, plain) + 4
	for i := range len(text) {
		spoiled := bytes.Clone(b)
		spoiled[at+i] ^= 4
		if err := sourcetest.Open(t, format, fixture("f", "text", spoiled, wants([]*string{&text}))); !errors.Is(err,
			millrace.ErrDamaged) ||
			!strings.Contains(err.Error(), "checksum") ||
			!strings.Contains(err.Error(), "row group 0") {
			t.Fatalf("byte %d of the text flipped: got %v", i, err)
		}
	}
}

func FuzzParquet(f *testing.F) {
	rows := texts(12, true)
	f.Add(byArrow(f, rows, 5))
	f.Add(byArrow(f, rows, 12, apq.WithCompression(compress.Codecs.Zstd), v(apq.DataPageV2)))
	f.Add(
		byArrow(f, rows, 12, apq.WithDictionaryDefault(false),
			apq.WithEncodingFor("text", apq.Encodings.DeltaByteArray)),
	)
	f.Add(byParquetGo(f, []plainRow{{"a"}, {"b"}}, pq.Compression(&pq.Lz4Raw)))
	f.Add([]byte("PAR1\x00\x00\x00\x00PAR1"))
	f.Add(byParquetGo(f, plainRows(texts(40, false)), pq.PageBufferSize(500), pq.DataPageVersion(1))) // a page index
	f.Fuzz(func(t *testing.T, b []byte) {
		sourcetest.Fuzz(t, format, fixture("f", "text", b, nil))
		sourcetest.Fuzz(t, func(sources.FS) sources.Format { return farFormat{t: t} }, fixture("f", "text", b, nil))
	})
}

// BenchmarkScan measures delivered bytes of text a second from memory. BenchmarkRead measures single rows at random.
func BenchmarkScan(b *testing.B) {
	s, n := big(b)
	b.SetBytes(n)
	for b.Loop() {
		if err := s.Scan(b.Context(), 0, func(r sources.Record) error { return r.Err }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	s, _ := big(b)
	count, _ := s.Count()
	rng := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		if err := s.Read(b.Context(), []uint64{rng.Uint64N(count)},
			func(r sources.Record) error { return r.Err }); err != nil {
			b.Fatal(err)
		}
	}
}

// big is a file of 20,000 texts of about 2 KB, packed with zstd.
func big(b *testing.B) (sources.Shard, int64) {
	rng := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields(
		"the quick brown fox jumps over the lazy dog and it was all the same to him " +
			"because nobody asked what he thought of it at that time",
	)
	rows := make([]*string, 20000)
	n := int64(0)
	for i := range rows {
		var sb strings.Builder
		for range 350 {
			fmt.Fprintf(&sb, "%s%d ", words[rng.IntN(len(words))], rng.IntN(10))
		}
		s := sb.String()
		rows[i] = &s
		n += int64(len(s))
	}
	f := fixture("big", "with.dot",
		byArrow(b, rows, 10000, apq.WithCompression(compress.Codecs.Zstd), apq.WithDictionaryDefault(false)), nil)
	file, err := f.Files.Open("big.parquet")
	if err != nil {
		b.Fatal(err)
	}
	s, err := keeping().Open(b.Context(), file, f.Field, f.Limits, nil)
	if err != nil {
		b.Fatal(err)
	}
	return s, n
}
