package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"millrace"
)

// lie is metadata of a dataset that says something else than its files show.
type lie struct {
	of   string // the sample
	file string
	tell func(t *testing.T, b []byte) []byte
	says string // part of the error
}

// TestLies: each format compares its metadata with its files. What lies is an error that names a file, whatever the
// metadata would change in the records.
func TestLies(t *testing.T) {
	samples, err := loadSamples("../..")
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*sample{}
	for _, s := range samples {
		byName[s.name] = s
	}
	for _, l := range lies() {
		s := byName[l.of]
		if s == nil || s.files[l.file] == nil {
			t.Errorf("there is no sample %s with %s", l.of, l.file)
			continue
		}
		told := *s
		told.files = map[string][]byte{}
		for name, b := range s.files {
			told.files[name] = b
		}
		told.files[l.file] = l.tell(t, append([]byte(nil), s.files[l.file]...))
		dir := t.TempDir()
		if err := told.write(dir); err != nil {
			t.Fatal(err)
		}
		spec, err := told.spec(dir)
		if err != nil {
			t.Fatal(err)
		}
		_, err = readAll(t.Context(), spec, rand.New(rand.NewPCG(1, 2)))
		var broken fault
		if err == nil || errors.As(err, &broken) || !strings.Contains(err.Error(), l.says) ||
			!errors.Is(err, millrace.ErrDamaged) && !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("%s, %s: got %v, want an error with %q", l.of, l.file, err, l.says)
		}
	}
}

// set returns a lie that sets a value of a JSON text. path has keys and positions.
func set(value any, path ...any) func(t *testing.T, b []byte) []byte {
	return func(t *testing.T, b []byte) []byte {
		var root any
		if err := json.Unmarshal(b, &root); err != nil {
			t.Fatal(err)
		}
		at := root
		for _, key := range path[:len(path)-1] {
			switch key := key.(type) {
			case string:
				at = at.(map[string]any)[key]
			case int:
				at = at.([]any)[key]
			}
		}
		switch key := path[len(path)-1].(type) {
		case string:
			at.(map[string]any)[key] = value
		case int:
			at.([]any)[key] = value
		}
		out, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

// u32 returns a lie that sets 4 bytes, from the end if at is negative. u64 sets 8.
func u32(at int, v uint32) func(t *testing.T, b []byte) []byte {
	return func(_ *testing.T, b []byte) []byte {
		binary.LittleEndian.PutUint32(b[(at+len(b))%len(b):], v)
		return b
	}
}

func u64(at int, v uint64) func(t *testing.T, b []byte) []byte {
	return func(_ *testing.T, b []byte) []byte {
		binary.LittleEndian.PutUint64(b[(at+len(b))%len(b):], v)
		return b
	}
}

// instead returns a lie that replaces a part of a text.
func instead(is, was string) func(t *testing.T, b []byte) []byte {
	return func(t *testing.T, b []byte) []byte {
		if !strings.Contains(string(b), was) {
			t.Fatalf("%q is not in %q", was, b)
		}
		return []byte(strings.Replace(string(b), was, is, 1))
	}
}

// rows returns a lie that writes other rows of OLMo.
func rows(text string) func(t *testing.T, b []byte) []byte {
	return func(*testing.T, []byte) []byte { return gzipped([]byte(text)) }
}

func lies() []lie {
	const index = "data/index.json"
	return []lie{
		{"litdata/several", index, set(1<<40, "chunks", 0, "chunk_size"), "its index.json says 1099511627776"},
		{"litdata/several", index, set(7, "chunks", 1, "chunk_size"), "it has 8 items"},
		{"litdata/several", index, set(1<<40, "chunks", 0, "chunk_bytes"), "the index says 1099511627776"},
		{"litdata/tokens", index, set(41, "chunks", 0, "dim"), "it has 40 tokens"},
		{"litdata/tokens16", index, set(1<<40, "chunks", 0, "dim"), "it has 40 tokens"},
		{"litdata/tokens16", index, set(9, "chunks", 1, "chunk_size"), "it has 10 items"},
		{"litdata/chunk", index, set(1<<40, "chunks", 0, "chunk_bytes"), "it has 923 bytes"},
		{"litdata/chunk", index, set(17, "chunks", 0, "chunk_size"), "it has 16 items"},
		{"litdata/framed", index, set(281, "chunks", 0, "chunk_size"), "it has 280 items"},
		{"litdata/framed", "data/chunk-0-0.bin", u32(24+4*281, 1), "frame 0 says"},
		{"litdata/framed", "data/chunk-0-0.bin", u32(24+4*281+4, 7), "frame 0 says"},
		{"litdata/arrow", index, set(6, "chunks", 0, "chunk_size"), "it has 5 items"},
		{"litdata/arrow", "data/chunk-0-0.bin", u32(-12, 1000), "says that 1000 bytes of rows lie before it"},
		{"litdata/arrow", "data/chunk-0-0.bin", u32(-12, 1<<31), "bytes of rows lie before it"},

		{"mds/several", index, set(9, "shards", 0, "samples"), "its index.json says 9"},
		{"mds/several", index, set(1<<40, "shards", 1, "samples"), "its index.json says 1099511627776"},
		{"mds/several", index, set(1<<40, "shards", 0, "raw_data", "bytes"), "the index says 1099511627776"},
		{"mds/several", index, set("m", "shards", 0, "column_names", 0), "the columns"},
		{"mds/several", index, set("uint32", "shards", 0, "column_encodings", 0), "columns of"},
		{"mds/several", index, set(4, "shards", 0, "column_sizes", 0), "columns of other sizes"},
		{"mds/zstd", index, set(119, "shards", 0, "samples"), "it has 120 samples"},
		{"mds/zstd", index, set(1<<40, "shards", 0, "raw_data", "bytes"), "its index.json says 1099511627776"},
		{"mds/zstd", index, set(1, "shards", 0, "zip_data", "bytes"), "the index says 1"},
		{"mds/json", index, set(1, "shards", 0, "samples"), "its index.json says 1"},
		{"mds/json", "data/shard.00000.json.meta", u32(0, 11), ""},
		{"mds/csv", "data/shard.00000.csv.meta", instead(`"m"`, `"n"`), "its first line is"},
		{"mds/csv", "data/shard.00000.csv", instead("m,", "n,"), "its first line is"},
		{"mds/tsv", index, set(1<<40, "shards", 0, "samples"), "its index.json says 1099511627776"},

		{"megatron/two", "d/x.idx", u64(18, 29), "do not make"},
		{"megatron/two", "d/x.idx", u64(26, 20), "do not make"},
		{"megatron/two", "d/x.idx", u32(34, 1<<30), "ends at byte"},
		{"megatron/two", "d/x.idx", u32(34+4, 2), "begins at byte"},
		{"megatron/two", "d/x.idx", u64(-8, 1), "goes from sequence"},

		{"olmo/two", "part-0-00000.csv.gz", rows("0,4\n5,9\n"), "row 2 goes from id 5"},
		{"olmo/two", "part-0-00000.csv.gz", rows("0,4\n4,5\n"), "its documents end at id 5"},
		{"datatrove/two", "00000_tokens.ds.index", u64(0, 1<<40), "document 0 goes from id 0 to 1099511627776"},
		{"datatrove/two", "00000_tokens.ds.index", u64(-8, 312), "its documents end at id 312"},
		{"datatrove/two", "00000_tokens.ds.metadata", instead("gpt2|4", "gpt2|2"), "it says that ids have 4 bytes"},
		{"datatrove/two", "00000_tokens.ds.metadata", instead("\n314\n", "\n313\n"), "it says that there are 314 ids"},

		{"webdataset/energon", "shard_2.tar.idx", u64(8, 512), "shard_2.tar.idx"},
		{"tfrecord/plain", "x.tfrecord", u64(0, 1<<40), "at byte 0"},
		{"tokens/flat-npy", "flat.npy", instead("(913", "(313"), "flat.npy"},
		{"parquet/snappy", "x.parquet", u32(-8, 1<<30), "footer"},
		{"arrow/file", "x.arrow", u32(-10, 1<<30), "x.arrow"},
	}
}
