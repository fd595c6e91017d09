package parquet

import (
	"fmt"
	"slices"
	"sort"

	"github.com/parquet-go/parquet-go/format"

	"millrace"
	"millrace/sources"
)

// Bounds of one page. Writers make pages of about 1 MiB or 20,000 rows; one huge text makes a larger one.
const (
	mostPage   = 256 << 20 // bytes, packed or not
	freeRatio  = 16 << 20  // uncompressed bytes of a page that need no look at the ratio
	mostRatio  = 1000      // uncompressed to packed
	mostValues = 1 << 26   // of a page
)

// chunk is one column in one row group.
type chunk struct {
	group    int
	rows     int64
	entries  int64 // values and nulls: one a row, unless the column is in a list
	firstRow int64 // of the file
	start    int64 // byte of its first page
	end      int64 // byte behind its last
	codec    format.CompressionCodec
	isList   bool
}

// pageRef is a data page found by its header.
type pageRef struct {
	off    int64 // of its data, behind the header
	row    int64 // first, in the row group; of a column in a list: first entry
	rows   int64 // or entries
	header *format.PageHeader
	pieces *pieces // nil before they are known
}

// pages lists the pages of a chunk.
type pages struct {
	dictionary pageRef // header nil without one
	data       []pageRef
}

// pageOf returns the page that holds a row of the row group.
func (p *pages) pageOf(row int64) int {
	return sort.Search(len(p.data), func(i int) bool { return p.data[i].row > row }) - 1
}

// chunksOf returns the column's chunks. It checks that rows add up and that pages lie before the footer.
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
	c.entries, c.isList = m.NumValues, col.repeats > 0
	c.codec, c.start = m.Codec, m.DataPageOffset
	if d := m.DictionaryPageOffset; d > 0 && d < c.start {
		c.start = d
	}
	if m.TotalCompressedSize < 0 || c.start < 4 || c.start > end || m.TotalCompressedSize > end-c.start {
		return damaged(f, "row group %d: the footer puts column %v at byte %d with %d bytes, and pages end at %d",
			c.group, col.path, c.start, m.TotalCompressedSize, end)
	}
	c.end = c.start + m.TotalCompressedSize
	return nil
}

// walk finds the chunk's pages by their headers. Their rows must add up to the chunk's. It does not use the page index:
// a file need not have one, and its entries would have to be checked against the headers.
func (c *chunk) walk(f sources.File) (*pages, error) {
	p := &pages{}
	hr := &headerReader{f: f}
	row := int64(0)
	for off := c.start; row < c.entries; {
		if off >= c.end {
			return nil, damaged(f, "row group %d: its pages end at byte %d with %d of %d rows", c.group, off, row,
				c.entries)
		}
		h, n, err := hr.read(off, c.end)
		if err != nil {
			return nil, fmt.Errorf("row group %d: %w", c.group, err)
		}
		off += n
		ref := pageRef{off: off, row: row, header: h}
		if ref.rows, err = c.check(h, off); err != nil {
			return nil, damaged(f, "row group %d, page at byte %d: %w", c.group, off-n, err)
		}
		off += int64(h.CompressedPageSize)
		switch h.Type {
		case format.DictionaryPage:
			if p.dictionary.header != nil || row > 0 {
				return nil, damaged(f, "row group %d, page at byte %d: a dictionary behind other pages", c.group,
					ref.off-n)
			}
			p.dictionary = ref
		case format.DataPage, format.DataPageV2:
			p.data = append(p.data, ref)
			row += ref.rows
		}
	}
	if row != c.entries {
		return nil, damaged(f, "row group %d: its pages have %d rows, want %d", c.group, row, c.entries)
	}
	return p, nil
}

// check checks a page header's numbers, before anything is allocated for them, and returns the page's rows.
func (c *chunk) check(h *format.PageHeader, off int64) (rows int64, err error) {
	packed, size := int64(h.CompressedPageSize), int64(h.UncompressedPageSize)
	switch {
	case packed < 0 || packed > c.end-off:
		return 0, fmt.Errorf("its header declares %d bytes, its row group has %d more", packed, c.end-off)
	case size < 0 || size > mostPage || packed > mostPage:
		return 0, fmt.Errorf("its header declares %d bytes unpacked, at most %d are read", size, mostPage)
	case size > freeRatio && size > mostRatio*max(packed, 1):
		return 0, fmt.Errorf("its header declares that %d bytes unpack to %d", packed, size)
	}
	// The statistics are of no use here and take memory.
	var values int32
	switch h.Type {
	case format.DataPage:
		d := &h.DataPageHeader
		d.V.Statistics = format.Statistics{}
		if values = d.V.NumValues; !d.Valid {
			return 0, fmt.Errorf("its header does not describe data")
		}
		rows = int64(values)
	case format.DataPageV2:
		d := &h.DataPageHeaderV2
		d.V.Statistics = format.Statistics{}
		levels := int64(d.V.DefinitionLevelsByteLength) + int64(d.V.RepetitionLevelsByteLength)
		if values = d.V.NumValues; !d.Valid || d.V.NumRows != values && !c.isList ||
			d.V.DefinitionLevelsByteLength < 0 ||
			d.V.RepetitionLevelsByteLength < 0 || levels > packed ||
			levels > size {
			return 0, fmt.Errorf("its header does not fit itself")
		}
		rows = int64(values)
	case format.DictionaryPage:
		d := &h.DictionaryPageHeader
		if values = d.V.NumValues; !d.Valid || int64(values) > size/4 {
			return 0, fmt.Errorf("a dictionary of %d strings in %d bytes", values, size)
		}
	}
	if values < 0 || values > mostValues || rows > c.entries {
		return 0, fmt.Errorf("its header declares %d values", values)
	}
	return rows, nil
}
