package jsonl_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/jsonl"
	"millrace/sources/format/parts/rows"
	"millrace/sources/sourcetest"
)

// shared has room for one read, so that every read takes the memory of another shard's.
var shared = rows.NewWindows(1, 8<<20)

func format(sources.FS) sources.Format { return jsonl.Format{Windows: shared} }

// edges is a file with every kind of line and the expected records.
func edges() ([]byte, []sourcetest.Want) {
	var b bytes.Buffer
	var want []sourcetest.Want
	good := func(line, text string) {
		b.WriteString(line + "\n")
		want = append(want, sourcetest.Want{Text: text})
	}
	bad := func(line, why string) {
		b.WriteString(line + "\n")
		want = append(want, sourcetest.Want{Bad: why})
	}
	good("\xef\xbb\xbf"+`{"text":"behind a byte order mark"}`, "behind a byte order mark")
	good(`{"id":1,"text":"plain","x":[1,{"text":"inner"},null]}`, "plain")
	good("  {\t\"text\" : \"spaced\" }  \r", "spaced")
	b.WriteString("\n \t \r\n\r\n")
	good(`{"text":""}`, "")
	good(`{"text":"a\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00\u0000z"}`, "a\"\\/\b\f\n\r\tAé😀\x00z")
	good("{\"text\":\"raw \u2028 and \u0085 and é😀\"}", "raw \u2028 and \u0085 and é😀")
	good(`{"te\u0078t":"escaped key"}`, "escaped key")
	good(`{"text":1,"text":"the last counts"}`, "the last counts")
	good(`{"text":"x","other":"\ud800"}`, "x")
	bad(`{"text":"the last counts","text":1}`, "not a string")
	bad(`{"text":"lone \ud800 surrogate"}`, "lone surrogate")
	bad(`{"text":"lone \udc00 surrogate"}`, "lone surrogate")
	bad(`{"text":"lone \ud800\u0041 surrogate"}`, "lone surrogate")
	bad(`{"text":null}`, `field "text" is null`)
	bad(`{"text":{"text":"inner"}}`, "not a string")
	bad(`{"id":1}`, `field "text" is absent`)
	bad(`{}`, `field "text" is absent`)
	bad(`["text"]`, "not a JSON object")
	bad(`"text"`, "not a JSON object")
	bad(`{"text":"cut`, "invalid JSON")
	bad(`{"text":"x"}}`, "invalid JSON")
	bad(`{"text":"x"} {"text":"y"}`, "invalid JSON")
	bad(`{"text":"\x41"}`, "invalid JSON")
	bad(`{"text":"`+"\x01"+`"}`, "invalid JSON")
	bad(`{"text":"x","n":01}`, "invalid JSON")
	bad(`{"text":"x","n":NaN}`, "invalid JSON")
	bad(`{"text":"x",}`, "invalid JSON")
	bad("\x00\x00", "invalid JSON")
	bad("{\"text\":\"\xff\"}", "invalid UTF-8 at byte 9")
	bad("{\"text\":\"x\",\"\xc3\":1}", "invalid UTF-8")
	bad(`{"text":"x","d":`+strings.Repeat("[", 256)+strings.Repeat("]", 256)+`}`, "nested deeper")
	good(`{"text":"x","d":`+strings.Repeat("[", 255)+strings.Repeat("]", 255)+`}`, "x")
	bad(`{"text":"`+strings.Repeat("l", 1<<20)+`"}`, "longer than sample_bytes")
	good(`{"text":"`+strings.Repeat("l", 1<<20-11)+`"}`, strings.Repeat("l", 1<<20-11))
	b.WriteString(strings.Repeat(" ", 2<<20) + "\n")
	good(`{"text":"after a long blank line"}`, "after a long blank line")
	b.WriteString(`{"text":"without a line feed"}`)
	want = append(want, sourcetest.Want{Text: "without a line feed"})
	return b.Bytes(), want
}

// pages is a file of ordinary lines, as encoding/json writes them.
func pages(t testing.TB, n int) ([]byte, []sourcetest.Want) {
	rng := rand.New(rand.NewPCG(3, 4))
	var b bytes.Buffer
	var want []sourcetest.Want
	for i := range n {
		text := strings.Repeat(fmt.Sprintf("page %d \"quoted\"\n\tünïcödé 😀\u2028", i), rng.IntN(40))
		line, err := json.Marshal(map[string]any{"id": i, "meta": map[string]any{"body": text, "n": 1.5e-3}, "text": i})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
		want = append(want, sourcetest.Want{Text: text})
	}
	return b.Bytes(), want
}

func gzipped(t testing.TB, parts ...[]byte) []byte {
	var b bytes.Buffer
	for _, p := range parts {
		w := gzip.NewWriter(&b)
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// bgzipped writes members that declare their size in the subfield BC, behind another subfield, and the empty member at
// the end.
func bgzipped(t testing.TB, b []byte, size int) []byte {
	var out []byte
	for part := range parts(b, size) {
		var m bytes.Buffer
		w := gzip.NewWriter(&m)
		w.Extra = []byte{'X', 'Y', 1, 0, 7, 'B', 'C', 2, 0, 0, 0}
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint16(m.Bytes()[12+9:], uint16(m.Len()-1))
		out = append(out, m.Bytes()...)
	}
	return out
}

// parts cuts b into parts; the last is empty.
func parts(b []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for ; len(b) > size; b = b[size:] {
			if !yield(b[:size]) {
				return
			}
		}
		_ = yield(b) && yield(nil)
	}
}

func zstded(t testing.TB, b []byte, size int, o ...zstd.EOption) []byte {
	w, err := zstd.NewWriter(nil, o...)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var out []byte
	for part := range parts(b, size) {
		out = w.EncodeAll(part, out)
	}
	return out
}

// streamed is one zstd frame that does not declare its size.
func streamed(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// seekTable is the skippable frame of the zstd seekable format, with no frames in it. Other readers pass over it.
func seekTable() []byte {
	return []byte{0x5e, 0x2a, 0x4d, 0x18, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0xb1, 0xea, 0x92, 0x8f}
}

// values is a file with nested values, literal dotted keys and records without a text.
func values() sourcetest.Fixture {
	lines := []struct {
		line string
		want sourcetest.Want
	}{
		{`{"text":"a","n":1,"tags":["x",{"y":[2.5,null,true]}],"meta":{"lang":"de"}}`, sourcetest.Want{Text: "a",
			Others: []any{1, []any{"x", map[string]any{"y": []any{2.5, nil, true}}}, "de"}}},
		{`{"text":"b","meta.lang":"fr","meta":{"lang":"de"},"tags":{}}`, sourcetest.Want{Text: "b",
			Others: []any{nil, map[string]any{}, "fr"}}},
		{`{"text":null,"n":2}`, sourcetest.Want{Bad: `field "text" is null; the record has n, text`,
			Others: []any{2, nil, nil}}},
		{`{"n":3,"tags":[]}`, sourcetest.Want{Bad: `field "text" is absent; the record has n, tags`,
			Others: []any{3, []any{}, nil}}},
		{`{"text":"c","tags":["\ud800"]}`, sourcetest.Want{Bad: `lone surrogate in field "tags"`}},
		{`{"text":"d"}`, sourcetest.Want{Text: "d", Others: []any{nil, nil, nil}}},
	}
	var b bytes.Buffer
	var want []sourcetest.Want
	for range 20 {
		for _, l := range lines {
			b.WriteString(l.line + "\n")
			want = append(want, l.want)
		}
	}
	f := fixture("values", b.Bytes(), want, true)
	f.Field.Others = []string{"n", "tags", "meta.lang"}
	return f
}

func fixture(name string, b []byte, want []sourcetest.Want, seekable bool) sourcetest.Fixture {
	return sourcetest.Fixture{
		Name:     name,
		Files:    sourcetest.Files{fileName(name): b},
		Want:     want,
		Seekable: seekable,
		Field:    sources.Field{Text: "text"},
		Limits:   sources.Limits{SampleBytes: 1 << 20},
	}
}

func fileName(name string) string {
	for packed, ext := range map[string]string{"gzip": ".gz", "bgzf": ".gz", "zstd": ".zst"} {
		if strings.Contains(name, packed) {
			return name + ".jsonl" + ext
		}
	}
	return name + ".jsonl"
}

func nested(f sourcetest.Fixture) sourcetest.Fixture {
	f.Field.Text = "meta.body"
	return f
}

func TestContract(t *testing.T) {
	e, eWant := edges()
	p, pWant := pages(t, 400)
	many := bytes.Repeat(p, 1+(9<<19)/len(p)) // a little over 4 MiB
	manyWant := bytesRepeat(pWant, len(many)/len(p))
	half := len(p)/2 + 1
	sourcetest.Run(t, "jsonl", format, []sourcetest.Fixture{
		values(),
		fixture("empty", nil, nil, true),
		fixture("blank", []byte("\n\r\n  \t"), nil, true),
		fixture("edges plain", e, eWant, true),
		fixture("edges gzip", gzipped(t, e), eWant, false),
		fixture("edges bgzf", bgzipped(t, e, 60000), eWant, true),
		fixture("edges zstd frames", zstded(t, e, 100_000), eWant, true),
		fixture("edges zstd seekable", append(zstded(t, e, 1<<20), seekTable()...), eWant, true),
		fixture("skippable alone", seekTable(), nil, false),
		nested(fixture("pages plain", p, pWant, true)),
		nested(fixture("pages bgzf", bgzipped(t, p, 1000), pWant, true)),
		nested(fixture("pages zstd tiny frames", zstded(t, p, 777), pWant, true)),
		nested(fixture("pages zstd one small frame", streamed(t, p), pWant, true)),
		nested(fixture("pages zstd frame too large", zstded(t, many, 9<<20), manyWant, false)),
		nested(fixture("pages zstd streamed", streamed(t, many), manyWant, false)),
		nested(
			fixture("pages gzip members cut anywhere",
				append(gzipped(t, p[:half], nil, p[half:]), make([]byte, 700)...), pWant, false),
		),
		nested(
			fixture("pages gzip padded between", append(append(gzipped(t, p[:half]), 0, 0), gzipped(t, p[half:])...),
				pWant, false),
		),
		nested(
			fixture("pages bgzf then gzip", append(bgzipped(t, p[:half], 5000), gzipped(t, p[half:])...), pWant, false),
		),
	})
}

func bytesRepeat(w []sourcetest.Want, n int) []sourcetest.Want {
	var out []sourcetest.Want
	for range n {
		out = append(out, w...)
	}
	return out
}

func TestDamage(t *testing.T) {
	p, want := pages(t, 12)
	checked := func(f sourcetest.Fixture) sourcetest.Fixture {
		f.Checked = true
		return nested(f)
	}
	// 300 MiB, because a flipped bit may ask for the largest window.
	sourcetest.Damage(t, format, []sourcetest.Fixture{
		nested(fixture("plain", p, want, true)),
		checked(fixture("gzip", gzipped(t, p[:2000], p[2000:]), want, false)),
		checked(fixture("bgzf", bgzipped(t, p, 3000), want, true)),
		checked(fixture("zstd frames", zstded(t, p, 3000), want, true)),
		checked(fixture("zstd stream", append(streamed(t, p), seekTable()...), want, true)),
	}, 300<<20)
}

func TestDamageSaysWhere(t *testing.T) {
	p, want := pages(t, 300)
	for name, b := range map[string][]byte{
		"gzip": gzipped(t, p), "zstd": zstded(t, bytes.Repeat(p, 40), 8<<20), "bgzf": bgzipped(t, p, 4000),
	} {
		f := nested(fixture(name, b[:len(b)-len(b)/3], want, false))
		err := sourcetest.Open(t, format, f)
		if !errors.Is(err, millrace.ErrDamaged) || !strings.Contains(err.Error(), fileName(name)) ||
			!strings.Contains(err.Error(), "byte") {
			t.Errorf("%s cut: got %v", name, err)
		}
	}
	for name, b := range map[string]string{"UTF-16": "\xff\xfe{\x00",
		"does not begin": ""} {
		if err := sourcetest.Open(t, format, fixture("gzip", []byte(b), nil, true)); !errors.Is(err,
			millrace.ErrDamaged) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestDocuments: a file that is one JSON document costs one error, not one bad record a line.
func TestDocuments(t *testing.T) {
	long := `[{"text": "` + strings.Repeat("x", 300<<10) + `"}]`
	for _, c := range []struct{ text, says string }{
		{`[{"text": "a"}, {"text": "b"}]`, "one JSON array"},
		{"\xef\xbb\xbf [\n  {\n    \"text\": \"a\"\n  }\n]\n", "one JSON array"},
		{long, "one JSON array"},
		{"{\n  \"builder_name\": \"text\"\n}\n", "one JSON object over several lines"},
		{"PAR1....", "Parquet"},
	} {
		for name, b := range map[string][]byte{"plain": []byte(c.text), "gzip": gzipped(t, []byte(c.text)),
			"zstd": zstded(t, []byte(c.text), 1<<20)} {
			if name != "plain" && c.says == "Parquet" {
				continue
			}
			err := sourcetest.Open(t, format, fixture(name, b, nil, true))
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), fileName(name)) {
				t.Errorf("%s, %.20q: got %v, want %q", name, c.text, err, c.says)
			}
		}
	}
}

// TestLargeWindow: a zstd window above the limit is no damage, and the error says how to pack the file again.
func TestLargeWindow(t *testing.T) {
	frame := func(header ...byte) []byte {
		b := append([]byte{0x28, 0xb5, 0x2f, 0xfd}, header...)
		text := "{\"text\":\"a\"}\n"
		b = append(b, byte(len(text)<<3|1), 0, 0) // the last block, raw
		return append(b, text...)
	}
	for name, b := range map[string][]byte{
		"256 MiB": frame(0, 18<<3),
		"300 MB":  frame(0xa0, 0, 0xa3, 0xe1, 0x11), // a single segment's content is its window
	} {
		err := sourcetest.Open(t, format, fixture("zstd", b, nil, false))
		if !errors.Is(err, millrace.ErrInvalid) || errors.Is(err, millrace.ErrDamaged) ||
			!strings.Contains(err.Error(), "--long=27") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestBomb reads a line that unpacks to far more than it may hold.
func TestBomb(t *testing.T) {
	zeros := bytes.Repeat([]byte{'a'}, 12<<20)
	b := append([]byte(`{"text":"`), zeros...)
	b = append(b, "\"}\n{\"text\":\"next\"}\n"...)
	want := []sourcetest.Want{{Bad: "longer than"}, {Text: "next"}}
	for name, packed := range map[string][]byte{"gzip": gzipped(t, b), "zstd": streamed(t, b)} {
		f := fixture(name, packed, want, false)
		n := testing.AllocsPerRun(1, func() {
			if err := sourcetest.Open(t, format, f); err != nil {
				t.Error(err)
			}
		})
		if n > 1000 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// FuzzFile feeds whole files. Their first bytes decide how they are read.
func FuzzFile(f *testing.F) {
	p, _ := pages(f, 5)
	for _, b := range [][]byte{p, gzipped(f, p[:99], p[99:]), bgzipped(f, p, 500), zstded(f, p, 500),
		append(seekTable(), streamed(f, p)...)} {
		f.Add(b)
	}
	for _, name := range []string{"few.jsonl.bz2", "two.jsonl.xz"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		sourcetest.Fuzz(t, format, nested(fixture("f", b, nil, true)))
	})
}

// BenchmarkScan measures uncompressed bytes a second from memory, extraction included.
func BenchmarkScan(b *testing.B) {
	line, err := json.Marshal(
		map[string]any{
			"id":   "0123456789",
			"text": strings.Repeat("the quick brown fox jumps over the lazy dog, and it was all the same to him\n", 28),
		},
	)
	if err != nil {
		b.Fatal(err)
	}
	raw := bytes.Repeat(append(line, '\n'), 10000)
	for _, c := range []struct {
		name string
		b    []byte
	}{{"plain", raw}, {"zstd", streamed(b, raw)}, {"gzip", gzipped(b, raw)}} {
		b.Run(c.name, func(b *testing.B) {
			f := fixture(c.name, c.b, nil, true)
			file, err := f.Files.Open(fileName(c.name))
			if err != nil {
				b.Fatal(err)
			}
			s, err := jsonl.Format{}.Open(b.Context(), file, f.Field, f.Limits, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if err := s.Scan(b.Context(), 0, func(r sources.Record) error { return r.Err }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestUnfitIndexIsDamage: the reader of a source makes a damaged index again, so an index of another version or size
// must not end the run.
func TestUnfitIndexIsDamage(t *testing.T) {
	p, want := pages(t, 300)
	f := fixture("plain", p, want, true)
	file, err := f.Files.Open(fileName("plain"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := jsonl.Format{}.Open(t.Context(), file, f.Field, f.Limits, nil)
	if err != nil {
		t.Fatal(err)
	}
	blob, err := s.Index(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]int{"magic": 0, "version": 4, "kind": 8, "records of a page": 12, "size": 16} {
		unfit := bytes.Clone(blob)
		unfit[at] ^= 0x40
		if _, err := (jsonl.Format{}).Open(t.Context(), file, f.Field, f.Limits, unfit); !errors.Is(err,
			millrace.ErrDamaged) {
			t.Errorf("%s: got %v, want ErrDamaged", name, err)
		}
	}
}

// TestPackedByOthers: files of the commands bzip2 and xz, of one and of several streams and blocks, have their lines.
func TestPackedByOthers(t *testing.T) {
	var want []sourcetest.Want
	for i := range 300 {
		text := fmt.Sprintf("record %d ", i)
		for k := range i%40 + 1 {
			text += fmt.Sprintf("w%d ", k)
		}
		want = append(want, sourcetest.Want{Text: text})
	}
	var all []sourcetest.Fixture
	for _, name := range []string{"few.jsonl.bz2", "two.jsonl.bz2", "few.jsonl.xz", "blocks.jsonl.xz", "two.jsonl.xz"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sourcetest.Fixture{Name: name, Files: sourcetest.Files{name: b},
			Field: sources.Field{Text: "text"}, Want: want})
	}
	sourcetest.Run(t, "jsonl", format, all)
	sourcetest.Damage(t, format, []sourcetest.Fixture{all[0]}, 300<<20)
}

// TestACutXZFileIsDamaged: also a file that ends behind one of its blocks.
func TestACutXZFileIsDamaged(t *testing.T) {
	whole, err := os.ReadFile("testdata/blocks.jsonl.xz")
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		f := sourcetest.Fixture{Files: sourcetest.Files{"x.jsonl.xz": whole[:n]}, Field: sources.Field{Text: "text"}}
		if err := sourcetest.Open(t, format, f); n >= 6 && !errors.Is(err, millrace.ErrDamaged) {
			t.Fatalf("%d of %d bytes: got %v, want ErrDamaged", n, len(whole), err)
		}
	}
}
