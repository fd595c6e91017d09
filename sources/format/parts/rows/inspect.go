package rows

import (
	"bytes"
	"path"
	"strings"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/packed"
)

// kind is the packing of a file.
type kind uint32

const (
	plain kind = iota
	bgzf
	zstdFrames
	gzipOnly // streams
	zstdOnly // streams
	bzip2Only
	xzOnly
	lastKind = xzOnly
)

func (k kind) seekable() bool { return k <= zstdFrames }

// inspect returns the packing of a file and its restart points.
func (l *Layout) inspect(f sources.File, head []byte) (k kind, points []point, err error) {
	switch {
	case sources.IsUnpacked(f):
		return plain, nil, nil
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
	case len(head) >= 4 && bytes.HasPrefix(head, []byte("BZh")) && head[3] >= '1' && head[3] <= '9':
		return bzip2Only, nil, nil
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return xzOnly, nil, packed.CheckXZ(f)
	}
	return plain, nil, l.refuse(f, head)
}

// isZstd reports whether a zstd frame begins here. The first frame of a file may be a skippable one.
func isZstd(head []byte) bool {
	return bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) ||
		len(head) >= 4 && head[0]>>4 == 5 && bytes.Equal(head[1:4], []byte{0x2a, 0x4d, 0x18})
}

// refuse returns an error for a file that holds no text. Otherwise each of its records would be a bad one. It
// recognises other packings by their first bytes. A file named .gz or .zst without that packing must begin as the
// layout says.
func (l *Layout) refuse(f sources.File, head []byte) error {
	for _, other := range []struct{ magic, name string }{
		{"\x04\x22\x4d\x18", "lz4"}, {"PK\x03\x04", "zip"}, {"PAR1", "Parquet"},
		{"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"},
	} {
		if bytes.HasPrefix(head, []byte(other.magic)) {
			return millrace.Errorf(millrace.ErrDamaged,
				"open %s: it is %s; %s is read as UTF-8, plain or packed with gzip, zstd, bzip2 or xz", f.Name(),
				other.name, l.Name)
		}
	}
	switch ext := strings.ToLower(path.Ext(f.Name())); ext {
	case ".gz", ".bgz", ".zst", ".zstd", ".bz2", ".xz":
		first := bytes.TrimLeft(withoutMark(head, 0), " \t\r\n")
		if len(first) == 0 || !strings.Contains(l.Begins, string(first[:1])) {
			return millrace.Errorf(millrace.ErrDamaged, "open %s: it does not begin as a %s file does, nor as %s",
				f.Name(), ext, l.Name)
		}
	}
	return nil
}
