package main

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/app/dryrun"
	"millrace/sources/find"
	"millrace/sources/format/parts/fields"
	"millrace/sources/format/registry"
	"millrace/sources/read/filter"
	"millrace/text/chat"
	"millrace/text/chat/jinja"
	"millrace/text/tokenize"
)

// mostClaimed is the memory that a small file may take that claims to be a large one. The window of a zstd frame and
// the dictionary of xz have limits of their own.
const mostClaimed = 48 << 20

// claim is a small file that claims much.
type claim struct {
	format, file string
	b            []byte
	says         string // the error, or the reason of a bad record
	cure         string // of a file that may be whole; empty: its claim contradicts its size, or the record is bad
}

// TestLimits: files that claim large sizes are refused before memory is taken for them.
func TestLimits(t *testing.T) {
	l := &loader{root: "../../sources/format"}
	deep := `{"text": "x", "n": ` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "}\n"
	xz := l.read("jsonl/testdata/few.jsonl.xz")
	xz[16] = 40 // the dictionary of the first block: 4 GiB
	head := xz[12 : 12+(int(xz[12])+1)*4]
	binary.LittleEndian.PutUint32(head[len(head)-4:], crc32.ChecksumIEEE(head[:len(head)-4]))
	window := append([]byte("\x28\xb5\x2f\xfd\x00\xa8"), make([]byte, 40)...)
	page := l.read("parquet/testdata/few.parquet")
	const large = 65 << 20
	size := binary.LittleEndian.AppendUint32(nil, large)
	footer := slices.Concat([]byte("PAR1"), make([]byte, large), size, []byte("PAR1"))
	metadata := slices.Concat([]byte("\xff\xff\xff\xff"), size, make([]byte, large))
	for _, c := range []claim{
		{"parquet", "x.parquet", footer, "its footer has 68157440 bytes", "larger row groups"},
		{"arrow", "x.arrow", metadata, "it has 68157440 bytes of metadata", "fewer columns"},
		{"webdataset", "x.tar", append(extended(2<<20), make([]byte, 3<<20)...), "at most 1048576 are read",
			"shorter names"},
		{"jsonl", "x.jsonl", []byte(deep), "nested deeper than 256", ""},
		{"jsonl", "x.jsonl.gz", gzipped(bytes.Repeat([]byte("a"), 64<<20)), "longer than sample_bytes", ""},
		{"jsonl", "x.jsonl.xz", xz, "its xz dictionary has 4096 MiB", ""},
		{"jsonl", "x.jsonl.zst", window, "--long", ""},
		{"text", "x.txt.gz", gzipped(bytes.Repeat([]byte("a"), 64<<20)), "longer than sample_bytes", ""},
		{"text", "x.txt.xz", xz, "its xz dictionary has 4096 MiB", ""},
		{"text", "x.txt.zst", window, "--long", ""},
		{"csv", "x.csv.gz", gzipped(bytes.Repeat([]byte("ab,"), 6<<20)), "does not end within 4194304 bytes",
			"a shorter one"},
		{"parquet", "x.parquet", []byte("PAR1\xff\xff\xff\x7fPAR1"), "a footer of 2147483647 bytes", ""},
		{"parquet", "x.parquet", resized(page, 1<<31-1), "at most 268435456 are read", "smaller pages"},
		{"parquet", "x.parquet", resized(page, 200<<20), "bytes unpack to 209715200", "smaller pages"},
		{"parquet", "x.parquet", l.read("parquet/testdata/deep.parquet"), "nested deeper than 32", ""},
		{"arrow", "x.arrow", l.read("arrow/testdata/deep.arrow"), "nested deeper than 64",
			"the columns that are wanted"},
		{"arrow", "x.arrow", []byte("\xff\xff\xff\xff\xff\xff\xff\x7fxxxx"), "declares 2147483647 bytes of metadata",
			""},
		{"mds", "x.mds", described(1<<16 + 1), "65537 names", "the columns that are wanted"},
		{"mds", "x.mds", described(1 << 22), "the description of its columns takes", "the columns that are wanted"},
		{"mds", "x.mds.zstd", zstded([]byte("\xff\xff\xff\xff123456789012")), "more than are read from a packed file",
			""},
		{"webdataset", "x.tar", extended(1 << 30), "an extended header has 1073741824 bytes", ""},
		{"webdataset", "x.tar.zst", window, "window size exceeded", ""},
		{"tokens", "x.npy", []byte("\x93NUMPY\x02\x00\xff\xff\xff\x7f{}  "), "ends behind the file", ""},
		{"tfrecord", "x.tfrecord", l.read("tfrecord/testdata/plain.tfrecord")[:11], "ends early", ""},
		{"lengths", "x.csv", []byte("tokens\n99999999\n"), "more than 16777216", "several documents"},
		{"lengths", "x.csv", []byte("tokens,count\n1,99999999999\n"), "more than 68719476736", "several files"},
	} {
		if l.err != nil {
			t.Fatal(l.err)
		}
		s := &sample{name: c.format, files: map[string][]byte{c.file: c.b}, path: c.file, text: "text"}
		if c.format == "jsonl" {
			s.others = []string{"n"}
		}
		s.source.Format, s.source.Record = registry.Name(c.format), "text"
		err := bounded(t, c.says, func() error { return s.readFirst(t) })
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.file) {
			t.Errorf("%s: got %v, want %q", c.file, err, c.says)
			continue
		}
		said := (&dryrun.Problem{Source: "web", Err: err}).Error()
		if c.cure != "" && (!strings.Contains(said, c.cure) || strings.Contains(said, "restore")) {
			t.Errorf("%s: got %s, want the cure %q", c.file, said, c.cure)
		}
	}
}

// bounded calls act and checks the memory that it takes.
func bounded(t *testing.T, what string, act func() error) error {
	t.Helper()
	before := allocated()
	err := act()
	if n := allocated() - before; n > mostClaimed {
		t.Errorf("%s: %d MiB were allocated", what, n>>20)
	}
	return err
}

// readFirst reads a sample until the first bad record, which is an error.
func (s *sample) readFirst(t *testing.T) error {
	dir := t.TempDir()
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	spec, err := s.spec(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := readOnce(t.Context(), spec, nil)
	for _, r := range all {
		if r.why != "" && err == nil {
			return fmt.Errorf("%s: %s", s.path, r.why)
		}
	}
	return err
}

// resized is a Parquet file whose first page declares so many unpacked bytes.
func resized(b []byte, size int32) []byte {
	if b[4] != 0x15 || b[6] != 0x15 {
		panic("the file does not begin with the head of a page")
	}
	_, n := binary.Uvarint(b[7:])
	return append(binary.AppendVarint(bytes.Clone(b[:7]), int64(size)), b[7+n:]...)
}

// described is a shard of MDS without samples, whose description has so many columns.
func described(columns int) []byte {
	list := func(value string) string { return strings.Repeat(value+",", columns-1) + value }
	config := `{"version":2,"format":"mds","column_names":[` + list(`"a"`) + `],"column_encodings":[` + list(`"int"`) +
		`],"column_sizes":[` + list("4") + `]}`
	out := make([]byte, 8, 8+len(config))
	binary.LittleEndian.PutUint32(out[4:], uint32(8+len(config)))
	return append(out, config...)
}

// extended is an archive with an extended header of so many bytes.
func extended(size int64) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: strings.Repeat("é", 100), Size: 0}); err != nil {
		panic(err)
	}
	out := b.Bytes()
	copy(out[124:136], fmt.Sprintf("%011o\x00", size))
	copy(out[148:156], "        ")
	sum := 0
	for _, c := range out[:512] {
		sum += int(c)
	}
	copy(out[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return out
}

// TestLimitsOfSettings: templates, filters, patterns and vocabularies have limits.
func TestLimitsOfSettings(t *testing.T) {
	dir := t.TempDir()
	large := func(name string, size int64) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	render := func(source string) error {
		template, err := jinja.Parse(source)
		if err == nil {
			_, err = template.Render(nil)
		}
		return err
	}
	resolve := func(name, format string) error {
		_, err := find.Resolve(nil, find.Query{Base: dir, Patterns: []string{name}, Format: format})
		return err
	}
	large("index.json", 2<<30)
	for says, act := range map[string]func() error{
		"more than 3000000 steps": func() error {
			return render("{% for i in range(9999) %}{% for j in range(9999) %}{{ j }}{% endfor %}{% endfor %}")
		},
		"nested deeper than 200": func() error {
			return render("{{ " + strings.Repeat("(", 300) + "1" + strings.Repeat(")", 300) + " }}")
		},
		"nested deeper than 100": func() error {
			return render("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(1) }}")
		},
		"at most 8388608 are read": func() error {
			_, err := chat.ReadTemplate(large("x.jinja", 9<<20))
			return err
		},
		"at most 4096 are read": func() error {
			_, err := filter.Compile(strings.Repeat("x", 5000))
			return err
		},
		"at most 64 are possible": func() error {
			var b strings.Builder
			for i := range 65 {
				fmt.Fprintf(&b, "{f%d}", i)
			}
			_, err := fields.ParseTemplate(b.String())
			return err
		},
		"more than 1073741824 bytes": func() error { return resolve(".", "mds") },
		"more than 1048576 paths":    func() error { return resolve("{0..99999999}.jsonl", "jsonl") },
		"the highest supported one is 2097150": func() error {
			_, err := tokenize.Open(tokenize.Spec{Path: file("tokenizer.json",
				`{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,`+
					`"pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":2097151},"merges":[]}}`)})
			return err
		},
		"not a number from 0 to 2097150": func() error {
			_, err := tokenize.Open(tokenize.Spec{Path: file("x.tiktoken", "AA== 99999999\n"), Pattern: "gpt2"})
			return err
		},
	} {
		if strings.Contains(says, "steps") { // memory of each step, most of it for a moment
			if err := act(); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want %q", err, says)
			}
			continue
		}
		if err := bounded(t, says, act); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}
