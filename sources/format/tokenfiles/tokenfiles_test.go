package tokenfiles_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/tokenfiles"
	"millrace/sources/sourcetest"
)

// maker returns a format with options.
func maker(mk func(sources.FS, tokenfiles.Options) tokenfiles.Format, o tokenfiles.Options) sourcetest.New {
	return func(fs sources.FS) sources.Format { return mk(fs, o) }
}

func olmo(o tokenfiles.Options) sourcetest.New      { return maker(tokenfiles.OLMo, o) }
func datatrove(o tokenfiles.Options) sourcetest.New { return maker(tokenfiles.Datatrove, o) }
func raw(o tokenfiles.Options) sourcetest.New       { return maker(tokenfiles.Tokens, o) }

func eos(id uint32) tokenfiles.Options { return tokenfiles.Options{EOS: id, HasEOS: true} }

func typed(dtype string, o tokenfiles.Options) tokenfiles.Options {
	o.DType = dtype
	return o
}

// written reads files of testdata, which the formats' own writers wrote.
func written(t testing.TB, names ...string) sourcetest.Files {
	files := sourcetest.Files{}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		files["d/"+name] = b
	}
	return files
}

// documents are those of testdata, each id plus add, behind the ids of head.
func documents(t testing.TB, add uint32, head ...uint32) (docs [][]uint32) {
	var want struct{ Docs [][]uint32 }
	b, err := os.ReadFile("testdata/want.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	for _, doc := range want.Docs {
		out := append([]uint32{}, head...)
		for _, id := range doc {
			out = append(out, id+add)
		}
		docs = append(docs, out)
	}
	return docs
}

func want(docs ...[]uint32) (out []sourcetest.Want) {
	for _, doc := range docs {
		out = append(out, sourcetest.Want{Tokens: append([]uint32{}, doc...)})
	}
	return out
}

// cutAt cuts ids behind each EOS.
func cutAt(ids []uint32, eos uint32) (docs [][]uint32) {
	from := 0
	for i, id := range ids {
		if id == eos {
			docs = append(docs, ids[from:i+1])
			from = i + 1
		}
	}
	if from < len(ids) {
		docs = append(docs, ids[from:])
	}
	return docs
}

func run(t *testing.T, format string, mk sourcetest.New, name string, files sourcetest.Files, docs ...[]uint32) {
	t.Helper()
	for path := range files {
		if filepath.Base(path) == name {
			sourcetest.Run(t, format, mk, []sourcetest.Fixture{
				{Name: name, Files: files, Path: path, Want: want(docs...), Seekable: true},
			})
			return
		}
	}
	t.Fatalf("no file %s", name)
}

// TestOLMoFollowsTheRowsBesideIt: the rows of dolma's writer have quotes, commas, and line breaks inside quotes. A row
// ends a document; an EOS inside it does not, and the last document has none.
func TestOLMoFollowsTheRowsBesideIt(t *testing.T) {
	mk := olmo(tokenfiles.Options{})
	run(t, "olmo", mk, "part-0-00000.npy", written(t, "part-0-00000.npy", "part-0-00000.csv.gz"), documents(t, 0)...)
	run(t, "olmo", mk, "part-1-00000.npy", written(t, "part-1-00000.npy", "part-1-00000.csv.gz"), documents(t,
		70000)...)
}

// TestAnEOSKeepsEveryID: with an EOS, inner ones end documents, and the ids behind the last are a document.
func TestAnEOSKeepsEveryID(t *testing.T) {
	flat := bytesToIDs(written(t, "part-0-00000.npy")["d/part-0-00000.npy"])
	docs := cutAt(flat, 50256)
	if last := docs[len(docs)-1]; len(docs) != 6 || last[len(last)-1] != 9 {
		t.Fatalf("the file shows too little: %v", docs)
	}
	run(t, "olmo", olmo(typed("uint16", eos(50256))), "part-0-00000.npy", written(t, "part-0-00000.npy"), docs...)
	run(t, "tokens", raw(typed("uint16", eos(50256))), "train.bin", written(t, "train.bin"), docs...)
	run(t, "datatrove", datatrove(typed("uint16", eos(50256))), "00000_tokens.ds", written(t,
		"00000_tokens.ds"), docs...)
	run(t, "tokens", raw(eos(50256)), "flat.npy", written(t, "flat.npy"), docs...)
}

func bytesToIDs(b []byte) (out []uint32) {
	for ; len(b) > 0; b = b[2:] {
		out = append(out, uint32(binary.LittleEndian.Uint16(b)))
	}
	return out
}

func TestDatatroveFollowsItsIndex(t *testing.T) {
	mk := datatrove(tokenfiles.Options{})
	run(t, "datatrove", mk, "00000_tokens.ds", written(t, "00000_tokens.ds", "00000_tokens.ds.index"),
		documents(t, 0)...)
	run(t, "datatrove", mk, "00001_tokens.ds", written(t, "00001_tokens.ds", "00001_tokens.ds.index"),
		documents(t, 0, 128000)...)
}

// TestHeadersSayTheType: llm.c and NumPy write headers, so the source need not say the type.
func TestHeadersSayTheType(t *testing.T) {
	run(t, "tokens", raw(eos(50256)), "gpt2.bin", written(t, "gpt2.bin"), []uint32{50256}, []uint32{1, 2,
		50256}, []uint32{3})
	run(t, "tokens", raw(eos(128000)), "llama3.bin", written(t, "llama3.bin"), []uint32{128000}, []uint32{1, 2, 128000},
		[]uint32{3})
	run(t, "tokens", raw(tokenfiles.Options{}), "rows.npy", written(t, "rows.npy"), []uint32{0, 1, 2, 3},
		[]uint32{4, 5, 6, 7},
		[]uint32{8, 9, 10, 11})
}

func packRows(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(text))
	z.Close()
	return b.Bytes()
}

func pair(rows string, ids ...uint16) sourcetest.Files {
	b := []byte{}
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint16(b, id)
	}
	return sourcetest.Files{"x.npy": b, "x.csv.gz": packRows(rows)}
}

func TestEdges(t *testing.T) {
	run(t, "olmo", olmo(tokenfiles.Options{}), "x.npy", pair(""))
	run(t, "olmo", olmo(tokenfiles.Options{}), "x.npy", pair("0,1\n1,1\n\"1\",\"3\",\"a\"\"b,\r\n\",c,0", 5, 6, 7),
		[]uint32{5}, []uint32{}, []uint32{6, 7})
	two := pair("0,1,a\n", 5, 6)
	two["x.csv.gz"] = append(two["x.csv.gz"], packRows("1,2,b\n")...)
	run(t, "olmo", olmo(tokenfiles.Options{}), "x.npy", two, []uint32{5}, []uint32{6})
	run(t, "tokens", raw(typed("uint16", eos(9))), "e.bin", sourcetest.Files{"e.bin": {}})
	run(t, "tokens", raw(typed("uint32", eos(9))), "w.bin", sourcetest.Files{"w.bin": {9, 0, 0, 0, 8, 0, 0, 0}},
		[]uint32{9},
		[]uint32{8})
	sourcetest.Run(t, "tokens", raw(typed("uint32", eos(9))), []sourcetest.Fixture{{
		Name: "an id that is none", Path: "w.bin", Seekable: true,
		Files: sourcetest.Files{"w.bin": {1, 0, 0, 0x80, 9, 0, 0, 0, 8, 0, 0, 0}},
		Want:  []sourcetest.Want{{Bad: "no token id"}, {Tokens: []uint32{8}}},
	}})
}

func TestMisfits(t *testing.T) {
	plain, byEnds := olmo(tokenfiles.Options{}), datatrove(tokenfiles.Options{})
	none := tokenfiles.Options{}
	files := func(name string, b []byte) sourcetest.Files { return sourcetest.Files{name: b} }
	for what, c := range map[string]struct {
		mk    sourcetest.New
		files sourcetest.Files
		path  string
		class error
		says  string
	}{
		"no dtype": {raw(eos(1)), files("a.bin", []byte{1, 0}), "a.bin", millrace.ErrInvalid, "dtype: uint16"},
		"no end": {raw(typed("uint16", none)), files("a.bin", []byte{1, 0}), "a.bin",
			millrace.ErrInvalid, "eos:"},
		"half an id": {raw(typed("uint32", eos(1))), files("a.bin", []byte{1, 0, 0, 0, 1}), "a.bin",
			millrace.ErrDamaged, "no whole number of uint32"},
		"another dtype": {raw(typed("uint32", eos(1))), written(t, "gpt2.bin"), "d/gpt2.bin", millrace.ErrInvalid,
			"its header says uint16"},
		"llm.c cut": {raw(eos(1)), files("a.bin", written(t, "gpt2.bin")["d/gpt2.bin"][:1028]), "a.bin",
			millrace.ErrDamaged, "its header counts 5 ids"},
		"Fortran":    {raw(eos(1)), written(t, "fortran.npy"), "d/fortran.npy", millrace.ErrDamaged, "Fortran"},
		"big-endian": {raw(eos(1)), written(t, "big.npy"), "d/big.npy", millrace.ErrDamaged, "big-endian"},
		"floats":     {raw(eos(1)), written(t, "float.npy"), "d/float.npy", millrace.ErrDamaged, "not integers"},
		"NumPy cut": {raw(eos(1)), files("a.npy", written(t, "flat.npy")["d/flat.npy"][:200]), "a.npy",
			millrace.ErrDamaged, "shape"},
		"a gap":           {plain, pair("0,1\n2,3\n", 5, 6, 7), "x.npy", millrace.ErrDamaged, "row 2"},
		"rows that go on": {plain, pair("0,1\n1,9999\n", 5, 6, 7), "x.npy", millrace.ErrDamaged, "row 2"},
		"rows too few": {plain, pair("0,1\n", 5, 6, 7), "x.npy", millrace.ErrDamaged,
			"does not fit the 6 bytes"},
		"rows too few, typed": {olmo(typed("uint16", none)), pair("0,1\n", 5, 6), "x.npy", millrace.ErrDamaged,
			"end at id 1"},
		"an open quote": {plain, pair("0,1,\"a\n1,2,b\n", 5, 6), "x.npy", millrace.ErrDamaged,
			"does not end"},
		"rows cut": {plain, sourcetest.Files{"x.npy": {1, 0}, "x.csv.gz": packRows("0,1\n")[:20]},
			"x.npy", millrace.ErrDamaged, "unpacked"},
		"no rows": {plain, files("x.npy", []byte{1, 0}), "x.npy", millrace.ErrDamaged, "add `eos:`"},
		"ends that fall": {byEnds, sourcetest.Files{"x.ds": make([]byte, 6),
			"x.ds.index": {2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}}, "x.ds", millrace.ErrDamaged, "document 1"},
		"half an end": {byEnds, sourcetest.Files{"x.ds": make([]byte, 6),
			"x.ds.index": {2, 0, 0}}, "x.ds", millrace.ErrDamaged, "no whole number"},
	} {
		err := sourcetest.Open(t, c.mk, sourcetest.Fixture{Files: c.files, Path: c.path})
		if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %v with %q", what, err, c.class, c.says)
		}
	}
}

func TestDamage(t *testing.T) {
	fixture := func(name string, files sourcetest.Files) []sourcetest.Fixture {
		return []sourcetest.Fixture{{Name: name, Files: files, Path: name}}
	}
	sourcetest.Damage(t, olmo(tokenfiles.Options{}), fixture("x.npy", pair("0,1,\"a\nb\"\n1,2,b\n", 5, 6)), 8<<20)
	small := sourcetest.Files{"x.ds": {1, 0, 2, 0, 3, 0}, "x.ds.index": make([]byte, 16)}
	small["x.ds.index"][0], small["x.ds.index"][8] = 1, 3
	sourcetest.Damage(t, datatrove(tokenfiles.Options{}), fixture("x.ds", small), 8<<20)
	sourcetest.Damage(t, raw(eos(3)), fixture("d/rows.npy", written(t, "rows.npy")), 8<<20)
}

func FuzzTokenFiles(f *testing.F) {
	for name, b := range written(f, "part-0-00000.csv.gz", "00000_tokens.ds.index", "gpt2.bin", "rows.npy") {
		f.Add([]byte{1, 0, 2, 0, 3, 0}, b, uint8(len(name)%3))
		f.Add(b, []byte("0,3\n"), uint8(2))
	}
	f.Fuzz(func(t *testing.T, data, beside []byte, kind uint8) {
		if kind%3 == 0 {
			beside = packRows(string(beside)) // past the gate of gzip's checksums
		}
		files := sourcetest.Files{"x.npy": data, "x.csv.gz": beside}
		mk := []sourcetest.New{olmo(tokenfiles.Options{}), olmo(tokenfiles.Options{}), raw(eos(3))}[kind%3]
		if kind > 127 {
			files, mk = sourcetest.Files{"x.npy": data, "x.npy.index": beside}, datatrove(tokenfiles.Options{})
		}
		sourcetest.Fuzz(t, mk, sourcetest.Fixture{Files: files, Path: "x.npy"})
	})
}
