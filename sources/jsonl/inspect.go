package jsonl

import (
	"bytes"
	"path"
	"strings"

	"millrace"
	"millrace/sources"
)

// kind is the packing of a file.
type kind uint32

const (
	plain kind = iota
	bgzf
	zstdFrames
	gzipOnly // streams
	zstdOnly // streams
	lastKind = zstdOnly
)

func (k kind) seekable() bool { return k <= zstdFrames }

// inspect returns the packing of a file and its restart points.
func inspect(f sources.File, head []byte) (k kind, points []point, err error) {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		if points, err = bgzfPoints(f); points == nil {
			return gzipOnly, nil, err
		}
		return bgzf, points, err
	case isZstd(head):
		if points, err = zstdPoints(f); points == nil {
			return zstdOnly, nil, err
		}
		return zstdFrames, points, err
	}
	return plain, nil, refuse(f, head)
}

// isZstd reports whether a zstd frame begins here. The first frame of a file may be a skippable one.
func isZstd(head []byte) bool {
	return bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) ||
		len(head) >= 4 && head[0]>>4 == 5 && bytes.Equal(head[1:4], []byte{0x2a, 0x4d, 0x18})
}

// refuse returns an error for a file that holds no JSON lines. Otherwise each of its lines would be a bad record. It
// recognises other packings by their first bytes. A file named .gz or .zst without that packing must begin as JSON.
func refuse(f sources.File, head []byte) error {
	for _, other := range []struct{ magic, name string }{
		{"\xfd7zXZ\x00", "xz"}, {"BZh", "bzip2"}, {"\x04\x22\x4d\x18", "lz4"}, {"PK\x03\x04", "zip"},
		{"PAR1", "Parquet"},
		{"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"},
	} {
		if bytes.HasPrefix(head, []byte(other.magic)) {
			return millrace.Errorf(millrace.ErrDamaged,
				"open %s: it is %s; JSON lines are read as UTF-8, plain or packed with gzip or zstd", f.Name(),
				other.name)
		}
	}
	switch ext := strings.ToLower(path.Ext(f.Name())); ext {
	case ".gz", ".bgz", ".zst", ".zstd":
		if first := bytes.TrimLeft(withoutMark(head, 0), " \t\r\n"); !bytes.HasPrefix(first, []byte("{")) {
			return millrace.Errorf(millrace.ErrDamaged, "open %s: it does not begin as a %s file does, nor as JSON",
				f.Name(), ext)
		}
	}
	return nil
}

// refuseDocument returns an error for a file that is one JSON document, by its first uncompressed bytes. Otherwise each
// of its lines would be a bad record.
func refuseDocument(f sources.File, head []byte) error {
	text := bytes.TrimLeft(withoutMark(head, 0), " \t\r\n")
	if len(text) == 0 {
		return nil
	}
	what, query := "", ""
	rest := bytes.TrimLeft(text[1:], " \t\r")
	switch {
	case text[0] == '[' && len(rest) > 0 && (rest[0] == '{' || rest[0] == '\n'):
		what, query = "one JSON array", ".[]"
	case text[0] == '{' && len(rest) > 0 && rest[0] == '\n':
		what, query = "one JSON object over several lines", "."
	default:
		return nil
	}
	name := f.Name()
	return millrace.Errorf(millrace.ErrInvalid, "read %s: it is %s and not JSON lines, which have one object a line; "+
		"convert it, as with jq -c '%s' %s > %s.jsonl, or take it out of the path",
		name, what, query, path.Base(name), strings.TrimSuffix(path.Base(name), path.Ext(name)))
}
