package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"millrace/sources/format/registry"
)

// loader collects samples from the test files of the formats' packages, which the formats' own writers wrote.
type loader struct {
	root string
	all  []*sample
	err  error
}

// loadSamples returns the samples of the repository at root, in a fixed order.
func loadSamples(root string) ([]*sample, error) {
	l := &loader{root: filepath.Join(root, "sources", "format")}
	l.rows()
	l.columns()
	l.directories()
	l.tokens()
	l.records()
	return l.all, l.err
}

func (l *loader) read(name string) []byte {
	b, err := os.ReadFile(filepath.Join(l.root, name))
	if err != nil && l.err == nil {
		l.err = err
	}
	return b
}

// unpacked reads a file that the repository keeps packed.
func (l *loader) unpacked(name string) []byte {
	b := l.read(name)
	if l.err != nil {
		return nil
	}
	var r io.Reader
	var err error
	if strings.HasSuffix(name, ".gz") {
		r, err = gzip.NewReader(bytes.NewReader(b))
	} else {
		r, err = zstd.NewReader(bytes.NewReader(b))
	}
	if err == nil {
		b, err = io.ReadAll(r)
	}
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("unpack %s: %w", name, err)
	}
	return b
}

// add adds a sample of one file, whose text is in the field text.
func (l *loader) add(name, file string, b []byte, g guards, others ...string) *sample {
	s := &sample{name: name, files: map[string][]byte{file: b}, path: file, text: "text", others: others, guards: g}
	s.source.Format = registry.Name(strings.SplitN(name, "/", 2)[0])
	l.all = append(l.all, s)
	return s
}

// tree adds a sample of all files of a directory of test files.
func (l *loader) tree(name, dir string, g guards, others ...string) *sample {
	s := l.add(name, "x", nil, g, others...)
	s.path, s.files = "data", map[string][]byte{}
	from := filepath.Join(l.root, dir)
	err := filepath.WalkDir(from, func(at string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(at)
		rel, _ := filepath.Rel(from, at)
		s.files["data/"+filepath.ToSlash(rel)] = b
		return err
	})
	if err != nil && l.err == nil {
		l.err = err
	}
	return s
}

// rows adds the formats of text lines.
func (l *loader) rows() {
	lines := jsonLines(40)
	sealed := guards{content: true, end: true}
	l.add("jsonl/plain", "x.jsonl", lines, guards{}, "n", "meta.lang")
	l.add("jsonl/gzip", "x.jsonl.gz", gzipped(lines), sealed, "n", "meta.lang")
	l.add("jsonl/bgzf", "x.jsonl.gz", blockGzipped(lines), guards{content: true}, "n", "meta.lang")
	l.add("jsonl/zstd", "x.jsonl.zst", zstded(lines), sealed, "n", "meta.lang")
	l.add("jsonl/zstd-frames", "x.jsonl.zst", zstdFrames(lines), guards{content: true}, "n", "meta.lang")
	for _, name := range []string{"two.jsonl.bz2", "few.jsonl.bz2", "two.jsonl.xz", "few.jsonl.xz", "blocks.jsonl.xz"} {
		g := sealed
		g.end = !strings.HasPrefix(name, "two") // a cut between two streams leaves a whole one
		l.add("jsonl/"+strings.Replace(name, ".jsonl.", "-", 1), name, l.read("jsonl/testdata/"+name), g)
	}
	l.add("json/array", "x.json", jsonArray(lines), guards{end: true}, "n")
	l.add("json/objects", "x.json", bytes.ReplaceAll(lines, []byte(","), []byte(",\n")), guards{}, "n")
	l.add("json/gzip", "x.json.gz", gzipped(jsonArray(lines)), sealed, "n")
	for _, name := range []string{"all.csv", "rfc.csv", "rows.tsv", "semi.csv"} {
		b := l.read("csv/testdata/" + name)
		l.add("csv/"+strings.TrimSuffix(name, path.Ext(name)), name, b, guards{}, "note", "n")
	}
	l.add("csv/zstd", "x.csv.zst", zstded(l.read("csv/testdata/rfc.csv")), sealed, "note", "n")
	l.add("text/plain", "x.txt", []byte(strings.Repeat("wörld\n", 40)), guards{})
	l.add("lengths/plain", "x.csv", []byte("tokens,patches,count\n5,0,3\n17,256,1\n9,1,20\n"), guards{})
}

// columns adds the formats of columns.
func (l *loader) columns() {
	nested := []string{"meta", "messages", "ids", "deep"}
	for _, name := range []string{"snappy", "v2", "few", "gzip-item", "brotli-index", "v2-index", "lz4", "delta",
		"duckdb"} {
		l.add("parquet/"+name, "x.parquet", l.read("parquet/testdata/"+name+".parquet"),
			guards{count: true, end: true}, nested...)
	}
	l.add("parquet/plain-index", "x.parquet", l.read("parquet/testdata/plain-index.parquet"),
		guards{count: true, end: true}, "ids", "meta")
	nested = []string{"meta", "messages", "ids", "pairs"}
	for _, name := range []string{"plain.arrow", "v4.arrow", "file.arrow", "lz4.arrow", "zstd.feather", "large.arrow",
		"views.arrow", "deltas.arrow", "replaced.arrow", "deltas-file.arrow"} {
		others := nested
		if strings.ContainsAny(name, "-") || strings.HasPrefix(name, "re") || strings.HasPrefix(name, "de") {
			others = []string{"more"}
		} else if strings.HasPrefix(name, "vi") {
			others = nil
		}
		g := guards{count: true, end: strings.Contains(name, "file") || strings.HasSuffix(name, ".feather")}
		l.add("arrow/"+strings.TrimSuffix(name, path.Ext(name)), "x"+path.Ext(name), l.read("arrow/testdata/"+name), g,
			others...)
	}
	l.tree("arrow/saved", "arrow/testdata/saved", guards{count: true})
}

// directories adds the formats whose datasets have an index.
func (l *loader) directories() {
	g := guards{count: true, end: true}
	for _, dir := range []string{"every", "several", "zstd", "gz", "br", "bz2", "snappy", "json", "json-zstd", "csv",
		"tsv", "tsv-gz", "xsv"} {
		s := l.tree("mds/"+dir, "mds/testdata/"+dir, g, "n")
		if dir == "every" {
			s.others = []string{"json.text", "ids", "fixed", "free", "int64", "float16", "str_int", "png"}
		}
	}
	all := map[string][]string{
		"every": {"meta", "chat", "names", "counts", "tensor", "matrix", "array", "half"},
		"arrow": {"n", "tags"}, "arrowzstd": {"n", "tags"}, "several": {"ids"}, "framed": {"ids"}, "sample": {"ids"},
		"chunk": {"ids"}, "single": nil, "tokens": nil, "tokens16": nil,
	}
	for _, dir := range sortedKeys(all) {
		s := l.tree("litdata/"+dir, "litdata/testdata/"+dir, g, all[dir]...)
		switch dir {
		case "every":
			s.text = "z"
		case "tokens", "tokens16":
			s.text, s.others = "", []string{"tokens"}
		}
	}
}

// tokens adds the formats of token ids.
func (l *loader) tokens() {
	pair := func(name string, paths ...string) *sample {
		s := l.add(name, paths[0], nil, guards{count: true, end: true})
		for _, p := range paths {
			s.files[p] = l.read("tokenfiles/testdata/" + p)
		}
		s.text = ""
		return s
	}
	pair("olmo/two", "part-0-00000.npy", "part-0-00000.csv.gz")
	pair("olmo/four", "part-1-00000.npy", "part-1-00000.csv.gz")
	pair("datatrove/two", "00000_tokens.ds", "00000_tokens.ds.index", "00000_tokens.ds.metadata")
	pair("datatrove/four", "00001_tokens.ds", "00001_tokens.ds.index", "00001_tokens.ds.metadata")
	for _, name := range []string{"train.bin", "flat.npy", "rows.npy", "gpt2.bin", "llama3.bin"} {
		s := pair("tokens/"+strings.Replace(name, ".", "-", 1), name)
		s.guards = guards{end: name != "train.bin"}
		if name == "train.bin" {
			s.source.DType = "uint16"
		}
		if name != "rows.npy" {
			eos := uint64(50256)
			s.source.EOS = &eos
		}
	}
	s := l.add("megatron/two", "d/x.bin", nil, guards{count: true, end: true})
	s.text = ""
	s.files["d/x.idx"], s.files["d/x.bin"] = megatronSet()
}

// records adds the formats of records one behind the other.
func (l *loader) records() {
	wds := []string{"json.meta", "cls", "ids.npy"}
	tar := func(name, file string, b []byte, g guards) *sample {
		s := l.add("webdataset/"+name, file, b, g, wds...)
		s.text = "txt"
		return s
	}
	for _, name := range []string{"plain", "pax", "gnu", "ustar"} {
		tar(name, "x.tar", l.unpacked("webdataset/testdata/"+name+".tar.zst"), guards{end: true})
	}
	sealed := guards{content: true, end: true}
	tar("gzip", "x.tar.gz", l.read("webdataset/testdata/packed.tar.gz"), sealed)
	tar("zstd", "x.tar.zst", l.read("webdataset/testdata/plain.tar.zst"), sealed)
	e := tar("energon", "shard_2.tar", l.unpacked("webdataset/testdata/energon/shard_2.tar.zst"),
		guards{count: true, end: true})
	e.files["shard_2.tar.idx"] = l.read("webdataset/testdata/energon/shard_2.tar.idx")
	for _, name := range []string{"default", "plain", "brotli", "zstd", "snappy", "long"} {
		s := l.add("arrayrecord/"+name, "x.array_record",
			l.unpacked("arrayrecord/testdata/"+name+".array_record.gz"), sealed)
		s.source.Record = "text"
	}
	for _, name := range []string{"plain", "packed", "zlib"} {
		g := sealed
		g.end = name != "plain" // a cut between two records leaves whole ones
		s := l.add("tfrecord/"+name, "x.tfrecord", l.read("tfrecord/testdata/"+name+".tfrecord"), g, "label", "ids")
		s.source.Record = "example"
	}
}
