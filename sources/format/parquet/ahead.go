package parquet

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"millrace/sources"
)

// Sizes of reads from a file that is far: it fetches bytes before they are read, and each fetch takes a round trip.
const (
	// smallChunk is the size up to which a chunk without a page index is fetched at once, to find its pages.
	smallChunk = 1 << 20
	// longPage is the mean size up to which all bytes between the headers of pages are fetched with the headers. Longer
	// pages take longer to fetch than a round trip.
	longPage = 1 << 20
	// headStretch is fetched for the header of a long page.
	headStretch = 64 << 10
	// mostRun is the number of bytes of chunks after which a scan announces the next ones.
	mostRun = 64 << 20
)

// isFar reports whether a file fetches bytes before they are read.
func isFar(f sources.File) (far bool) {
	sources.Expect(f, func() []sources.Range {
		far = true
		return nil
	})()
	return far
}

// announcement is the ranges that one reader has announced to a file. It is not safe for concurrent use.
type announcement struct {
	f      sources.File
	isFar  bool            // else there are no announcements
	ranges []sources.Range // by their first bytes
	done   func()          // nil without ranges
}

// set announces ranges in place of the former ones.
func (a *announcement) set(ranges []sources.Range) {
	a.end()
	if !a.isFar || len(ranges) == 0 {
		return
	}
	slices.SortFunc(ranges, func(x, y sources.Range) int { return cmp.Compare(x.Start, y.Start) })
	a.ranges = ranges
	a.done = sources.Expect(a.f, func() []sources.Range { return ranges })
}

// end takes the announcement back.
func (a *announcement) end() {
	if a.done != nil {
		a.done()
	}
	a.ranges, a.done = nil, nil
}

// has reports whether a byte is announced.
func (a *announcement) has(at int64) bool {
	i := sort.Search(len(a.ranges), func(i int) bool { return a.ranges[i].Start > at }) - 1
	return i >= 0 && at < a.ranges[i].End
}

// alone announces a range that is read by itself, unless it is announced: the bytes after it belong to rows that the
// caller does not want. The caller calls done after the read.
func (a *announcement) alone(r sources.Range) (done func()) {
	if !a.isFar || a.has(r.Start) {
		return func() {}
	}
	return sources.Expect(a.f, func() []sources.Range { return []sources.Range{r} })
}

// walkAhead announces the stretches with the headers of a chunk's pages.
type walkAhead struct {
	told   announcement
	chunk  *chunk
	isRest bool // all bytes of the chunk are announced
}

// step is called before the header at off is read. pages is the number of data pages before it.
func (w *walkAhead) step(off int64, pages int) {
	isShort := pages > 0 && (off-w.chunk.start)/int64(pages) <= longPage
	if w.told.has(off) && (isShort || !w.isRest) {
		return
	}
	end := w.chunk.end
	if w.isRest = isShort; !isShort {
		end = min(off+headStretch, end)
	}
	w.told.set([]sources.Range{{Start: off, End: end}})
}

// prepare announces the ranges of a read of rows, if the file is far. It finds the pages of the rows first. It drops
// errors, because the read meets them again.
func (r *rowReader) prepare(ctx context.Context, rows []uint64) {
	rows = rows[:sort.Search(len(rows), func(i int) bool { return rows[i] >= r.shard.rows })]
	if !r.shard.isFar {
		return
	}
	r.readIndexes(rows)
	r.columns(func(c *reader) {
		for _, k := range c.data.chunksOf(rows) {
			if ctx.Err() == nil && !k.isSmall() {
				_, _ = c.data.pagesOf(k, &headerReader{f: c.data.f})
			}
		}
		c.ahead = rows
		c.told.set(c.wanted(rows))
	})
}

// readIndexes reads the parts of the page index that rows need and that are not known, side by side.
func (r *rowReader) readIndexes(rows []uint64) {
	type part struct {
		data  *columnData
		chunk *chunk
	}
	var parts []part
	r.columns(func(c *reader) {
		for _, k := range c.data.chunksOf(rows) {
			if k.hasIndex() && c.data.known(k) == nil {
				parts = append(parts, part{c.data, k})
			}
		}
	})
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.chunk.index.Start, b.chunk.index.Start) })
	told := announcement{f: r.shard.f, isFar: true}
	defer told.end()
	var ranges []sources.Range
	for _, p := range parts {
		ranges = append(ranges, p.chunk.index)
	}
	told.set(ranges)
	for _, p := range parts {
		_, _ = p.data.pagesOf(p.chunk, nil)
	}
}

// chunksOf returns the row groups that hold ascending rows of the file.
func (d *columnData) chunksOf(rows []uint64) (out []*chunk) {
	for len(rows) > 0 {
		c := d.chunkOf(rows[0])
		out, rows = append(out, c), rows[c.count(rows):]
	}
	return out
}

// count returns how many of the first rows of the file, which ascend from the row group on, are in it.
func (c *chunk) count(rows []uint64) int {
	end := uint64(c.firstRow + c.rows)
	return sort.Search(len(rows), func(i int) bool { return rows[i] >= end })
}

// wanted returns the ranges that a read of ascending rows takes, as far as they are known.
func (r *reader) wanted(rows []uint64) (out []sources.Range) {
	for len(rows) > 0 {
		c := r.data.chunkOf(rows[0])
		n := c.count(rows)
		if p := r.data.known(c); p != nil {
			out = r.wantedPages(out, c, p, rows[:n])
		} else if c.isSmall() {
			out = append(out, sources.Range{Start: c.start, End: c.end})
		}
		rows = rows[n:]
	}
	return out
}

// wantedPages appends the ranges of a row group's pages that hold rows.
func (r *reader) wantedPages(out []sources.Range, c *chunk, p *pages, rows []uint64) []sources.Range {
	begins := func(i int) int64 { return p.data[i].row }
	if !p.isAligned {
		counted := r.data.beginsOf(p)
		if counted == nil {
			return out // they are counted first
		}
		begins = func(i int) int64 { return counted[i] }
	}
	isCoded := false
	first := len(out)
	for len(rows) > 0 {
		row := int64(rows[0]) - c.firstRow
		i := sort.Search(len(p.data), func(i int) bool { return begins(i) > row }) - 1
		if i < 0 {
			return out
		}
		end := c.rows
		if i+1 < len(p.data) {
			end = begins(i + 1)
		}
		n := sort.Search(len(rows), func(i int) bool { return int64(rows[i])-c.firstRow >= end })
		ref := &p.data[i]
		isCoded = isCoded || r.data.isCoded(ref)
		out = r.wantedOf(out, ref, uint64(c.firstRow+begins(i)), rows[:n])
		if !p.isAligned && i+1 < len(p.data) && int64(rows[n-1])-c.firstRow+1 == end {
			out = append(out, p.data[i+1].span()) // the row may continue there
		}
		rows = rows[n:]
	}
	if d := p.dictionary; isCoded && d != nil && (r.chunk != c || r.dec.dictionary == nil) {
		out = slices.Insert(out, first, d.span())
	}
	return out
}

// wantedOf appends the ranges of a page, whose first row is given, that hold rows: the page, or pieces of it.
func (r *reader) wantedOf(out []sources.Range, ref *pageRef, first uint64, rows []uint64) []sources.Range {
	if ref == r.loaded && len(out) == 0 {
		return out // no other page takes its place before
	}
	p := r.data.piecesOf(ref)
	if p == nil || len(rows) >= len(p.list) || rows[len(rows)-1]-first >= uint64(p.count) {
		return append(out, ref.span())
	}
	for _, row := range rows {
		at := p.span(uint32(row - first))
		if n := len(out); n > 0 && out[n-1].Start <= at.Start && at.Start < out[n-1].End {
			out[n-1].End = max(out[n-1].End, at.End)
			continue
		}
		out = append(out, at)
	}
	return out
}

// announceRun announces to a far file a scan that begins at a row of a row group.
func (r *reader) announceRun(c *chunk, row uint64) error {
	if r.ahead != nil || !r.data.isFar || c.firstRow < r.until {
		return nil
	}
	var pages, indexes []sources.Range
	if c.isSmall() {
		pages = append(pages, sources.Range{Start: c.start, End: c.end})
	} else {
		p, err := r.data.pagesOf(c, &r.near)
		if err != nil {
			return err
		}
		if p.dictionary != nil {
			pages = append(pages, p.dictionary.span())
		}
		first := &p.data[max(p.pageOf(int64(row)-c.firstRow), 0)]
		pages = append(pages, sources.Range{Start: first.off, End: c.end})
	}
	r.until = c.firstRow + c.rows
	size := c.end - c.start
	for i := r.data.placeOf(uint64(c.firstRow)) + 1; i < len(r.data.chunks) && size < mostRun; i++ {
		next := &r.data.chunks[i]
		if !next.hasIndex() && !next.isSmall() {
			break
		}
		pages = append(pages, sources.Range{Start: next.start, End: next.end})
		if next.hasIndex() {
			indexes = append(indexes, next.index)
		}
		r.until, size = next.firstRow+next.rows, size+next.end-next.start
	}
	r.told.set(pages)
	r.toldIndexes.set(indexes)
	return nil
}
