package megatron_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/megatron"
	"millrace/sources/sourcetest"
)

func format(fs sources.FS) sources.Format { return megatron.New(fs) }

// dataset writes the documented layout: documents of sequences of values, each of size bytes.
func dataset(code byte, size int, docs ...[][]int64) (idx, bin []byte) {
	le := binary.LittleEndian
	var lengths, pointers, bounds []byte
	sequences := uint64(0)
	bounds = le.AppendUint64(bounds, 0)
	for _, doc := range docs {
		for _, seq := range doc {
			lengths = le.AppendUint32(lengths, uint32(len(seq)))
			pointers = le.AppendUint64(pointers, uint64(len(bin)))
			for _, v := range seq {
				bin = append(bin, le.AppendUint64(nil, uint64(v))[:size]...)
			}
			sequences++
		}
		bounds = le.AppendUint64(bounds, sequences)
	}
	idx = append([]byte("MMIDIDX\x00\x00"), 1, 0, 0, 0, 0, 0, 0, 0, code)
	idx = le.AppendUint64(idx, sequences)
	idx = le.AppendUint64(idx, uint64(len(docs)+1))
	return append(append(append(idx, lengths...), pointers...), bounds...), bin
}

func fixture(name string, code byte, size int, want []sourcetest.Want, docs ...[][]int64) sourcetest.Fixture {
	idx, bin := dataset(code, size, docs...)
	return sourcetest.Fixture{
		Name:     name,
		Files:    sourcetest.Files{"d/x.idx": idx, "d/x.bin": bin},
		Path:     "d/x.bin",
		Want:     want,
		Seekable: true,
		Limits:   sources.Limits{SampleBytes: 4096},
	}
}

func tokens(t ...uint32) sourcetest.Want {
	if t == nil {
		t = []uint32{}
	}
	return sourcetest.Want{Tokens: t}
}

// many has an .idx that takes several reads.
func many() sourcetest.Fixture {
	rng := rand.New(rand.NewPCG(5, 6))
	var docs [][][]int64
	var want []sourcetest.Want
	for range 3000 {
		var doc [][]int64
		all := tokens()
		for range rng.IntN(3) {
			seq := make([]int64, rng.IntN(60))
			for i := range seq {
				seq[i] = rng.Int64N(1 << 16)
				all.Tokens = append(all.Tokens, uint32(seq[i]))
			}
			doc = append(doc, seq)
		}
		docs, want = append(docs, doc), append(want, all)
	}
	return fixture("many", 8, 2, want, docs...)
}

func TestContract(t *testing.T) {
	bad := sourcetest.Want{Bad: "no token id"}
	sourcetest.Run(t, "megatron", format, []sourcetest.Fixture{
		// The example of the format's description: 3 sequences, 2 documents, an index of 94 bytes.
		fixture("described", 8, 2, []sourcetest.Want{tokens(1, 2, 3, 4, 5), tokens(6)}, [][]int64{{1, 2, 3}, {4, 5}},
			[][]int64{{6}}),
		fixture("no documents", 8, 2, nil),
		fixture("empty documents", 4, 4, []sourcetest.Want{tokens(), tokens(), tokens(7), tokens()}, nil, [][]int64{{}},
			[][]int64{{}, {7}, {}}, nil),
		fixture("u8", 1, 1, []sourcetest.Want{tokens(0, 255)}, [][]int64{{0, 255}}),
		fixture("i8", 2, 1, []sourcetest.Want{tokens(0, 127), bad}, [][]int64{{0, 127}}, [][]int64{{0, -1}}),
		fixture("i16", 3, 2, []sourcetest.Want{tokens(0, 32767), bad}, [][]int64{{0, 32767}}, [][]int64{{-1}}),
		fixture("i32", 4, 4, []sourcetest.Want{tokens(0, 1<<31-1), bad, tokens(3)}, [][]int64{{0, 1<<31 - 1}},
			[][]int64{{-5}}, [][]int64{{3}}),
		fixture("i64", 5, 8, []sourcetest.Want{tokens(1<<31 - 1), bad, bad}, [][]int64{{1<<31 - 1}},
			[][]int64{{1 << 31}}, [][]int64{{-1}}),
		fixture("too long", 8, 2, []sourcetest.Want{tokens(make([]uint32, 2048)...), {Bad: "sample_bytes"}, tokens(9)},
			[][]int64{make([]int64, 2048)}, [][]int64{make([]int64, 2000), make([]int64, 49)}, [][]int64{{9}}),
		many(),
	})
}

// TestDamage: the .bin has no checksums, so a record may change. TestMisfits has the faults that the index must show.
func TestDamage(t *testing.T) {
	sourcetest.Damage(t, format, []sourcetest.Fixture{
		fixture("documents", 4, 4, nil, [][]int64{{1, 2, 3}, {4}}, nil, [][]int64{{5}, {}, {6, 7}},
			[][]int64{make([]int64, 300)}),
	}, 8<<20)
}

func TestMisfits(t *testing.T) {
	le := binary.LittleEndian
	for name, c := range map[string]struct {
		spoil func(idx, bin []byte) ([]byte, []byte)
		says  string
	}{
		"magic":   {func(i, b []byte) ([]byte, []byte) { i[0] = 'X'; return i, b }, "begin"},
		"version": {func(i, b []byte) ([]byte, []byte) { i[9] = 2; return i, b }, "version 2"},
		"dtype":   {func(i, b []byte) ([]byte, []byte) { i[17] = 9; return i, b }, "dtype"},
		"sequences": {func(i, b []byte) ([]byte, []byte) { le.PutUint64(i[18:], 1<<60); return i, b },
			"sequences"},
		"documents":       {func(i, b []byte) ([]byte, []byte) { le.PutUint64(i[26:], 0); return i, b }, "boundaries"},
		"negative length": {func(i, b []byte) ([]byte, []byte) { le.PutUint32(i[34:], 1<<31); return i, b }, "tokens"},
		"pointer": {func(i, b []byte) ([]byte, []byte) { le.PutUint64(i[34+12+8:], 4); return i, b },
			"begins at byte 4"},
		"first document": {func(i, b []byte) ([]byte, []byte) { le.PutUint64(i[70:], 1); return i, b },
			"first document"},
		"order": {func(i, b []byte) ([]byte, []byte) { le.PutUint64(i[78:], 9); return i, b }, "document 0"},
		"last document": {func(i, b []byte) ([]byte, []byte) { le.PutUint64(i[86:], 2); return i, b },
			"end at sequence"},
		"bin cut":          {func(i, b []byte) ([]byte, []byte) { return i, b[:10] }, "x.bin has 10"},
		"bin with more":    {func(i, b []byte) ([]byte, []byte) { return i, append(b, 0) }, "x.bin has 13"},
		"index with more":  {func(i, b []byte) ([]byte, []byte) { return append(i, 0), b }, "95 bytes"},
		"index with a cut": {func(i, b []byte) ([]byte, []byte) { return i[:20], b }, "20 bytes"},
		"no index":         {func(i, b []byte) ([]byte, []byte) { return nil, b }, "not beside it"},
	} {
		f := fixture(name, 8, 2, nil, [][]int64{{1, 2, 3}, {4, 5}}, [][]int64{{6}})
		idx, bin := c.spoil(f.Files["d/x.idx"], f.Files["d/x.bin"])
		f.Files = sourcetest.Files{"d/x.idx": idx, "d/x.bin": bin}
		if idx == nil {
			delete(f.Files, "d/x.idx")
		}
		if err := sourcetest.Open(t, format, f); !errors.Is(err, millrace.ErrDamaged) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want ErrDamaged with %q", name, err, c.says)
		}
	}
	f := fixture("floats", 7, 4, nil, [][]int64{{1}})
	if err := sourcetest.Open(t, format, f); !errors.Is(err, millrace.ErrInvalid) ||
		!strings.Contains(err.Error(), "floating point") {
		t.Errorf("f32: got %v", err)
	}
	f = fixture("modes", 8, 2, nil, [][]int64{{1, 2, 3}, {4, 5}}, [][]int64{{6}})
	f.Files["d/x.idx"] = append(f.Files["d/x.idx"], 0, 0, 1)
	if err := sourcetest.Open(t, format, f); !errors.Is(err, millrace.ErrInvalid) ||
		!strings.Contains(err.Error(), "a mode (sequence_modes) for each of its 3 sequences") {
		t.Errorf("modes: got %v", err)
	}
}

// countedReads counts the reads of an .idx.
type countedReads struct {
	sourcetest.Files
	reads *int
}

func (c countedReads) Open(path string) (sources.OpenFile, error) {
	f, err := c.Files.Open(path)
	return &countedFile{f, c.reads}, err
}

type countedFile struct {
	sources.OpenFile
	reads *int
}

func (f *countedFile) ReadAt(p []byte, off int64) (int, error) {
	*f.reads++
	return f.OpenFile.ReadAt(p, off)
}

// TestASmallIndexIsReadOnce: a source may have 100,000 pairs of a few documents. Each of them costs one read and the
// memory of its own .idx.
func TestASmallIndexIsReadOnce(t *testing.T) {
	f := fixture("small", 8, 2, nil, [][]int64{{1, 2, 3}, {4, 5}}, [][]int64{{6}})
	reads := 0
	files := countedReads{f.Files, &reads}
	bin, err := f.Files.Open(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	open := func() {
		sh, err := megatron.New(files).Open(t.Context(), bin, sources.Field{}, sources.Limits{}.Resolved(), nil)
		if err != nil {
			t.Fatal(err)
		}
		sh.Close()
	}
	if open(); reads != 1 {
		t.Errorf("%d reads, want 1", reads)
	}
	const times = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		open()
	}
	runtime.ReadMemStats(&after)
	if bytes := (after.TotalAlloc - before.TotalAlloc) / times; bytes > 4<<10 {
		t.Errorf("opening an .idx of %d bytes takes %d bytes of memory", len(f.Files["d/x.idx"]), bytes)
	}
}

func FuzzMegatron(f *testing.F) {
	idx, bin := dataset(8, 2, [][]int64{{1, 2, 3}, {4, 5}}, [][]int64{{6}})
	f.Add(idx, bin)
	idx, bin = dataset(5, 8, nil, [][]int64{{-1}, {}})
	f.Add(idx, bin)
	f.Add([]byte("MMIDIDX\x00\x00"), []byte{})
	f.Fuzz(func(t *testing.T, idx, bin []byte) {
		sourcetest.Fuzz(t, format,
			sourcetest.Fixture{Files: sourcetest.Files{"x.idx": idx, "x.bin": bin}, Path: "x.bin"})
	})
}
