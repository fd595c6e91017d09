package parquet

import (
	"sort"
	"sync"

	"github.com/parquet-go/parquet-go/format"

	"millrace/sources"
)

// columnData has the places of one column's values in a file. It is safe for concurrent use.
type columnData struct {
	f      sources.File
	col    *column
	chunks []chunk // of row groups that have rows

	mu     sync.Mutex // also guards the pieces of each page
	pages  []*pages   // by row group; nil before its headers were read
	begins [][]int64  // of a column in lists, by row group: rows that began before each page; nil before they are known
}

// openColumn returns a column whose chunks are checked. All pages end before byte end.
func openColumn(f sources.File, meta *format.FileMetaData, col *column, end int64) (*columnData, error) {
	chunks, err := chunksOf(f, meta, col, end)
	if err != nil {
		return nil, err
	}
	return &columnData{f: f, col: col, chunks: chunks, pages: make([]*pages, len(meta.RowGroups)),
		begins: make([][]int64, len(meta.RowGroups))}, nil
}

// pagesOf returns the pages of a row group. Two callers may read its headers at once; both find the same.
func (d *columnData) pagesOf(c *chunk) (*pages, error) {
	d.mu.Lock()
	p := d.pages[c.group]
	d.mu.Unlock()
	if p != nil {
		return p, nil
	}
	p, err := c.walk(d.f)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.pages[c.group] = p
	d.mu.Unlock()
	return p, nil
}

// piecesOf returns the pieces of a page, nil before they are known or if it has none.
func (d *columnData) piecesOf(ref *pageRef) *pieces {
	d.mu.Lock()
	defer d.mu.Unlock()
	return ref.pieces
}

func (d *columnData) setPieces(ref *pageRef, p *pieces) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ref.pieces = p
}

// grain returns the mean bytes that a value of the first row group costs: a page, or a piece of it.
func (d *columnData) grain() (int64, error) {
	if len(d.chunks) == 0 {
		return 0, nil
	}
	p, err := d.pagesOf(&d.chunks[0])
	if err != nil || len(p.data) == 0 {
		return 0, err
	}
	var size int64
	for i := range p.data {
		size += int64(p.data[i].header.UncompressedPageSize)
	}
	size /= int64(len(p.data))
	if c := d.chunks[0].codec; c == format.Snappy || c == format.Uncompressed {
		size = min(size, pieceBytes)
	}
	return size, nil
}

// chunkOf returns the row group that holds a row of the file.
func (d *columnData) chunkOf(row uint64) *chunk {
	i := sort.Search(len(d.chunks), func(i int) bool { return d.chunks[i].firstRow > int64(row) })
	return &d.chunks[i-1]
}
