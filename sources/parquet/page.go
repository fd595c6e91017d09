package parquet

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/parquet-go/parquet-go/format"

	"millrace/sources"
)

// reader decodes pages of one row group after another. Its values live until its next page. It is not safe for
// concurrent use.
type reader struct {
	data   *columnData
	chunk  *chunk
	pages  *pages
	unpack *unpacker
	dec    decoder
	packed []byte
	plain  []byte
	dict   []byte // memory of the dictionary's strings
	levels []uint32
	dense  [][]byte // values that are not null
	values [][]byte // of every row of the page; nil: null
	first  uint64   // row of the file of the first value
}

func newReader(data *columnData) *reader {
	return &reader{data: data, dec: decoder{column: data.col}}
}

// valueOf returns the value of a row, nil if it is null.
func (r *reader) valueOf(row uint64) ([]byte, error) {
	if row < r.first || row >= r.first+uint64(len(r.values)) {
		if err := r.find(row); err != nil {
			return nil, err
		}
	}
	return r.values[row-r.first], nil
}

func (r *reader) close() {
	if r.unpack != nil {
		r.unpack.close()
	}
}

// enter goes to a row group.
func (r *reader) enter(c *chunk) error {
	if r.chunk == c {
		return nil
	}
	p, err := r.data.pagesOf(c)
	if err != nil {
		return err
	}
	if r.unpack == nil || r.unpack.codec != c.codec {
		r.close()
		if r.unpack, err = newUnpacker(c.codec); err != nil {
			return fmt.Errorf("read %s: %w", r.data.f.Name(), err)
		}
	}
	r.chunk, r.pages, r.dec.dictionary = c, p, nil
	return nil
}

// find decodes the page that holds a row of the file.
func (r *reader) find(row uint64) error {
	r.values = r.values[:0]
	c := r.data.chunkOf(row)
	if err := r.enter(c); err != nil {
		return err
	}
	ref := &r.pages.data[r.pages.pageOf(int64(row)-c.firstRow)]
	r.first = uint64(c.firstRow + ref.row)
	return r.page(ref)
}

// page decodes a data page of the row group.
func (r *reader) page(ref *pageRef) error {
	if d := &r.pages.dictionary; r.dec.dictionary == nil && d.header != nil {
		if err := r.load(d); err != nil {
			return err
		}
		if err := r.decodeDictionary(d.header); err != nil {
			return r.fail(d, err)
		}
	}
	if err := r.load(ref); err != nil {
		return err
	}
	if err := r.decodePage(ref.header); err != nil {
		return r.fail(ref, err)
	}
	return nil
}

func (r *reader) fail(ref *pageRef, err error) error {
	return damaged(r.data.f, "row group %d, page data at byte %d: %w", r.chunk.group, ref.off, err)
}

// load reads a page's bytes and compares their checksum if the page has one.
func (r *reader) load(ref *pageRef) error {
	r.packed = resize(r.packed, int(ref.header.CompressedPageSize))
	if err := sources.ReadFull(r.data.f, r.packed, ref.off); err != nil {
		return err
	}
	if want := uint32(ref.header.CRC); want != 0 {
		if got := crc32.ChecksumIEEE(r.packed); got != want {
			return r.fail(ref, fmt.Errorf("checksum is %08x, want %08x", got, want))
		}
	}
	return nil
}

// decodeDictionary decodes the loaded page as the dictionary of the row group's further pages.
func (r *reader) decodeDictionary(h *format.PageHeader) error {
	if e := h.DictionaryPageHeader.V.Encoding; e != format.Plain && e != format.PlainDictionary {
		return fmt.Errorf("a dictionary in encoding %v", e)
	}
	var err error
	r.dict = resize(r.dict, int(h.UncompressedPageSize))
	if r.dict, err = r.unpack.unpack(r.dict[:0], r.packed, int(h.UncompressedPageSize)); err != nil {
		return err
	}
	n := int(h.DictionaryPageHeader.V.NumValues)
	r.dec.dictionary, err = r.dec.decodePlain(make([][]byte, 0, n), r.dict, n)
	return err
}

// decodePage decodes the loaded page into one value a row.
func (r *reader) decodePage(h *format.PageHeader) error {
	levels, b, n, enc, err := r.sections(h)
	if err != nil {
		return err
	}
	there := n
	if r.data.col.depth > 0 {
		r.levels = resize(r.levels, n)
		lr := runs{b: levels, width: r.data.col.levelBits()}
		if err := lr.fill(r.levels); err != nil {
			return fmt.Errorf("definition levels: %w", err)
		}
		there = 0
		for _, l := range r.levels {
			if l > uint32(r.data.col.depth) {
				return fmt.Errorf("definition level %d of %d", l, r.data.col.depth)
			}
			if l == uint32(r.data.col.depth) {
				there++
			}
		}
	}
	if r.dense, err = r.dec.decodeValues(r.dense[:0], enc, b, there); err != nil {
		return err
	}
	if there == n {
		r.values, r.dense = r.dense, r.values
		return nil
	}
	r.values = r.values[:0]
	dense := r.dense
	for _, l := range r.levels {
		var v []byte
		if l == uint32(r.data.col.depth) {
			v, dense = dense[0], dense[1:]
		}
		r.values = append(r.values, v)
	}
	return nil
}

// sections unpacks a data page and cuts it into definition levels and values.
func (r *reader) sections(h *format.PageHeader) (levels, values []byte, n int, enc format.Encoding, err error) {
	size := int(h.UncompressedPageSize)
	r.plain = resize(r.plain, size)
	if h.Type == format.DataPageV2 {
		d := &h.DataPageHeaderV2.V
		skip := int(d.RepetitionLevelsByteLength)
		cut := skip + int(d.DefinitionLevelsByteLength)
		levels, values = r.packed[skip:cut], r.packed[cut:]
		if !d.IsCompressed.Valid || d.IsCompressed.V {
			if len(values) > 0 || size > cut {
				values, err = r.unpack.unpack(r.plain[:0], values, size-cut)
			}
		}
		return levels, values, int(d.NumValues), d.Encoding, err
	}
	d := &h.DataPageHeader.V
	if values, err = r.unpack.unpack(r.plain[:0], r.packed, size); err != nil {
		return nil, nil, 0, 0, err
	}
	if r.data.col.depth > 0 {
		if d.DefinitionLevelEncoding != format.RLE {
			return nil, nil, 0, 0, fmt.Errorf("definition levels in encoding %v", d.DefinitionLevelEncoding)
		}
		if len(values) < 4 {
			return nil, nil, 0, 0, errValues
		}
		cut := binary.LittleEndian.Uint32(values)
		values = values[4:]
		if uint64(cut) > uint64(len(values)) {
			return nil, nil, 0, 0, errValues
		}
		levels, values = values[:cut], values[cut:]
	}
	return levels, values, int(d.NumValues), d.Encoding, nil
}
