package registry

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Head is the beginning of a file.
type Head struct {
	Path  string
	Bytes []byte // the first ones, unpacked
}

func (h Head) begins(magic string) bool { return bytes.HasPrefix(h.Bytes, []byte(magic)) }

// text returns the head without a byte order mark and white space at its beginning.
func (h Head) text() []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(h.Bytes, []byte("\xef\xbb\xbf")), " \t\r\n")
}

// lists reports whether a file is an index.json whose first key is this one; Streaming may put its version before it.
func (h Head) lists(key string) bool {
	if filepath.Base(h.Path) != IndexName {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(h.Bytes))
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

// holdsLines reports whether a file begins with a JSON object that continues after the brace.
func holdsLines(h Head) bool {
	text := h.text()
	if len(text) == 0 || text[0] != '{' {
		return false
	}
	rest := bytes.TrimLeft(text[1:], " \t\r")
	return len(rest) > 0 && (rest[0] == '"' || rest[0] == '}')
}

// holdsArray reports whether a file begins with a JSON array of objects, or with an object over several lines.
func holdsArray(h Head) bool {
	text := h.text()
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
func holdsArrow(h Head) bool {
	if h.begins("ARROW1") {
		return true
	}
	if len(h.Bytes) < 16 || !h.begins("\xff\xff\xff\xff") {
		return false
	}
	size, root := binary.LittleEndian.Uint32(h.Bytes[4:]), binary.LittleEndian.Uint32(h.Bytes[8:])
	return size%8 == 0 && root >= 4 && root < size
}

// holdsTFRecord reports whether a file begins with a length and its checksum.
func holdsTFRecord(h Head) bool {
	if len(h.Bytes) < 12 {
		return false
	}
	sum := crc32.Checksum(h.Bytes[:8], crc32.MakeTable(crc32.Castagnoli))
	return (sum>>15|sum<<17)+0xa282ead8 == binary.LittleEndian.Uint32(h.Bytes[8:])
}

// holdsTokens reports whether a file begins with the header of llm.c or of NumPy. Other files of plain ids have none.
func holdsTokens(h Head) bool {
	return h.begins("\x88\xd8\x34\x01\x01\x00\x00\x00") || h.begins("\xa1\xd9\x34\x01\x01\x00\x00\x00") ||
		h.begins("\x93NUMPY")
}

// holdsMegatron reports whether a file is the index of a Megatron dataset, or is beside its index.
func holdsMegatron(h Head) bool {
	const magic = "MMIDIDX\x00\x00"
	ext := filepath.Ext(h.Path)
	if strings.ToLower(ext) != ".bin" {
		return h.begins(magic)
	}
	f, err := os.Open(strings.TrimSuffix(h.Path, ext) + ".idx")
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, len(magic))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == magic
}
