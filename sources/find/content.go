package find

import (
	"bytes"
	"compress/bzip2"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"millrace/sources/format/registry"
)

// headBytes is the number of first bytes that show a file's format, unpacked.
const headBytes = 4 << 10

// packedBytes is the number of first bytes of a packed file that are unpacked for its head. A block of bzip2 has up to
// 900 kB.
const packedBytes = 1 << 20

// byContent returns the format that the first bytes of a local file show, "" if they show none. The name of the file
// has no part in it.
func byContent(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	c := &content{registry.Head{Path: path, Bytes: make([]byte, headBytes)}}
	c.fill(f)
	if len(c.Bytes) == 0 {
		return ""
	}
	packed := ""
	for i := range packings {
		if p := &packings[i]; p.magic != "" && c.begins(p.magic) {
			packed = p.name
		}
	}
	if packed != "" {
		if _, err := f.Seek(0, io.SeekStart); err != nil || !c.unpack(f, packed) {
			return ""
		}
	}
	if row := registry.Shown(c.Head, packed); row != nil {
		return string(row.Name)
	}
	return ""
}

// content is the beginning of a file.
type content struct{ registry.Head }

func (c *content) begins(magic string) bool { return bytes.HasPrefix(c.Bytes, []byte(magic)) }

// fill sets the head to the first bytes of r. An error ends it early.
func (c *content) fill(r io.Reader) {
	head := c.Bytes[:cap(c.Bytes)]
	n, _ := io.ReadFull(r, head)
	c.Bytes = head[:n]
}

// unpack replaces the head by the first bytes of the unpacked file. It returns false if the packing is not read.
func (c *content) unpack(f io.Reader, packed string) bool {
	f = io.LimitReader(f, packedBytes)
	var r io.Reader
	switch packed {
	case "gzip":
		z, err := gzip.NewReader(f)
		if err != nil {
			return false
		}
		r = z
	case "zstd":
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(64<<20))
		if err != nil {
			return false
		}
		defer z.Close()
		r = z
	case "bzip2":
		r = bzip2.NewReader(f)
	case "xz":
		z, err := xz.NewReader(f)
		if err != nil {
			return false
		}
		r = z
	default:
		return false
	}
	c.fill(r)
	return true
}
