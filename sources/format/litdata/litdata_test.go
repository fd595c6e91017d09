package litdata_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/litdata"
	"millrace/sources/sourcetest"
)

func format(fs sources.FS) sources.Format { return litdata.New(fs) }

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

// texts returns the texts from … end of testdata/make.py.
func texts(from, end int) (out []sourcetest.Want) {
	for i := from; i < end; i++ {
		out = append(out, sourcetest.Want{Text: fmt.Sprintf("document %d ", i) + strings.Repeat("wörld ", i%7)})
	}
	return out
}

// chunk is one chunk of testdata with its index.
func chunk(t testing.TB, path, text string, want []sourcetest.Want) sourcetest.Fixture {
	dir, all := filepath.Dir(path), written(t, filepath.Dir(path))
	return sourcetest.Fixture{Name: path + " " + text, Path: path, Field: sources.Field{Text: text}, Want: want,
		Files:    sourcetest.Files{path: all[path], dir + "/index.json": all[dir+"/index.json"]},
		Seekable: true}
}

// streamed is a fixture of a chunk that is packed as a whole.
func streamed(f sourcetest.Fixture) sourcetest.Fixture {
	f.Seekable = false
	return f
}

func TestContract(t *testing.T) {
	web := make([]sourcetest.Want, 5)
	for i := range web {
		web[i].Text = fmt.Sprintf("web %d", i)
	}
	sourcetest.Run(t, "litdata", format, []sourcetest.Fixture{
		chunk(t, "several/chunk-0-1.bin", "text", texts(8, 16)),
		chunk(t, "every/chunk-0-0.bin", "z", texts(0, 5)),
		chunk(t, "every/chunk-0-0.bin", "meta.source", web),
		chunk(t, "framed/chunk-0-0.bin", "text", texts(0, 280)),
		chunk(t, "framed/chunk-0-1.bin", "text", texts(280, 300)),
		chunk(t, "sample/chunk-0-0.bin", "text", texts(0, 16)),
		chunk(t, "single/chunk-0-0.bin", "text", texts(0, 5)),
		chunk(t, "arrow/chunk-0-0.bin", "text", texts(0, 5)),
		chunk(t, "arrowzstd/chunk-0-0.bin", "text", texts(0, 280)),
		streamed(chunk(t, "chunk/chunk-0-0.zstd.bin", "text", texts(0, 16))),
		chunk(t, "pair/chunk-0-0.bin", "0", texts(0, 5)),
	})
}

func TestDamage(t *testing.T) {
	sourcetest.Damage(t, format, []sourcetest.Fixture{
		chunk(t, "several/chunk-0-2.bin", "text", nil),
		chunk(t, "framed/chunk-0-1.bin", "text", nil),
		chunk(t, "sample/chunk-0-1.bin", "text", nil),
		chunk(t, "arrow/chunk-0-0.bin", "text", nil),
		streamed(chunk(t, "chunk/chunk-0-1.zstd.bin", "text", nil)),
	}, 16<<20)
}

// others returns the values of Field.Others of all records, nil for a bad one.
func others(t *testing.T, f sourcetest.Fixture, names ...string) (rows [][]any) {
	t.Helper()
	f.Field = sources.Field{Others: names}
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

// TestEveryFormatHasItsValue reads each value of items that have all formats.
func TestEveryFormatHasItsValue(t *testing.T) {
	f := chunk(t, "every/chunk-0-0.bin", "", nil)
	want := map[string]any{
		"z": "document 3 wörld wörld wörld ", "int": 1, "float": .75, "bool": false, "bytes": []byte{3, 255},
		"meta.source": "web 3", "meta.list": []any{"a", 3}, "meta": nil, "none": nil,
		"chat": []any{
			map[string]any{"role": "user", "content": "hello 3", "n": 3, "none": nil, "yes": true, "rate": 1.5},
		},
		"names": []any{"a", "wörld"}, "counts": []any{1, -3}, "rates": []any{.5, .75}, "flags": []any{true, false},
		"tensor": []uint32{0, 1, 2, 3}, "matrix": []any{[]any{3}, []any{3}}, "array": []uint32{0, 1, 2, 3},
		"grid": []any{[]any{3., 3.}}, "half": []any{3.}, "short": []uint32{3, 4}, "negative": []any{-3, -2},
	}
	var names []string
	for name := range want {
		names = append(names, name)
	}
	row := others(t, f, names...)[3]
	for i, name := range names {
		if !reflect.DeepEqual(sourcetest.Maps(row[i]), want[name]) {
			t.Errorf("%s: got %#v, want %#v", name, row[i], want[name])
		}
	}
}

// TestTokensAreItems: an item of a token loader is a document, whatever the size of its blocks.
func TestTokensAreItems(t *testing.T) {
	var want [][]any
	for i := range 20 {
		ids := []uint32{}
		for id := i; id < i+3*i%11; id++ {
			ids = append(ids, uint32(id))
		}
		if len(ids) > 0 {
			want = append(want, []any{ids})
		}
	}
	var got [][]any
	for i := range 3 {
		got = append(got, others(t, chunk(t, fmt.Sprintf("tokens/chunk-0-%d.bin", i), "", nil), "tokens")...)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestValuesThatAreNotReadAreNamed(t *testing.T) {
	for _, c := range []struct{ path, text, says string }{
		{"every/chunk-0-0.bin", "body", `no value "body"; they have z (str), int (int)`},
		{"every/chunk-0-0.bin", "int", `"int" of its items is int, not a text`},
		{"every/chunk-0-0.bin", "object", "runs code"},
	} {
		if err := sourcetest.Open(t, format, chunk(t, c.path, c.text, nil)); !errors.Is(err, millrace.ErrInvalid) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.text, err, c.says)
		}
	}
	f := chunk(t, "single/chunk-0-0.bin", "text", nil)
	index := f.Files["single/index.json"]
	for says, text := range map[string]string{
		"encrypted":     strings.Replace(string(index), `"encryption": null`, `"encryption": {"level": "chunk"}`, 1),
		"ParquetLoader": strings.Replace(string(index), "PyTreeLoader", "ParquetLoader", 1),
	} {
		f.Files["single/index.json"] = []byte(text)
		if err := sourcetest.Open(t, format, f); !errors.Is(err, millrace.ErrInvalid) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	delete(f.Files, "single/index.json")
	if err := sourcetest.Open(t, format, f); !errors.Is(err, millrace.ErrDamaged) ||
		!strings.Contains(err.Error(), "not beside it") {
		t.Errorf("without its index: got %v", err)
	}
}

func TestMisfits(t *testing.T) {
	le := binary.LittleEndian
	for name, c := range map[string]struct {
		path  string
		spoil func(b []byte) []byte
		says  string
	}{
		"count":   {"several", func(b []byte) []byte { le.PutUint32(b, 1<<31); return b }, "2147483648 records"},
		"more":    {"several", func(b []byte) []byte { return append(b, 0) }, "end at byte"},
		"cut":     {"several", func(b []byte) []byte { return b[:len(b)-1] }, "items lie at bytes"},
		"version": {"framed", func(b []byte) []byte { b[8] = 2; return b }, "version 2"},
		"items":   {"framed", func(b []byte) []byte { le.PutUint32(b[12:], 1<<30); return b }, "1073741824 records"},
		"frames":  {"framed", func(b []byte) []byte { le.PutUint32(b[20:], 1<<30); return b }, "1073741824 frames"},
		"bomb": {"framed", func(b []byte) []byte { le.PutUint32(b[24+4*281+20:], 1<<29); return b },
			"has 536870912 unpacked"},
		"place": {"framed", func(b []byte) []byte { b[24+4*281+8]++; return b }, "the one before ends at"},
	} {
		f := chunk(t, c.path+"/chunk-0-0.bin", "text", nil)
		f.Files[f.Path] = c.spoil(slices.Clone(f.Files[f.Path]))
		if err := sourcetest.Open(t, format, f); !errors.Is(err, millrace.ErrDamaged) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want ErrDamaged with %q", name, err, c.says)
		}
	}
}

func FuzzLitData(f *testing.F) {
	for _, dir := range []string{"every", "several", "framed", "sample", "single", "tokens", "arrow"} {
		all := written(f, dir)
		f.Add(all[dir+"/chunk-0-0.bin"], all[dir+"/index.json"], "json")
	}
	f.Fuzz(func(t *testing.T, b, index []byte, path string) {
		sourcetest.Fuzz(t, format, sourcetest.Fixture{Files: sourcetest.Files{"d/x.bin": b, "d/index.json": index},
			Path: "d/x.bin", Field: sources.Field{Text: "text", Others: []string{path}}})
	})
}

// TestADamagedFrameHasOneReason: the reason does not depend on the memory that records before it took.
func TestADamagedFrameHasOneReason(t *testing.T) {
	f := chunk(t, "sample/chunk-0-1.bin", "text", nil)
	b := slices.Clone(f.Files[f.Path])
	b[126] ^= 2 // in the second item
	f.Files[f.Path] = b
	f.Want = texts(16, 20)
	f.Want[1] = sourcetest.Want{Bad: "its zstd frame is damaged"}
	sourcetest.Run(t, "litdata", format, []sourcetest.Fixture{f})
}
