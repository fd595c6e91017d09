package find

import (
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
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
	c := &content{path: path, head: make([]byte, headBytes)}
	c.fill(f)
	if len(c.head) == 0 {
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
	for i := range formats {
		row := &formats[i]
		if packed != "" && !slices.Contains(row.packed, packed) {
			continue
		}
		if row.holds != nil && row.holds(c) {
			return row.name
		}
	}
	return ""
}

// fill sets the head to the first bytes of r. An error ends it early.
func (c *content) fill(r io.Reader) {
	head := c.head[:cap(c.head)]
	n, err := io.ReadFull(r, head)
	c.head, c.whole = head[:n], err != nil
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

// text returns the head without a byte order mark and white space at its beginning.
func (c *content) text() []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(c.head, []byte("\xef\xbb\xbf")), " \t\r\n")
}

// lists reports whether a file is an index.json whose first key is this one; Streaming may put its version before it.
func (c *content) lists(key string) bool {
	if filepath.Base(c.path) != indexName {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(c.head))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	for range 2 {
		name, err := d.Token()
		if err != nil || name == key {
			return err == nil
		}
		if _, err := d.Token(); err != nil || name != "version" {
			return false
		}
	}
	return false
}

// holdsLines reports whether a file begins with a JSON object that goes on behind the brace.
func holdsLines(c *content) bool {
	text := c.text()
	if len(text) == 0 || text[0] != '{' {
		return false
	}
	rest := bytes.TrimLeft(text[1:], " \t\r")
	return len(rest) > 0 && (rest[0] == '"' || rest[0] == '}')
}

// holdsArray reports whether a file begins with a JSON array of objects, or with an object over several lines.
func holdsArray(c *content) bool {
	text := c.text()
	if len(text) < 2 || text[0] != '[' && text[0] != '{' {
		return false
	}
	rest := bytes.TrimLeft(text[1:], " \t\r")
	if text[0] == '{' {
		return len(rest) > 0 && rest[0] == '\n'
	}
	rest = bytes.TrimLeft(rest, "\n \t\r")
	return len(rest) > 0 && (rest[0] == '{' || rest[0] == ']')
}

// holdsArrow reports whether a file begins as an Arrow file or as a stream, whose first message is a schema.
func holdsArrow(c *content) bool {
	if c.begins("ARROW1") {
		return true
	}
	if len(c.head) < 16 || !c.begins("\xff\xff\xff\xff") {
		return false
	}
	size, root := binary.LittleEndian.Uint32(c.head[4:]), binary.LittleEndian.Uint32(c.head[8:])
	return size%8 == 0 && root >= 4 && root < size
}

// holdsTFRecord reports whether a file begins with a length and its checksum.
func holdsTFRecord(c *content) bool {
	if len(c.head) < 12 {
		return false
	}
	sum := crc32.Checksum(c.head[:8], crc32.MakeTable(crc32.Castagnoli))
	return (sum>>15|sum<<17)+0xa282ead8 == binary.LittleEndian.Uint32(c.head[8:])
}

// holdsTokens reports whether a file begins with the header of llm.c or of NumPy. Other files of plain ids have none.
func holdsTokens(c *content) bool {
	return c.begins("\x88\xd8\x34\x01\x01\x00\x00\x00") || c.begins("\xa1\xd9\x34\x01\x01\x00\x00\x00") ||
		c.begins("\x93NUMPY")
}

// holdsMegatron reports whether a file is the index of a Megatron dataset, or lies beside its index.
func holdsMegatron(c *content) bool {
	const magic = "MMIDIDX\x00\x00"
	ext := filepath.Ext(c.path)
	if strings.ToLower(ext) != ".bin" {
		return c.begins(magic)
	}
	f, err := os.Open(strings.TrimSuffix(c.path, ext) + ".idx")
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, len(magic))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == magic
}
