package mds_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/mds"
	"millrace/sources/sourcetest"
	"millrace/sources/values"
)

func format(fs sources.FS) sources.Format { return mds.New(fs) }

// written returns the files below a directory of testdata.
func written(t testing.TB, dir string) sourcetest.Files {
	t.Helper()
	files := sourcetest.Files{}
	err := filepath.WalkDir(filepath.Join("testdata", dir), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files[strings.TrimPrefix(path, "testdata/")], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// texts returns the texts of testdata/make.py.
func texts(n int) (out []sourcetest.Want) {
	for i := range n {
		text := fmt.Sprintf("document %d ", i) + strings.Repeat("wörld ", i%7) + strings.Repeat("\u2028", i%3)
		out = append(out, sourcetest.Want{Text: text})
	}
	return out
}

// shard writes a shard: samples of a str column "text" and an int column "n".
func shard(texts []string) []byte {
	le := binary.LittleEndian
	config := `{"column_encodings": ["int", "str"], "column_names": ["n", "text"], "column_sizes": [8, null], ` +
		`"compression": null, "format": "mds", "hashes": [], "size_limit": 67108864, "version": 2}`
	at := uint32(4 + 4*(len(texts)+1) + len(config))
	out := le.AppendUint32(nil, uint32(len(texts)))
	out = le.AppendUint32(out, at)
	for _, text := range texts {
		at += uint32(12 + len(text))
		out = le.AppendUint32(out, at)
	}
	out = append(out, config...)
	for i, text := range texts {
		out = le.AppendUint32(out, uint32(len(text)))
		out = le.AppendUint64(out, uint64(i))
		out = append(out, text...)
	}
	return out
}

func many() sourcetest.Fixture {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []string
	f := sourcetest.Fixture{Name: "many", Field: sources.Field{Text: "text"}, Seekable: true,
		Limits: sources.Limits{SampleBytes: 2000}}
	for i := range 2500 {
		text := strings.Repeat("x", rng.IntN(60))
		if i%1999 == 7 {
			text = strings.Repeat("y", 2000)
			f.Want = append(f.Want, sourcetest.Want{Bad: "sample_bytes"})
		} else {
			f.Want = append(f.Want, sourcetest.Want{Text: text})
		}
		all = append(all, text)
	}
	f.Files = sourcetest.Files{"d/shard.00000.mds": shard(all)}
	return f
}

// writtenFixture is one shard of testdata alone.
func writtenFixture(t testing.TB, path, text string, want []sourcetest.Want) sourcetest.Fixture {
	return sourcetest.Fixture{
		Name:     path,
		Files:    sourcetest.Files{path: written(t, filepath.Dir(path))[path]},
		Path:     path,
		Field:    sources.Field{Text: text},
		Want:     want,
		Seekable: true,
	}
}

func TestContract(t *testing.T) {
	inside := make([]sourcetest.Want, 5)
	for i := range inside {
		inside[i].Text = fmt.Sprintf("inside %d", i)
	}
	sourcetest.Run(t, "mds", format, []sourcetest.Fixture{
		writtenFixture(t, "several/shard.00000.mds", "text", texts(8)),
		writtenFixture(t, "every/shard.00000.mds", "text", texts(5)),
		writtenFixture(t, "every/shard.00000.mds", "json.text", inside),
		writtenFixture(t, "broken/shard.00000.mds", "text",
			[]sourcetest.Want{{Bad: "not valid UTF-8"}, {Text: ""}, {Text: "good"}}),
		{
			Name:     "empty",
			Files:    sourcetest.Files{"d/e.mds": shard(nil)},
			Field:    sources.Field{Text: "text"},
			Seekable: true,
		},
		many(),
	})
}

// TestLines: shards of lines have their samples, plain and packed, with all values.
func TestLines(t *testing.T) {
	rows := func(from, end int) (out []sourcetest.Want) {
		for i := from; i < end; i++ {
			out = append(out, sourcetest.Want{Text: fmt.Sprintf("document %d ", i) + strings.Repeat("wörld ", i%7),
				Others: []any{3 * i, float64(i) / 4, nil}})
		}
		return out
	}
	var all []sourcetest.Fixture
	for _, x := range []struct {
		path      string
		from, end int
	}{
		{"json/shard.00001.json", 12, 24}, {"json-zstd/shard.00000.json.zstd", 0, 40}, {"csv/shard.00000.csv", 0, 25},
		{"tsv/shard.00001.tsv", 25, 40}, {"tsv-gz/shard.00000.tsv.gz", 0, 40}, {"xsv/shard.00001.xsv", 22, 40},
	} {
		f := writtenFixture(t, x.path, "text", rows(x.from, x.end))
		f.Field.Others = []string{"n", "score", "none"}
		ext := filepath.Ext(x.path)
		meta := x.path + ".meta"
		if f.Seekable = ext != ".zstd" && ext != ".gz"; !f.Seekable {
			meta = strings.TrimSuffix(x.path, ext) + ".meta" + ext
		}
		dir := filepath.Dir(x.path)
		files := written(t, dir)
		f.Files[meta], f.Files[dir+"/index.json"] = files[meta], files[dir+"/index.json"]
		all = append(all, f)
	}
	sourcetest.Run(t, "mds", format, all)
	sourcetest.Damage(t, format, []sourcetest.Fixture{all[0], all[2]}, 8<<20)
}

// packings are the packed shards of testdata, of 120 samples each.
func packings(t *testing.T) (out []sourcetest.Fixture) {
	want := slices.Concat(texts(40), texts(40), texts(40))
	for _, ending := range []string{"zstd", "gz", "br", "bz2", "snappy"} {
		f := writtenFixture(t, ending+"/shard.00000.mds."+ending, "text", want)
		f.Seekable = false
		out = append(out, f)
	}
	return out
}

func TestPackedContract(t *testing.T) { sourcetest.Run(t, "mds", format, packings(t)) }

func TestPackedDamage(t *testing.T) {
	all := packings(t)
	sourcetest.Damage(t, format, []sourcetest.Fixture{all[0], all[4]}, 64<<20)
}

func TestDamage(t *testing.T) {
	sourcetest.Damage(t, format, []sourcetest.Fixture{
		writtenFixture(t, "several/shard.00001.mds", "text", nil),
		writtenFixture(t, "every/shard.00000.mds", "json.text", nil),
	}, 8<<20)
}

// TestEveryEncodingHasItsValue reads each column of a shard that has all encodings.
func TestEveryEncodingHasItsValue(t *testing.T) {
	f := writtenFixture(t, "every/shard.00000.mds", "", nil)
	pil := []byte{3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 'L', 2, 2, 2, 2, 2, 2}
	want := map[string]any{
		"text": "document 2 wörld wörld \u2028\u2028", "bytes": []byte{2, 255, 0}, "int": -1, "uint8": 2, "int8": -2,
		"uint16": 2, "int16": -2, "uint32": 2, "int32": -2, "int64": -2, "float16": .5, "float32": .5,
		"float64": 2. / 3, "str_int": 100, "str_float": .25, "str_decimal": "2.20",
		"json":      map[string]any{"text": "inside 2", "n": []any{2, 1.5, nil, true}},
		"json.text": "inside 2", "json.n": []any{2, 1.5, nil, true}, "json.none": nil, "none": nil, "none.at.all": nil,
		"pil": pil, "ids": []uint32{0, 1, 2}, "fixed": []any{[]any{-2, -1, 0}, []any{1, 2, 3}},
		"free": []any{[]any{2.}, []any{2.}},
	}
	for name := range want {
		f.Field.Others = append(f.Field.Others, name)
	}
	rows := others(t, f)
	for i, name := range f.Field.Others {
		if !reflect.DeepEqual(sourcetest.Maps(rows[2][i]), want[name]) {
			t.Errorf("%s: got %#v, want %#v", name, rows[2][i], want[name])
		}
	}
	f.Field.Others = []string{"free", "str_int", "uint64"}
	rows = others(t, f)
	if !reflect.DeepEqual(rows[3], []any{[]uint32{1, 2, 3, 4}, 1000, 3}) {
		t.Errorf("sample 3 has %#v", rows[3])
	}
	if rows[2][2] != values.Number("9223372036854775810") {
		t.Errorf("sample 2 has a number beyond an int, and gives %v", rows[2])
	}
	f.Field.Others = []string{"pkl"}
	if err := sourcetest.Open(t, format, f); !errors.Is(err, millrace.ErrInvalid) ||
		!strings.Contains(err.Error(), "pickle") {
		t.Errorf("a column of pickle: got %v", err)
	}
}

// others returns the values of Field.Others of all records, nil for a bad one.
func others(t *testing.T, f sourcetest.Fixture) (rows [][]any) {
	t.Helper()
	file, err := f.Files.Open(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := format(f.Files).Open(t.Context(), file, f.Field, f.Limits.Resolved(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Scan(t.Context(), 0, func(r sources.Record) error {
		rows = append(rows, slices.Clone(r.Others))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestColumnsThatAreNotThereAreNamed(t *testing.T) {
	for path, says := range map[string]string{
		"body": `no column "body"; it has bytes (bytes), fixed (ndarray:int32:2,3)`,
		"int":  `column "int" holds int, not a text`,
		"pkl":  "reading it runs code",
	} {
		f := writtenFixture(t, "every/shard.00000.mds", path, nil)
		if err := sourcetest.Open(t, format, f); !errors.Is(err, millrace.ErrInvalid) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", path, err, says)
		}
	}
}

func TestMisfits(t *testing.T) {
	le := binary.LittleEndian
	for name, c := range map[string]struct {
		spoil func(b []byte) []byte
		says  string
	}{
		"count":       {func(b []byte) []byte { le.PutUint32(b, math.MaxUint32); return b }, "4294967295 records"},
		"smaller":     {func(b []byte) []byte { le.PutUint32(b, 1); return b }, "samples lie at bytes"},
		"descending":  {func(b []byte) []byte { le.PutUint32(b[8:], 1); return b }, "offset of record 1 is 1"},
		"more":        {func(b []byte) []byte { return append(b, 0) }, "samples lie at bytes"},
		"cut":         {func(b []byte) []byte { return b[:len(b)-1] }, "samples lie at bytes"},
		"description": {func(b []byte) []byte { b[16] = 'x'; return b }, "no JSON"},
		"nothing":     {func([]byte) []byte { return nil }, "it ends at byte 0"},
	} {
		f := sourcetest.Fixture{Files: sourcetest.Files{"d/x.mds": c.spoil(shard([]string{"one", "two"}))},
			Field: sources.Field{Text: "text"}}
		if err := sourcetest.Open(t, format, f); !errors.Is(err, millrace.ErrDamaged) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want ErrDamaged with %q", name, err, c.says)
		}
	}
}

// TestDigitsAreExact: str_int may exceed 64 bits.
func TestDigitsAreExact(t *testing.T) {
	text := `{"version":2,"format":"mds","column_names":["big"],"column_encodings":["str_int"],"column_sizes":[null]}`
	digits := strings.Repeat("9", 40)
	le := binary.LittleEndian
	at := uint32(4 + 8 + len(text))
	b := le.AppendUint32(nil, 1)
	b = le.AppendUint32(b, at)
	b = le.AppendUint32(b, at+4+40)
	b = append(le.AppendUint32(append(b, text...), 40), digits...)
	f := sourcetest.Fixture{Files: sourcetest.Files{"x.mds": b}, Path: "x.mds",
		Field: sources.Field{Others: []string{"big"}}}
	if rows := others(t, f); !reflect.DeepEqual(rows, [][]any{{digits}}) {
		t.Errorf("got %v", rows)
	}
}

func FuzzMDS(f *testing.F) {
	f.Add(shard([]string{"one", "", "three"}), "text")
	for path, b := range written(f, "every") {
		if strings.HasSuffix(path, ".mds") {
			f.Add(b, "json.text")
			f.Add(b, "ids")
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, path string) {
		sourcetest.Fuzz(t, format, sourcetest.Fixture{Files: sourcetest.Files{"x.mds": b}, Path: "x.mds",
			Field: sources.Field{Text: "text", Others: []string{path}}})
	})
}
