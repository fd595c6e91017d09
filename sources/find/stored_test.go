package find_test

import (
	"strings"
	"testing"

	"millrace/sources/find"
)

// TestFormatIn: the files below a URL decide the format by their names, and the index of a data set by its content.
func TestFormatIn(t *testing.T) {
	for files, want := range map[string]string{
		"data/train-00000-of-00001.parquet README.md": "parquet",
		"a.jsonl b.jsonl.zst LICENSE":                 "jsonl",
		"a.json":                                      "jsonl",
		"a.parquet stats.json":                        "parquet",
		"a.parquet b.jsonl":                           "is not one",
		"_temporary/a.parquet a.jsonl .cache/a.tar":   "jsonl",
		"index.json chunk-0-0.bin":                    "litdata",
		"README.md":                                   "does not follow from",
		"":                                            "where no file is",
		"_versions/1.manifest data/a.lance":           "does not follow from",
		"set/shard.00000.mds set/index.json README.md": "mds",
	} {
		m := memory{}
		for name := range strings.FieldsSeq(files) {
			m["s3://bucket/set/"+name] = `{"chunks": [], "config": {}}`
			if strings.Contains(files, ".mds") {
				m["s3://bucket/set/"+name] = `{"shards": []}`
			}
		}
		got, why, err := find.FormatIn(m, "s3://bucket/set")
		if err != nil {
			t.Fatal(err)
		}
		if why != nil {
			got = why.Why
		}
		if !strings.HasPrefix(got, want) && !strings.HasSuffix(got, want) {
			t.Errorf("%s: got %s, want %s", files, got, want)
		}
	}
	for url, want := range map[string]string{"s3://b/*.parquet": "parquet", "https://h/a.jsonl.gz": "jsonl"} {
		if got, why, err := find.FormatIn(memory{}, url); got != want || why != nil || err != nil {
			t.Errorf("%s: got %s, %v, %v", url, got, why, err)
		}
	}
}
