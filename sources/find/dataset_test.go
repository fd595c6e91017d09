package find_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"millrace"
	"millrace/sources/find"
)

const (
	streamed = `{"version": 2, "shards": [` +
		`{"raw_data": {"basename": "shard.00001.mds", "bytes": 3, "hashes": {}}, "zip_data": null},` +
		`{"raw_data": {"basename": "shard.00000.mds", "bytes": 9}, ` +
		`"zip_data": {"basename": "shard.00000.mds.gz", "bytes": 2}}]}`
	merged = `{"shards": [{"raw_data": {"basename": "a/shard.00000.mds", "bytes": 1}}]}`
)

// TestAnIndexListsTheShards: a directory with an index.json gives the shards that it names, and no other file.
func TestAnIndexListsTheShards(t *testing.T) {
	base := put(t, map[string]string{
		"train/index.json": streamed, "train/shard.00001.mds": "123", "train/shard.00000.mds.gz": "12",
		"train/left.mds": "x", "val/index.json": `{"shards": []}`,
		"merged/index.json": merged, "merged/a/shard.00000.mds": "1", "merged/a/index.json": "{}",
		"raw/index.json": streamed, "raw/shard.00001.mds": "123", "raw/shard.00000.mds": "123456789",
		"lines/index.json": `{"text": "a line"}`,
	})
	for pattern, want := range map[string]string{
		"train": "shard.00000.mds.gz shard.00001.mds", "train/index.json": "shard.00000.mds.gz shard.00001.mds",
		"merged": "a/shard.00000.mds", "raw": "shard.00000.mds shard.00001.mds",
		"{train,val}": "shard.00000.mds.gz shard.00001.mds", "train/*": "left.mds shard.00000.mds.gz shard.00001.mds",
		"train/left.mds": "left.mds",
	} {
		if pattern != "train/left.mds" && !strings.ContainsAny(pattern, "{") {
			if format, why := find.Format(base, []string{pattern}); format != "mds" {
				t.Errorf("%s: the format is %q, %v", pattern, format, why)
			}
		}
		got, err := find.Resolve(nil, find.Query{Base: base, Patterns: []string{pattern}, Format: "mds"})
		if pattern == "{train,val}" {
			if !errors.Is(err, millrace.ErrInvalid) {
				t.Errorf("%s: a set without shards gives %v", pattern, err)
			}
			continue
		}
		if err != nil || namesOf(got.Files) != want {
			t.Errorf("%s: got %s, %v, want %s", pattern, namesOf(got.Files), err, want)
		}
	}
	if format, _ := find.Format(base, []string{"lines"}); format != "jsonl" {
		t.Errorf("an index.json of lines: the format is %q", format)
	}
}

func TestAnIndexThatDoesNotFitIsRefused(t *testing.T) {
	for says, files := range map[string]map[string]string{
		"shard.00000.mds.gz is not there": {"d/index.json": streamed, "d/shard.00001.mds": "123"},
		"has 2 bytes, and the index says 3": {"d/index.json": streamed, "d/shard.00001.mds": "12",
			"d/shard.00000.mds": "123456789"},
		"no path below":    {"d/index.json": strings.ReplaceAll(merged, "a/", "../"), "shard.00000.mds": "1"},
		"is of format mp4": {"d/index.json": `{"shards": [{"format": "mp4", "raw_data": {"basename": "a.csv"}}]}`},
		"no index of":      {"d/index.json": `{"shards": [`},
		"no list `shards`": {"d/index.json": `{"shelves": []}`, "d/shard.00000.mds": "1"},
	} {
		_, err := find.Resolve(nil, find.Query{Base: put(t, files), Patterns: []string{"d"}, Format: "mds"})
		if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
		if isMissing := strings.Contains(says, "not there"); errors.Is(err, fs.ErrNotExist) != isMissing {
			t.Errorf("%v: is it fs.ErrNotExist? want %v", err, isMissing)
		}
	}
}
