package litdata

import (
	"strings"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/arrays"
)

// chunk has what an index.json says of one chunk. It says nothing of a nil value.
type chunk struct {
	Name  string `json:"filename"`
	Items *int64 `json:"chunk_size"`
	Bytes *int64 `json:"chunk_bytes"` // unpacked, if the chunk is packed as a whole
	Dim   *int64 `json:"dim"`         // tokens of all items of a token loader
}

// found has what the file of a chunk shows.
type found struct {
	items int64
	bytes int64
	ids   int64 // bytes of all items; -1: they are packed
}

// compare returns an error if the index says something else of a chunk than its file shows.
func (x *index) compare(f sources.File, is found) error {
	for _, c := range x.chunks[baseName(f)] {
		switch size := x.idBytes(); {
		case c.Items != nil && *c.Items != is.items:
			return disagrees(f, "items", is.items, *c.Items)
		case c.Bytes != nil && *c.Bytes != is.bytes:
			return disagrees(f, "bytes", is.bytes, *c.Bytes)
		case c.Dim != nil && size > 0 && is.ids >= 0 && (is.ids%size != 0 || *c.Dim != is.ids/size):
			return disagrees(f, "tokens", is.ids/size, *c.Dim)
		}
	}
	return nil
}

func disagrees(f sources.File, of string, has, said int64) error {
	return misfit(f, "it has %d %s, and its index.json says %d; copy the chunk and the index again", has, of, said)
}

// baseName returns the name by which the index knows a chunk.
func baseName(f sources.File) string {
	name := f.Name()
	return name[strings.LastIndexByte(name, '/')+1:]
}

// idBytes returns the bytes of an id if items are arrays of ids, else 0.
func (x *index) idBytes() int64 {
	if !x.isTokens || len(x.DataFormat) != 1 || x.Level == levelSample {
		return 0
	}
	kind, code, _ := strings.Cut(x.DataFormat[0], ":")
	var t arrays.Type
	var err error
	switch kind {
	case "no_header_tensor":
		t, err = bareType(code, torchType)
	case "no_header_numpy":
		t, err = bareType(code, numpyType)
	}
	if err != nil {
		return 0
	}
	return int64(t.Size)
}

// checkRows compares the rows of a chunk of dicts with its table of items and its index.
func (x *index) checkRows(f sources.File, rows sources.Shard, items int64) error {
	if n, ok := rows.Count(); ok && int64(n) != items {
		return millrace.Errorf(millrace.ErrDamaged, "open %s: its table has %d items, and it has %d rows", f.Name(),
			items, n)
	}
	return x.compare(f, found{items: items, bytes: f.Size(), ids: -1})
}
