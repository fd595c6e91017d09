package find_test

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"millrace/sources/find"
)

// frame is a TFRecord of one record.
func frame(data string) string {
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	sum := crc32.Checksum(head, crc32.MakeTable(crc32.Castagnoli))
	head = binary.LittleEndian.AppendUint32(head, (sum>>15|sum<<17)+0xa282ead8)
	return string(head) + data + "sums"
}

// TestFilesOfRecords: numbered parts have the ending in the middle of their names, and content shows the format alone.
func TestFilesOfRecords(t *testing.T) {
	base := put(t, map[string]string{
		"a/x.array_record-00000-of-00002": "?", "a/x.array_record-00001-of-00002": "?",
		"t/x.tfrecord-00000-of-00002": "?", "t/x.tfrecord-00001-of-00002": "?", "g/x.tfrecord.gz": "?",
		"c/data": frame("abc"), "r/data": "\x83\xaf\x70\xd1\x0d\x88\x4a\x3f\x00\x00",
	})
	for path, want := range map[string]string{
		"a": "arrayrecord", "t": "tfrecord", "t/x.tfrecord*": "tfrecord", "g": "tfrecord", "c/data": "tfrecord",
		"r/data": "arrayrecord",
	} {
		got, why := find.Format(base, []string{path})
		if got != want {
			t.Errorf("%s: got %q, %v, want %s", path, got, why, want)
		}
		if found, err := find.Resolve(nil, find.Query{Base: base, Patterns: []string{path},
			Format: want}); err != nil || len(found.Files) == 0 {
			t.Errorf("%s: got %v, %v", path, found.Files, err)
		}
	}
}

// TestATreeOfTexts: every file but hidden ones and those with names of binary files. The words of other programs, such
// as README.md, are texts too. A packed file is one if its name without the packing is that of a text.
func TestATreeOfTexts(t *testing.T) {
	base := put(t, map[string]string{
		"r/README.md": "x", "r/LICENSE": "x", "r/src/a.py": "x", "r/src/b.json": "{}", "r/logo.png": "x",
		"r/.git/config": "x", "r/lib.so": "x", "r/src/c.py.gz": "x", "r/d.1.zst": "x", "r/e.tar.gz": "x", "r/f.gz": "x",
		"r/g.txt.7z": "x", "p/a.txt.gz": "x", "p/b.txt.xz": "x", "n/a.txt": "x", "m/a.txt": "x", "m/b.jsonl": "{}\n",
	})
	found, err := find.Resolve(nil, find.Query{Base: base, Patterns: []string{"r"}, Format: "text"})
	var names []string
	for _, f := range found.Files {
		names = append(names, f.Name)
	}
	if err != nil || strings.Join(names, " ") != "LICENSE README.md d.1.zst src/a.py src/b.json src/c.py.gz" {
		t.Errorf("got %v, %v", names, err)
	}
	for path, want := range map[string]string{
		"n": "text", "p": "text", "p/*.gz": "text", "m": "jsonl", "n/*.txt": "text",
	} {
		if got, why := find.Format(base, []string{path}); got != want {
			t.Errorf("%s: got %q, %v, want %s", path, got, why, want)
		}
	}
}
