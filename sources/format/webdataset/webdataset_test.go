package webdataset_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/webdataset"
	"millrace/sources/sourcetest"
)

func format(fs sources.FS) sources.Format { return webdataset.New(fs) }

// written returns an unpacked archive of testdata.
func written(t testing.TB, name string) []byte {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join("testdata", name+".zst"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b, err := d.DecodeAll(packed, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// texts returns the texts from … end of testdata/make.py.
func texts(from, end int) (out []sourcetest.Want) {
	for i := from; i < end; i++ {
		out = append(out, sourcetest.Want{Text: fmt.Sprintf("document %d ", i) + strings.Repeat("wörld ", i%7)})
	}
	return out
}

// archive writes members: name, text, name, text and so on.
func archive(members ...string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		head := tar.Header{Name: members[i], Size: int64(len(members[i+1])), Mode: 0o600}
		if err := w.WriteHeader(&head); err != nil {
			panic(err)
		}
		if _, err := w.Write([]byte(members[i+1])); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func fixture(name string, b []byte, text string, want []sourcetest.Want) sourcetest.Fixture {
	return sourcetest.Fixture{Name: name, Files: sourcetest.Files{"d/x.tar": b}, Path: "d/x.tar",
		Field: sources.Field{Text: text}, Want: want, Seekable: true}
}

// traps has the texts of the archives of traps in testdata/make.py.
func traps() []sourcetest.Want {
	absent := sourcetest.Want{Bad: `field "txt" is absent`}
	return []sourcetest.Want{
		{Text: "upper case"}, absent, absent, absent, {Text: "with a dot"}, {Text: "without it"}, absent,
		{Text: "is a sample, too"}, {Text: "not adjacent"}, {Text: "long name"}, {Text: "ünï"},
		{Bad: `sample twice has two members "txt"`}, {Bad: "not valid UTF-8"}, absent, {Text: ""},
	}
}

func inside(n int) (out []sourcetest.Want) {
	for i := range n {
		out = append(out, sourcetest.Want{Text: fmt.Sprintf("inside %d", i)})
	}
	return out
}

// large has groups beside members of many bytes.
func large() sourcetest.Fixture {
	rng := rand.New(rand.NewPCG(1, 2))
	var members []string
	f := fixture("large", nil, "txt", nil)
	for i := range 300 {
		key, text := fmt.Sprintf("d.x/%05d", i), strings.Repeat("t", rng.IntN(900))
		if i%100 == 40 {
			members = append(members, key+".jpg", strings.Repeat("\xff", 400<<10))
		}
		if i%100 == 70 {
			text = strings.Repeat("l", 5000)
			f.Want = append(f.Want, sourcetest.Want{Bad: "sample_bytes"})
		} else {
			f.Want = append(f.Want, sourcetest.Want{Text: text})
		}
		members = append(members, key+".txt", text, key+".cls", "7")
	}
	f.Files["d/x.tar"], f.Limits.SampleBytes = archive(members...), 4000
	return f
}

func TestContract(t *testing.T) {
	plain := written(t, "plain.tar")
	var energon []sourcetest.Fixture
	for i, n := range []int{2, 3, 4} {
		f := fixture(fmt.Sprintf("energon %d", i), written(t, fmt.Sprintf("energon/shard_%d.tar", i)), "txt",
			texts(10*i, 10*i+n))
		idx, err := os.ReadFile(fmt.Sprintf("testdata/energon/shard_%d.tar.idx", i))
		if err != nil {
			t.Fatal(err)
		}
		f.Files["d/x.tar.idx"] = idx
		energon = append(energon, f)
	}
	sourcetest.Run(t, "webdataset", format, append(energon,
		fixture("txt", plain, "txt", texts(0, 12)),
		fixture("json", plain, "json.text", inside(12)),
		fixture("default", plain, "text", texts(0, 12)),
		fixture("default inside json", archive("a.json", `{"text": "x"}`, "b.text", "y", "b.txt", "z"), "text",
			[]sourcetest.Want{{Text: "x"}, {Text: "y"}}),
		fixture("pax", written(t, "pax.tar"), "txt", traps()),
		fixture("gnu", written(t, "gnu.tar"), "txt", traps()),
		fixture("ustar", written(t, "ustar.tar"), "txt", traps()),
		fixture("no members", archive(), "txt", nil),
		large(),
	))
}

// streams are packed archives.
func streams(t *testing.T) (out []sourcetest.Fixture) {
	for _, name := range []string{"packed.tar.gz", "plain.tar.zst"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, sourcetest.Fixture{Name: name, Files: sourcetest.Files{"d/" + name: b}, Path: "d/" + name,
			Field: sources.Field{Text: "txt"}, Want: texts(0, 12)})
	}
	return out
}

func TestPackedContract(t *testing.T) {
	f := large()
	long := sourcetest.Fixture{Name: "large", Path: "d/x.tar.gz", Field: f.Field, Limits: f.Limits, Want: f.Want}
	tail := archive("long.bin", strings.Repeat("b", 1<<20+5000), "long.txt", "behind", "end.txt", "last")
	long.Want = append(long.Want, sourcetest.Want{Bad: "longer than sample_bytes, 4000, and a packed archive"},
		sourcetest.Want{Text: "last"})
	var b bytes.Buffer
	whole := append(f.Files["d/x.tar"][:len(f.Files["d/x.tar"])-2*512], tail...)
	for _, part := range [][]byte{whole[:100_000], whole[100_000:]} { // several members of gzip
		w := gzip.NewWriter(&b)
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	long.Files = sourcetest.Files{"d/x.tar.gz": b.Bytes()}
	sourcetest.Run(t, "webdataset", format, append(streams(t), long))
}

func TestPackedDamage(t *testing.T) {
	all := streams(t)
	all[0].Checked = true
	sourcetest.Damage(t, format, all, 32<<20)
}

func TestDamage(t *testing.T) {
	sourcetest.Damage(t, format, []sourcetest.Fixture{
		fixture("small", archive("a.txt", "one", "a.json", `{"n": 1}`, "b.txt", "two"), "txt", nil),
		fixture("pax", append(written(t, "pax.tar")[:7680:7680], make([]byte, 1024)...), "txt", nil),
	}, 8<<20)
}

// others returns the values of Field.Others of all records, nil for a bad one.
func others(t *testing.T, b []byte, names ...string) (rows [][]any) {
	t.Helper()
	f := fixture("", b, "", nil)
	file, err := f.Files.Open(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := format(f.Files).Open(t.Context(), file, sources.Field{Others: names}, f.Limits.Resolved(), nil)
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

func TestMembersHaveValues(t *testing.T) {
	row := others(t, written(t, "plain.tar"), "txt", "json", "json.meta.n", "json.none", "cls", "ids.npy", "jpg",
		"none", "__key__")[2]
	want := []any{"document 2 wörld wörld ", map[string]any{"text": "inside 2", "meta": map[string]any{"n": 2}}, 2,
		nil, 2, []uint32{0, 1, 2}, []byte{255, 216, 2}, nil, "web/0002"}
	if !reflect.DeepEqual(sourcetest.Maps(row), any(want)) {
		t.Errorf("got %#v, want %#v", row, want)
	}
	npy := func(head, data string) string {
		return "\x93NUMPY\x01\x00" + string([]byte{byte(len(head)), 0}) + head + data
	}
	grid := npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }\n", "\xff\xff\xff\xff\x02\x00\x00\x00")
	if got := others(t, archive("a.npy", grid), "npy"); !reflect.DeepEqual(got, [][]any{{[]any{[]any{-1, 2}}}}) {
		t.Errorf("an array of two dimensions is %#v", got)
	}
	for name, text := range map[string]string{"a.pkl": "x", "b.cls": "x", "c.json": "{", "d.npy": "x",
		"e.npy": npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "x")} {
		if got := others(t, archive(name, text), name[2:]); got[0] != nil {
			t.Errorf("%s: got %v, want a bad record", name, got)
		}
	}
}

// TestAnIndexOfEnergonIsCompared: a stale .tar.idx is an error that names it, or is not used.
func TestAnIndexOfEnergonIsCompared(t *testing.T) {
	b := archive("a.txt", "one", "a.json", "{}", "b.txt", "two")
	place := func(n ...byte) (out []byte) {
		for _, n := range n {
			out = append(out, 0, 2*n, 0, 0, 0, 0, 0, 0)
		}
		return out
	}
	for says, idx := range map[string][]byte{
		"": place(0, 4, 6), "keys a and b": place(0, 6), "x.tar.idx does not fit": place(1, 4, 6),
		"the archive ends at byte": place(0, 4, 99), "the member b.txt follows": place(0, 4),
		"used, 2 groups": place(4, 0), "used, 2 groups ": []byte("12345678901"),
	} {
		f := fixture("", b, "txt", []sourcetest.Want{{Text: "one"}, {Text: "two"}})
		f.Files["d/x.tar.idx"] = idx
		if strings.HasPrefix(says, "keys") {
			f.Want = []sourcetest.Want{{Bad: says}}
			says = ""
		}
		err := sourcetest.Open(t, format, f)
		if strings.HasPrefix(says, "used") {
			says = ""
		}
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%x: got %v, want %q", idx, err, says)
		}
	}
}

func TestMembersThatAreNotReadAreNamed(t *testing.T) {
	f := fixture("", written(t, "plain.tar"), "body", []sourcetest.Want{{}})
	err := sourcetest.Open(t, format, f)
	if err == nil ||
		!strings.Contains(err.Error(), `field "body" is absent; the record has cls, ids.npy, jpg, json, txt`) {
		t.Errorf("got %v", err)
	}
	sparse := archive("a.txt", "x")
	sparse[156] = 'S'
	var sum int
	for i, c := range sparse[:512] {
		if i < 148 || i >= 156 {
			sum += int(c)
		} else {
			sum += ' '
		}
	}
	copy(sparse[148:], fmt.Sprintf("%06o\x00 ", sum))
	f = fixture("", sparse, "txt", []sourcetest.Want{{Bad: "sparse file"}})
	if err := sourcetest.Open(t, format, f); err != nil {
		t.Error(err)
	}
}

func TestMisfits(t *testing.T) {
	b := archive("a.txt", "one", "b.txt", "two")
	for says, spoil := range map[string]func(b []byte) []byte{
		"checksum is wrong":                    func(b []byte) []byte { b[1025]++; return b },
		"ends inside a header":                 func(b []byte) []byte { return b[:1100] },
		"member b.txt has 3":                   func(b []byte) []byte { return b[:1024+513] },
		"at byte 0: there is no ":              func([]byte) []byte { return bytes.Repeat([]byte("no tar"), 200) },
		"at byte 0: the archive is cut off":    func([]byte) []byte { return nil },
		"at byte 2048: the archive is cut off": func(b []byte) []byte { return b[:2048] },
		"at byte 2560: there is an end mark before it": func(b []byte) []byte {
			return append(append(b[:1024:1024], make([]byte, 1536)...), bytes.Repeat([]byte("x"), 1024)...)
		},
	} {
		err := sourcetest.Open(t, format, fixture("", spoil(slices.Clone(b)), "txt", nil))
		if !errors.Is(err, millrace.ErrDamaged) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want ErrDamaged with %q", err, says)
		}
	}
}

func FuzzWebDataset(f *testing.F) {
	f.Add(archive("a.txt", "one", "a.json", `{"n": 1}`, "b.txt", "two"), []byte{}, "json.n")
	f.Add(written(f, "pax.tar")[:8<<10], []byte{}, "txt")
	f.Add(written(f, "gnu.tar")[:8<<10], make([]byte, 16), "left.txt")
	f.Add(written(f, "plain.tar")[:8<<10], []byte{}, "ids.npy")
	f.Fuzz(func(t *testing.T, b, idx []byte, path string) {
		files := sourcetest.Files{"x.tar": b}
		if len(idx) > 0 {
			files["x.tar.idx"] = idx
		}
		sourcetest.Fuzz(t, format, sourcetest.Fixture{Files: files, Path: "x.tar",
			Field: sources.Field{Text: "txt", Others: []string{path}}})
	})
}

// TestAPackedArchiveEndsAtItsMark: bytes behind the end mark of a packed archive are an error, too.
func TestAPackedArchiveEndsAtItsMark(t *testing.T) {
	for says, b := range map[string][]byte{
		"at byte 2048: there is an end mark before it": append(archive("a.txt", "one"),
			bytes.Repeat([]byte("x"), 1024)...),
		"the archive is cut off": archive("a.txt", "one")[:1024],
	} {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(b); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		f := sourcetest.Fixture{Files: sourcetest.Files{"x.tar.gz": packed.Bytes()}, Field: sources.Field{Text: "txt"},
			Want: []sourcetest.Want{{Text: "one"}}}
		err := sourcetest.Open(t, format, f)
		if !errors.Is(err, millrace.ErrDamaged) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want ErrDamaged with %q", err, says)
		}
	}
}
