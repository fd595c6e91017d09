package parquet

import (
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/parquet-go/parquet-go/format"

	"millrace"
	"millrace/sources"
)

// chunk is one column in one row group.
type chunk struct {
	group    int
	rows     int64
	entries  int64 // values and nulls: one a row, unless the column is in a list
	firstRow int64 // of the file
	start    int64 // byte of its first page
	end      int64 // byte behind its last
	unpacked int64 // bytes of its pages
	codec    format.CompressionCodec
	isList   bool
	least    int64         // bytes of a value in the plain encoding, at least
	index    sources.Range // of the part of the page index that lists its pages; empty: the file has none
	coded    int           // number of the first data pages that are likely to have places in a dictionary
}

// hasIndex reports whether the page index lists the chunk's pages.
func (c *chunk) hasIndex() bool { return c.index.End > 0 }

// isSmall reports whether the chunk is read at once to find its pages, if its file is far.
func (c *chunk) isSmall() bool { return !c.hasIndex() && c.end-c.start <= smallChunk }

// chunksOf returns the column's chunks. It checks that rows add up and that pages are before the footer.
func chunksOf(f sources.File, meta *format.FileMetaData, col *column, end int64) ([]chunk, error) {
	var out []chunk
	rows := int64(0)
	for i := range meta.RowGroups {
		g := &meta.RowGroups[i]
		if g.NumRows < 0 || g.NumRows > 1<<48 {
			return nil, damaged(f, "row group %d has %d rows", i, g.NumRows)
		}
		c := chunk{group: i, rows: g.NumRows, firstRow: rows}
		rows += g.NumRows
		if col.leaf >= len(g.Columns) {
			return nil, damaged(f, "row group %d has %d columns, the schema more", i, len(g.Columns))
		}
		if err := c.fill(f, &g.Columns[col.leaf], col, end); err != nil {
			return nil, err
		}
		if g.NumRows > 0 {
			out = append(out, c)
		}
	}
	if rows != meta.NumRows {
		return nil, damaged(f, "its row groups have %d rows, its footer declares %d", rows, meta.NumRows)
	}
	return out, nil
}

func (c *chunk) fill(f sources.File, cc *format.ColumnChunk, col *column, end int64) error {
	m := &cc.MetaData
	if len(cc.EncryptedColumnMetadata) > 0 || cc.CryptoMetadata.Value != nil {
		return millrace.Errorf(millrace.ErrInvalid,
			"read %s: column %v is encrypted, and encrypted columns are not read; write the file without encryption",
			f.Name(), col.path)
	}
	if cc.FilePath != "" {
		return millrace.Errorf(millrace.ErrInvalid,
			"read %s: column %v is in another file, %s, and such columns are not read; write all columns to one file",
			f.Name(), col.path, cc.FilePath)
	}
	if c.rows == 0 {
		return nil
	}
	switch {
	case m.Type != col.kind || !slices.Equal(m.PathInSchema, col.path):
		return damaged(f, "row group %d: column %d is %v %v, want %v of %v", c.group, col.leaf, m.Type, m.PathInSchema,
			col.kind, col.path)
	case m.NumValues != c.rows && col.repeats == 0, m.NumValues < c.rows, m.NumValues > 1<<48:
		return damaged(f, "row group %d: %d values in %d rows", c.group, m.NumValues, c.rows)
	}
	c.entries, c.isList, c.least = m.NumValues, col.repeats > 0, max(int64(col.width()), 1)
	if col.kind == format.ByteArray {
		c.least = lengthBytes
	}
	c.codec, c.start = m.Codec, m.DataPageOffset
	if d := m.DictionaryPageOffset; d > 0 && d < c.start {
		c.start = d
	}
	if m.TotalCompressedSize < 0 || c.start < 4 || c.start > end || m.TotalCompressedSize > end-c.start {
		return damaged(f, "row group %d: the footer puts column %v at byte %d with %d bytes, and pages end at %d",
			c.group, col.path, c.start, m.TotalCompressedSize, end)
	}
	c.end, c.unpacked = c.start+m.TotalCompressedSize, max(m.TotalUncompressedSize, 0)
	c.coded = codedPages(m)
	at, n := cc.OffsetIndexOffset, int64(cc.OffsetIndexLength)
	if at == 0 && n == 0 {
		return nil
	}
	if n > mostFooter && at >= 4 && at <= end-n {
		return damaged(f, "row group %d: %w", c.group, sources.Limited("write the file again without a page index, or "+
			"with larger pages", "the page index of column %v has %d bytes, at most %d are read", col.path, n,
			mostFooter))
	}
	if at < 4 || n <= 0 || at > end-n {
		return damaged(f, "row group %d: the footer puts the page index of column %v at byte %d with %d bytes, and "+
			"the footer begins at %d; %s", c.group, col.path, at, n, end, indexCure)
	}
	c.index = sources.Range{Start: at, End: at + n}
	return nil
}

// codedPages returns how many of the first data pages are likely to have places in a dictionary: writers change to
// other encodings once, when the dictionary is full.
func codedPages(m *format.ColumnMetaData) int {
	if len(m.EncodingStats) == 0 {
		return math.MaxInt
	}
	n := 0
	for _, s := range m.EncodingStats {
		if s.PageType != format.DictionaryPage && s.Count > 0 && isCoded(s.Encoding) {
			n += int(s.Count)
		}
	}
	return n
}

// columnData has the places of one column's values in a file. It is safe for concurrent use.
type columnData struct {
	f      sources.File
	isFar  bool // the file fetches bytes before they are read
	col    *column
	chunks []chunk // of row groups that have rows

	finding []sync.Mutex // by row group: held while its pages are found, or the rows of its pages are counted

	mu    sync.Mutex // also guards what becomes known of pages
	pages []*pages   // by row group; nil before they are known
}

// openColumn returns a column whose chunks are checked. All pages end before byte end.
func openColumn(f sources.File, meta *format.FileMetaData, col *column, end int64) (*columnData, error) {
	chunks, err := chunksOf(f, meta, col, end)
	if err != nil {
		return nil, err
	}
	n := len(meta.RowGroups)
	return &columnData{f: f, isFar: isFar(f), col: col, chunks: chunks, finding: make([]sync.Mutex, n),
		pages: make([]*pages, n)}, nil
}

// memory returns the bytes that a column takes once all pages and their pieces are known. It counts a page for each
// piece, because the number of pages is not known yet.
func (d *columnData) memory() (n int64) {
	for i := range d.chunks {
		n += chunkMemory + (pageMemory+pieceMemory)*(d.chunks[i].unpacked/pieceBytes+1)
	}
	return n
}

// The memory of a chunk without its pages, of a page, and of a piece.
const (
	chunkMemory = 256
	pageMemory  = 56
	pieceMemory = 24
)

// known returns the pages of a row group, nil before they are known.
func (d *columnData) known(c *chunk) *pages {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pages[c.group]
}

// pagesOf returns the pages of a row group. The first caller finds them, through h if by their headers.
func (d *columnData) pagesOf(c *chunk, h *headerReader) (*pages, error) {
	if p := d.known(c); p != nil {
		return p, nil
	}
	d.finding[c.group].Lock()
	defer d.finding[c.group].Unlock()
	p := d.known(c)
	if p != nil {
		return p, nil
	}
	var err error
	if c.hasIndex() {
		p, err = c.listed(d.f, d.col)
	} else {
		p, err = c.walk(h, d.isFar)
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pages[c.group] = p
	return p, nil
}

// beginsOf returns the number of rows that began before each page, nil before they are known.
func (d *columnData) beginsOf(p *pages) []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.begins
}

func (d *columnData) setBegins(p *pages, begins []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.begins = begins
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

// isCoded reports whether the values of a page are likely to be places in a dictionary. It is certain after the page
// was read once.
func (d *columnData) isCoded(ref *pageRef) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return ref.isCoded
}

func (d *columnData) setCoded(ref *pageRef, isCoded bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ref.isCoded = isCoded
}

// grain returns the mean bytes that a value of the first row group costs: a page, or a piece of it.
func (d *columnData) grain() (int64, error) {
	if len(d.chunks) == 0 {
		return 0, nil
	}
	c := &d.chunks[0]
	p, err := d.pagesOf(c, &headerReader{f: d.f})
	if err != nil || len(p.data) == 0 {
		return 0, err
	}
	size := c.unpacked / int64(len(p.data))
	if c.codec == format.Snappy || c.codec == format.Uncompressed {
		size = min(size, pieceBytes)
	}
	return size, nil
}

// chunkOf returns the row group that holds a row of the file.
func (d *columnData) chunkOf(row uint64) *chunk { return &d.chunks[d.placeOf(row)] }

// placeOf returns the place of that row group among those that have rows.
func (d *columnData) placeOf(row uint64) int {
	return sort.Search(len(d.chunks), func(i int) bool { return d.chunks[i].firstRow > int64(row) }) - 1
}
