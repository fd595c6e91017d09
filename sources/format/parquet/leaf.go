package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"github.com/parquet-go/parquet-go/format"

	"millrace/sources"
)

// batchEntries is the number of entries of a page that are decoded at once. A page of few bytes may declare many.
const batchEntries = 1 << 10

// entry is a value or a null of a column, with its levels. See
// https://github.com/apache/parquet-format/blob/master/README.md#nested-encoding.
type entry struct {
	repeat, level uint32
	value         []byte // nil: null, or an empty list
}

// leaf reads the entries of one row after another of a column that is inside of lists or structs. It is not safe for
// concurrent use.
type leaf struct {
	*reader
	page    int   // place of the loaded page in the chunk, -1 before the first
	begun   int64 // rows of the chunk that began before the next entry
	left    int   // entries of the page that are not decoded
	repeats runs
	defined runs
	values  pageValues
	batch   []entry
	at      int // of the next entry in the batch

	// entries is the number of entries of the pages up to the loaded one, -1 if the reader came there by a jump.
	entries int64

	row  int64 // of the file, whose entries are got; -1: none
	got  []entry
	next int // of got, while a value is made of it
	long bool
	rs   []uint32
	ds   []uint32
}

func newLeaf(data *columnData) *leaf { return &leaf{reader: newReader(data), page: -1, row: -1} }

// bytes returns the memory of a leaf beside that of its reader.
func (l *leaf) bytes() int64 { return 32 * int64(cap(l.got)+cap(l.batch)) }

// gather gets the entries of a row. long is set if they take more than limit bytes; then some are left out.
func (l *leaf) gather(row uint64, limit int64) error {
	l.next = 0
	if l.row == int64(row) {
		return nil
	}
	l.row = -1
	c := l.data.chunkOf(row)
	if l.chunk != c {
		if err := l.enter(c, row); err != nil {
			return err
		}
		l.rewind(-1, 0)
	}
	if err := l.seek(int64(row) - c.firstRow); err != nil {
		return err
	}
	if err := l.collect(int64(row)-c.firstRow, limit); err != nil {
		return err
	}
	l.row = int64(row)
	return nil
}

// rewind sets the leaf to the end of a page. begun is the number of rows that began before the page's end.
func (l *leaf) rewind(page int, begun int64) {
	l.page, l.begun, l.left, l.batch, l.at, l.got = page, begun, 0, l.batch[:0], 0, l.got[:0]
	if l.entries = 0; page >= 0 {
		l.entries = -1
	}
}

// seek goes to a place before a row of the chunk: on to it, or to the page in which it begins.
func (l *leaf) seek(row int64) error {
	l.got = l.got[:0]
	isAhead := l.begun <= row
	var page int
	var first int64
	switch {
	case l.pages.isAligned:
		if page = l.pages.pageOf(row); page >= 0 {
			first = l.pages.data[page].row
		}
	case l.ahead == nil: // a scan reads on
		if !isAhead {
			l.rewind(-1, 0)
		}
		return nil
	default:
		begins, err := l.pageRows()
		if err != nil {
			return err
		}
		if page = sort.Search(len(begins), func(i int) bool { return begins[i] > row }) - 1; page >= 0 {
			first = begins[page]
		}
	}
	if page < 0 {
		return l.endsEarly()
	}
	isNext := page == l.page+1 && l.left == 0 && l.at == len(l.batch)
	if page != l.page && !isNext || !isAhead {
		l.rewind(page-1, first)
	}
	return nil
}

// pageRows returns the number of rows that began before each page of the chunk. The first caller reads the levels of
// all pages, because headers of version 1 have no rows.
func (l *leaf) pageRows() ([]int64, error) {
	d, p := l.data, l.pages
	if begins := d.beginsOf(p); begins != nil {
		return begins, nil
	}
	d.finding[l.chunk.group].Lock()
	defer d.finding[l.chunk.group].Unlock()
	if begins := d.beginsOf(p); begins != nil {
		return begins, nil
	}
	l.told.set([]sources.Range{{Start: l.chunk.start, End: l.chunk.end}})
	begins := make([]int64, 0, len(p.data))
	rows := int64(0)
	for i := range p.data {
		begins = append(begins, rows)
		n, err := l.rowsOf(&p.data[i])
		if err != nil {
			return nil, err
		}
		rows += n
	}
	l.rewind(-1, 0)
	d.setBegins(p, begins)
	l.told.set(l.wanted(l.ahead))
	return begins, nil
}

// rowsOf returns the number of rows that begin in a page.
func (l *leaf) rowsOf(ref *pageRef) (rows int64, err error) {
	if err := l.load(ref); err != nil {
		return 0, err
	}
	s, err := l.sections()
	if err != nil {
		return 0, l.fail(ref, err)
	}
	if rows, _, err = l.countRows(s); err != nil {
		return 0, l.fail(ref, err)
	}
	return rows, nil
}

// countRows returns the number of rows that begin in a page, and whether its first entry begins one.
func (l *leaf) countRows(s sections) (rows int64, isAligned bool, err error) {
	r := l.levelsOf(s.repeats, l.data.col.repeats)
	l.rs = resize(l.rs, batchEntries)
	for left := s.count; left > 0; {
		part := l.rs[:min(left, len(l.rs))]
		if err := r.fill(part); err != nil {
			return 0, false, fmt.Errorf("repetition levels: %w", err)
		}
		isAligned = isAligned || left == s.count && part[0] == 0
		for _, x := range part {
			if x == 0 {
				rows++
			}
		}
		left -= len(part)
	}
	return rows, isAligned, nil
}

func (l *leaf) levelsOf(b []byte, most int) runs {
	c := column{depth: most}
	return runs{b: b, width: c.levelBits()}
}

func (l *leaf) endsEarly() error {
	return damaged(l.data.f, "row group %d: column %v ends before its last row", l.chunk.group, l.data.col.path)
}

// collect gets the entries of a row of the chunk, which begins at or behind the next entry.
func (l *leaf) collect(row, limit int64) error {
	l.long = false
	for {
		if l.at == len(l.batch) {
			if l.pages.isAligned && l.left == 0 && l.begun > row {
				return nil
			}
			more, err := l.more()
			if err != nil {
				return err
			}
			if !more && l.begun <= row {
				return l.endsEarly()
			}
			if !more {
				return nil
			}
		}
		e := l.batch[l.at]
		if e.repeat == 0 {
			if l.begun > row {
				return nil
			}
			l.begun++
		} else if l.begun == 0 {
			return l.endsEarly()
		}
		l.at++
		if l.begun == row+1 && !l.long {
			limit -= int64(len(e.value)) + 1
			if l.long = limit < 0; !l.long {
				l.got = append(l.got, e)
			}
		}
	}
}

// more decodes the next entries. It returns false behind the last entry of the chunk.
func (l *leaf) more() (bool, error) {
	for l.left == 0 {
		if l.page+1 >= len(l.pages.data) {
			return false, nil
		}
		for i := range l.got { // their memory is that of the page before
			l.got[i].value = bytes.Clone(l.got[i].value)
		}
		if err := l.turn(&l.pages.data[l.page+1]); err != nil {
			return false, err
		}
		l.page++
	}
	n := min(l.left, batchEntries)
	ref := &l.pages.data[l.page]
	if err := l.decode(n); err != nil {
		return false, l.fail(ref, err)
	}
	l.left -= n
	return true, nil
}

// turn loads a page.
func (l *leaf) turn(ref *pageRef) error {
	if err := l.loadBoth(ref); err != nil {
		return err
	}
	s, err := l.sections()
	if err == nil {
		err = l.compare(ref, s)
	}
	if err != nil {
		return l.fail(ref, err)
	}
	col := l.data.col
	l.repeats, l.defined = l.levelsOf(s.repeats, col.repeats), l.levelsOf(s.levels, col.depth)
	l.left = s.count
	if err := l.values.begin(l.reader, s, l.countDefined); err != nil {
		return l.fail(ref, err)
	}
	return nil
}

// compare compares a page with its header and with the list of pages.
func (l *leaf) compare(ref *pageRef, s sections) error {
	if l.entries >= 0 {
		l.entries += int64(s.count)
		if isLast := l.page+2 == len(l.pages.data); isLast && l.entries != l.chunk.entries {
			return fmt.Errorf("the pages have %d values up to it, and the footer declares %d", l.entries,
				l.chunk.entries)
		}
	}
	h := l.raw.header
	if l.data.col.repeats == 0 || !l.pages.isListed && h.Type != format.DataPageV2 {
		return nil
	}
	rows, isAligned, err := l.countRows(s)
	switch {
	case err != nil:
		return err
	case h.Type == format.DataPageV2 && rows != int64(h.DataPageHeaderV2.V.NumRows):
		return fmt.Errorf("%d rows begin in it, and its header declares %d", rows, h.DataPageHeaderV2.V.NumRows)
	case l.pages.isListed && rows != ref.rows:
		return fmt.Errorf("%d rows begin in it, and the page index says %d; %s", rows, ref.rows, indexCure)
	case l.pages.isListed && !isAligned && s.count > 0:
		return fmt.Errorf("it begins inside a row, and the page index says that no page does; %s", indexCure)
	}
	return nil
}

// countDefined returns the number of a page's entries that have values.
func (l *leaf) countDefined(s sections) (n int, err error) {
	r := l.levelsOf(s.levels, l.data.col.depth)
	l.ds = resize(l.ds, batchEntries)
	for left := s.count; left > 0; {
		part := l.ds[:min(left, len(l.ds))]
		if err := r.fill(part); err != nil {
			return 0, err
		}
		for _, x := range part {
			if x == uint32(l.data.col.depth) {
				n++
			}
		}
		left -= len(part)
	}
	return n, nil
}

// decode decodes n entries of the page.
func (l *leaf) decode(n int) error {
	l.rs, l.ds = resize(l.rs, batchEntries), resize(l.ds, batchEntries)
	rs, ds := l.rs[:n], l.ds[:n]
	if err := l.repeats.fill(rs); err != nil {
		return fmt.Errorf("repetition levels: %w", err)
	}
	if err := l.defined.fill(ds); err != nil {
		return fmt.Errorf("definition levels: %w", err)
	}
	there := 0
	for i := range rs {
		if ds[i] > uint32(l.data.col.depth) || rs[i] > uint32(l.data.col.repeats) {
			return errors.New("a level is above that of the schema")
		}
		if ds[i] == uint32(l.data.col.depth) {
			there++
		}
	}
	values, err := l.values.take(there)
	if err != nil {
		return err
	}
	l.batch, l.at = l.batch[:0], 0
	for i := range rs {
		e := entry{repeat: rs[i], level: ds[i]}
		if ds[i] == uint32(l.data.col.depth) {
			e.value, values = values[0], values[1:]
		}
		l.batch = append(l.batch, e)
	}
	return nil
}

// pageValues decodes the values of a page a few at a time.
type pageValues struct {
	reader *reader
	enc    format.Encoding
	b      []byte
	bit    int
	codes  runs
	dense  [][]byte // all values that are left, of encodings that are decoded as a whole
	out    [][]byte
}

// mostDense is the largest number of values of a page that are decoded as a whole.
const mostDense = 1 << 22

func (p *pageValues) begin(r *reader, s sections, count func(sections) (int, error)) error {
	p.reader, p.enc, p.b, p.bit, p.dense = r, s.enc, s.values, 0, nil
	switch s.enc {
	case format.Plain:
		return nil
	case plainDictionary, format.RLEDictionary:
		if len(s.values) > 0 {
			if s.values[0] > 32 {
				return errValues
			}
			p.codes = runs{b: s.values[1:], width: int(s.values[0])}
		}
		return nil
	}
	n, err := count(s)
	if err != nil {
		return err
	}
	if n > mostDense {
		return sources.Limited(pageCure, "a page has %d values in encoding %v, at most %d are read", n, s.enc,
			mostDense)
	}
	p.dense, err = r.dec.decodeValues(nil, s.enc, s.values, n)
	return err
}

// take returns the next n values. They are valid until the next page.
func (p *pageValues) take(n int) ([][]byte, error) {
	if n == 0 {
		return nil, nil
	}
	col := p.reader.data.col
	p.out = p.out[:0]
	switch {
	case isCoded(p.enc):
		dec := &p.reader.dec
		dec.indices = resize(dec.indices, n)
		if len(p.b) == 0 {
			return nil, errValues
		}
		if err := p.codes.fill(dec.indices); err != nil {
			return nil, err
		}
		return dec.ofDictionary(p.out)
	case p.enc != format.Plain:
		if len(p.dense) < n {
			return nil, errValues
		}
		p.out, p.dense = append(p.out, p.dense[:n]...), p.dense[n:]
		return p.out, nil
	case col.kind == format.Boolean:
		return p.booleans(n)
	case col.kind == format.ByteArray:
		for range n {
			if len(p.b) < lengthBytes {
				return nil, errValues
			}
			size := uint64(binary.LittleEndian.Uint32(p.b))
			if p.b = p.b[lengthBytes:]; size > uint64(len(p.b)) {
				return nil, errValues
			}
			p.out, p.b = append(p.out, p.b[:size:size]), p.b[size:]
		}
		return p.out, nil
	}
	out, err := cut(p.out, p.b, col.width(), n)
	if err == nil {
		p.out, p.b = out, p.b[n*col.width():]
	}
	return out, err
}

func (p *pageValues) booleans(n int) ([][]byte, error) {
	for range n {
		if p.bit/8 >= len(p.b) {
			return nil, errValues
		}
		p.out = append(p.out, []byte{p.b[p.bit/8] >> (p.bit % 8) & 1})
		p.bit++
	}
	return p.out, nil
}
