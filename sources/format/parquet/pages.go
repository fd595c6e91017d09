package parquet

import (
	"fmt"
	"sort"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"millrace/sources"
)

// Bounds of one page. Writers make pages of about 1 MiB or 20,000 rows; one huge text makes a larger one.
const (
	mostPage   = 256 << 20 // bytes, packed or not
	freeRatio  = 16 << 20  // uncompressed bytes of a page that need no look at the ratio
	mostRatio  = 1000      // uncompressed to packed
	mostValues = 1 << 26   // of a page
)

// pageCure is for a page beyond a bound.
const pageCure = "write the file again with smaller pages, as pyarrow does, or with fewer rows in a row group"

// indexCure ends the errors of a page index.
const indexCure = "copy the file again, or write it without a page index"

// pageRef is the place of a page.
type pageRef struct {
	off  int64 // of its header
	size int64 // of header and data
	row  int64 // first, in the row group; of a column in a list without a page index: first entry
	rows int64 // or entries

	// guarded by columnData.mu
	pieces  *pieces // nil before they are known
	isCoded bool    // its values are places in a dictionary: likely, and certain after the page was read once
}

// span returns the bytes of a page.
func (p *pageRef) span() sources.Range { return sources.Range{Start: p.off, End: p.off + p.size} }

// pages lists the pages of a chunk.
type pages struct {
	dictionary *pageRef // nil without one
	data       []pageRef
	isListed   bool // by the page index
	isAligned  bool // each page begins with a row, and row of each is known

	// guarded by columnData.mu: rows that began before each page, nil before they are known or if isAligned
	begins []int64
}

// pageOf returns the page that holds a row of the row group.
func (p *pages) pageOf(row int64) int {
	return sort.Search(len(p.data), func(i int) bool { return p.data[i].row > row }) - 1
}

// listed returns the chunk's pages as the page index of the file lists them. Reads of the pages compare each with its
// header.
func (c *chunk) listed(f sources.File, col *column) (*pages, error) {
	wrong := func(format string, args ...any) error {
		return damaged(f, "row group %d, page index of column %v at byte %d: %w; %s", c.group, col.path, c.index.Start,
			fmt.Errorf(format, args...), indexCure)
	}
	b := make([]byte, c.index.End-c.index.Start)
	if err := sources.ReadFull(f, b, c.index.Start); err != nil {
		return nil, err
	}
	n, err := thriftLen(b)
	if err != nil {
		return nil, wrong("%w", err)
	}
	var index format.OffsetIndex
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), b[:n], &index); err != nil {
		return nil, wrong("%w", err)
	}
	list := index.PageLocations
	if len(list) == 0 {
		return nil, wrong("it lists no pages")
	}
	p := &pages{isListed: true, isAligned: true, data: make([]pageRef, 0, len(list))}
	at := list[0].Offset
	if at > c.start && at < c.end {
		p.dictionary = &pageRef{off: c.start, size: at - c.start}
	} else if at != c.start {
		return nil, wrong("it puts the first page at byte %d, and the pages lie from byte %d to %d", at, c.start, c.end)
	}
	for i := range list {
		ref := pageRef{off: list[i].Offset, size: int64(list[i].CompressedPageSize), row: list[i].FirstRowIndex,
			isCoded: p.dictionary != nil && i < c.coded}
		next := c.rows
		if i+1 < len(list) {
			next = list[i+1].FirstRowIndex
		}
		ref.rows = next - ref.row
		switch {
		case ref.size > mostPage+mostHeader && ref.off == at && ref.size <= c.end-at:
			return nil, damaged(f, "row group %d, page at byte %d of column %v: %w", c.group, at, col.path,
				sources.Limited(pageCure, "it has %d bytes, at most %d are read", ref.size, mostPage))
		case ref.off != at || ref.size <= 0 || ref.size > c.end-at:
			return nil, wrong("it puts page %d at byte %d with %d bytes, want byte %d, and the pages end at byte %d", i,
				ref.off, ref.size, at, c.end)
		case i == 0 && ref.row != 0 || ref.rows < 0 || ref.rows > c.rows: // Arrow's writer makes pages without rows
			return nil, wrong("page %d begins with row %d and ends with row %d of %d", i, ref.row, next, c.rows)
		}
		at += ref.size
		p.data = append(p.data, ref)
	}
	return p, nil
}

// walk finds the chunk's pages by their headers. Their rows must add up to the chunk's.
func (c *chunk) walk(h *headerReader, isFar bool) (*pages, error) {
	if isFar && c.isSmall() { // one request, and the pages are read from memory
		if _, err := h.bytesAt(c.start, c.end-c.start); err != nil {
			return nil, err
		}
	}
	p, row := &pages{isAligned: !c.isList}, int64(0)
	begun, isCounted := int64(0), true // rows, and whether all headers have them
	w := walkAhead{told: announcement{f: h.f, isFar: isFar && !c.isSmall()}, chunk: c}
	defer w.told.end()
	for off := c.start; row < c.entries; {
		if off >= c.end {
			return nil, damaged(h.f, "row group %d: its pages end at byte %d with %d of %d rows", c.group, off, row,
				c.entries)
		}
		w.step(off, len(p.data))
		header, n, err := h.read(off, c.end)
		if err != nil {
			return nil, fmt.Errorf("row group %d: %w", c.group, err)
		}
		ref := pageRef{off: off, size: n + int64(header.CompressedPageSize), row: row}
		if ref.rows, err = c.check(header, off+n); err != nil {
			return nil, damaged(h.f, "row group %d, page at byte %d: %w", c.group, off, err)
		}
		switch header.Type {
		case format.DictionaryPage:
			if p.dictionary != nil || row > 0 {
				return nil, damaged(h.f, "row group %d, page at byte %d: a dictionary behind other pages", c.group, off)
			}
			p.dictionary = &ref
		case format.DataPage, format.DataPageV2:
			ref.isCoded = isCoded(encodingOf(header))
			p.data = append(p.data, ref)
			row += ref.rows
			isCounted = isCounted && header.Type == format.DataPageV2
			p.begins = append(p.begins, begun)
			begun += int64(header.DataPageHeaderV2.V.NumRows)
		}
		off += ref.size
	}
	if row != c.entries {
		return nil, damaged(h.f, "row group %d: its pages have %d rows, want %d", c.group, row, c.entries)
	}
	if p.isAligned || !isCounted {
		p.begins = nil
	}
	return p, nil
}

// check checks a page header's numbers, before anything is allocated for them, and returns the page's rows, or entries
// if the column is in a list. The page's data is at off.
func (c *chunk) check(h *format.PageHeader, off int64) (rows int64, err error) {
	packed, size := int64(h.CompressedPageSize), int64(h.UncompressedPageSize)
	switch {
	case packed < 0 || packed > c.end-off:
		return 0, fmt.Errorf("its header declares %d bytes, its row group has %d more", packed, c.end-off)
	case size < 0:
		return 0, fmt.Errorf("its header declares %d bytes unpacked", size)
	case size > mostPage || packed > mostPage:
		return 0, sources.Limited(pageCure, "its header declares %d bytes unpacked, at most %d are read",
			max(size, packed), mostPage)
	case size > freeRatio && size > mostRatio*max(packed, 1):
		return 0, sources.Limited(pageCure, "its header declares that %d bytes unpack to %d", packed, size)
	}
	var values int32
	switch h.Type {
	case format.DataPage:
		d := &h.DataPageHeader
		if values = d.V.NumValues; !d.Valid {
			return 0, fmt.Errorf("its header does not describe data")
		}
		rows = int64(values)
	case format.DataPageV2:
		d := &h.DataPageHeaderV2
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
		if values = d.V.NumValues; !d.Valid || int64(values) > min(size/c.least, mostPage/lengthBytes) {
			return 0, fmt.Errorf("a dictionary of %d values in %d bytes", values, size)
		}
	}
	if values < 0 || rows > c.entries {
		return 0, fmt.Errorf("its header declares %d values", values)
	}
	if values > mostValues {
		return 0, sources.Limited(pageCure, "its header declares %d values, at most %d are read", values, mostValues)
	}
	return rows, nil
}

// fits compares a page's header, of n bytes, with the list of pages. rows is what check returned.
func (c *chunk) fits(p *pages, ref *pageRef, h *format.PageHeader, n int, rows int64) error {
	isData := h.Type == format.DataPage || h.Type == format.DataPageV2
	if p.isListed && c.isList && isData {
		rows = ref.rows // version 1 does not count them; they are compared when they are unpacked
		if h.Type == format.DataPageV2 {
			rows = int64(h.DataPageHeaderV2.V.NumRows)
		}
	}
	size := int64(n) + int64(h.CompressedPageSize)
	isKind := h.Type == format.DictionaryPage
	if ref != p.dictionary {
		isKind = isData && rows == ref.rows
	}
	switch {
	case isKind && size == ref.size:
		return nil
	case p.isListed:
		return fmt.Errorf("its header is of a %v with %d bytes and %d rows, and the page index says %d and %d; %s",
			h.Type, size, rows, ref.size, ref.rows, indexCure)
	}
	return fmt.Errorf("its header is of a %v with %d bytes and %d rows, and before it said %d and %d; the file "+
		"changed since it was opened", h.Type, size, rows, ref.size, ref.rows)
}

// encodingOf returns the encoding of a data page's values.
func encodingOf(h *format.PageHeader) format.Encoding {
	if h.Type == format.DataPageV2 {
		return h.DataPageHeaderV2.V.Encoding
	}
	return h.DataPageHeader.V.Encoding
}

// plainDictionary is the encoding of a dictionary and of its places in files of version 1 of the format.
//
//lint:ignore SA1019 writers may not use it any more, and readers must know it
const plainDictionary = format.PlainDictionary

// isCoded reports whether values of an encoding are places in a dictionary.
func isCoded(enc format.Encoding) bool {
	return enc == plainDictionary || enc == format.RLEDictionary
}
