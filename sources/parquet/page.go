package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"

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

	ahead   []uint64 // rows that the caller reads, ascending, from the current one on; nil in a scan
	single  pieceReader
	codes   []uint32 // places in the dictionary of the values of a page
	codesOf *pageRef // that page; codes are nil if a value is null
	stream  stream   // of the page decoded last
	done    func()   // ends the announcement of a scan's pages; nil without one
}

// stream is the part of a page that holds its values.
type stream struct {
	off    int64 // of the packed bytes in the file
	packed []byte
	plain  []byte
	at     int // of the first value in plain
	codec  format.CompressionCodec
}

func newReader(data *columnData) *reader {
	return &reader{data: data, dec: decoder{column: data.col}, single: pieceReader{f: data.f}}
}

// valueOf returns the value of a row, nil if it is null.
func (r *reader) valueOf(row uint64) ([]byte, error) {
	if row >= r.first && row < r.first+uint64(len(r.values)) {
		return r.values[row-r.first], nil
	}
	if v, ok, err := r.alone(row); ok || err != nil {
		return v, err
	}
	if err := r.find(row); err != nil {
		return nil, err
	}
	return r.values[row-r.first], nil
}

// alone reads a value without its page, if the caller reads few values of the page and an earlier reading has found its
// pieces.
func (r *reader) alone(row uint64) (v []byte, ok bool, err error) {
	if r.ahead == nil || r.data.col.kind != format.ByteArray {
		return nil, false, nil
	}
	c := r.data.chunkOf(row)
	if err := r.enter(c, row); err != nil {
		return nil, false, err
	}
	ref := &r.pages.data[r.pages.pageOf(int64(row)-c.firstRow)]
	first := uint64(c.firstRow + ref.row)
	of, at := ref, uint32(row-first)
	if isCoded(ref.header) {
		if of = &r.pages.dictionary; r.data.piecesOf(of) == nil {
			return nil, false, nil
		}
		if err := r.decodeCodes(ref); err != nil || r.codes == nil {
			return nil, false, err
		}
		at = r.codes[at]
	}
	p := r.data.piecesOf(of)
	wanted := sort.Search(len(r.ahead), func(i int) bool { return r.ahead[i] >= first+uint64(ref.rows) })
	if p == nil || at >= p.count || wanted >= len(p.list) {
		return nil, false, nil
	}
	v, err = r.single.value(p, at)
	if errors.Is(err, errPiece) {
		err = r.fail(of, err)
	}
	return v, err == nil, err
}

// isCoded reports whether the values of a page are places in a dictionary.
func isCoded(h *format.PageHeader) bool {
	enc := h.DataPageHeader.V.Encoding
	if h.Type == format.DataPageV2 {
		enc = h.DataPageHeaderV2.V.Encoding
	}
	return enc == format.PlainDictionary || enc == format.RLEDictionary
}

// decodeCodes decodes the places in the dictionary of a page's values. codes is nil if a value is null.
func (r *reader) decodeCodes(ref *pageRef) error {
	if r.codesOf == ref {
		return nil
	}
	r.values = r.values[:0] // their memory is used again
	r.codesOf = nil
	if err := r.load(ref); err != nil {
		return err
	}
	s, err := r.sections(ref)
	if err != nil {
		return r.fail(ref, err)
	}
	there, err := r.present(s.levels, s.count)
	if err != nil {
		return r.fail(ref, err)
	}
	if r.codes = resize(r.codes, s.count); there != s.count {
		r.codes = nil
	} else if err := decodeIndices(r.codes, s.values); err != nil {
		return r.fail(ref, err)
	}
	r.codesOf = ref
	return nil
}

func (r *reader) close() {
	r.leave()
	if r.unpack != nil {
		r.unpack.close()
	}
}

// leave ends the announcement of pages.
func (r *reader) leave() {
	if r.done != nil {
		r.done()
		r.done = nil
	}
}

// announce tells the file that a scan reads the pages of its row group from a row on.
func (r *reader) announce(row uint64) {
	r.leave()
	if r.ahead != nil {
		return
	}
	r.done = sources.Expect(r.data.f, func() (out []sources.Range) {
		if d := &r.pages.dictionary; d.header != nil {
			out = append(out, sources.Range{Start: d.off, End: d.off + int64(d.header.CompressedPageSize)})
		}
		first := &r.pages.data[max(r.pages.pageOf(int64(row)-r.chunk.firstRow), 0)]
		return append(out, sources.Range{Start: first.off, End: r.chunk.end})
	})
}

// enter goes to the row group of a row.
func (r *reader) enter(c *chunk, row uint64) error {
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
	if len(p.data) > 0 {
		r.announce(row)
	}
	return nil
}

// find decodes the page that holds a row of the file.
func (r *reader) find(row uint64) error {
	r.values = r.values[:0]
	c := r.data.chunkOf(row)
	if err := r.enter(c, row); err != nil {
		return err
	}
	ref := &r.pages.data[r.pages.pageOf(int64(row)-c.firstRow)]
	r.first = uint64(c.firstRow + ref.row)
	return r.page(ref)
}

// page decodes a data page of the row group.
func (r *reader) page(ref *pageRef) error {
	if err := r.loadBoth(ref); err != nil {
		return err
	}
	isPlain, err := r.decodePage(ref)
	if err != nil {
		return r.fail(ref, err)
	}
	if isPlain {
		r.notePieces(ref, len(r.values))
	}
	return nil
}

// loadBoth loads a data page, after the dictionary of its values if it has one that is not decoded yet.
func (r *reader) loadBoth(ref *pageRef) error {
	if d := &r.pages.dictionary; r.dec.dictionary == nil && d.header != nil && isCoded(ref.header) {
		if err := r.load(d); err != nil {
			return err
		}
		if err := r.decodeDictionary(d.header); err != nil {
			return r.fail(d, err)
		}
		r.stream = stream{off: d.off, packed: r.packed, plain: r.dict, codec: r.unpack.codec}
		r.notePieces(d, len(r.dec.dictionary))
	}
	return r.load(ref)
}

// notePieces finds the pieces of the page of plain strings that was decoded last, for later reads of single values.
func (r *reader) notePieces(ref *pageRef, strings int) {
	if r.ahead != nil && r.data.col.kind == format.ByteArray && r.data.piecesOf(ref) == nil {
		s := &r.stream
		r.data.setPieces(ref, newPieces(s.codec, s.off, s.packed, s.plain, s.at, strings))
	}
}

func (r *reader) fail(ref *pageRef, err error) error {
	return damaged(r.data.f, "row group %d, page data at byte %d: %w", r.chunk.group, ref.off, err)
}

// load reads a page's bytes and compares their checksum if the page has one.
func (r *reader) load(ref *pageRef) error {
	r.packed = resize(r.packed, int(ref.header.CompressedPageSize))
	if r.ahead != nil { // a page by itself: what follows it belongs to rows that nobody asked for
		at := sources.Range{Start: ref.off, End: ref.off + int64(len(r.packed))}
		defer sources.Expect(r.data.f, func() []sources.Range { return []sources.Range{at} })()
	}
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

// decodePage decodes the loaded page into one value a row. isPlain reports whether the values lie one after the other
// and none is null.
func (r *reader) decodePage(ref *pageRef) (isPlain bool, err error) {
	s, err := r.sections(ref)
	if err != nil {
		return false, err
	}
	there, err := r.present(s.levels, s.count)
	if err != nil {
		return false, err
	}
	if r.dense, err = r.dec.decodeValues(r.dense[:0], s.enc, s.values, there); err != nil {
		return false, err
	}
	if there == s.count {
		r.values, r.dense = r.dense, r.values
		return s.enc == format.Plain, nil
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
	return false, nil
}

// present decodes the definition levels of n values, and returns the number of those that are not null.
func (r *reader) present(levels []byte, n int) (there int, err error) {
	if r.data.col.depth == 0 {
		return n, nil
	}
	r.levels = resize(r.levels, n)
	lr := runs{b: levels, width: r.data.col.levelBits()}
	if err := lr.fill(r.levels); err != nil {
		return 0, fmt.Errorf("definition levels: %w", err)
	}
	for _, l := range r.levels {
		if l > uint32(r.data.col.depth) {
			return 0, fmt.Errorf("definition level %d of %d", l, r.data.col.depth)
		}
		if l == uint32(r.data.col.depth) {
			there++
		}
	}
	return there, nil
}

// sections are the parts of an unpacked data page.
type sections struct {
	repeats []byte // repetition levels; empty if the column is in no list
	levels  []byte // definition levels
	values  []byte
	count   int // entries: values and nulls
	enc     format.Encoding
}

// sections unpacks a data page and cuts it.
func (r *reader) sections(ref *pageRef) (s sections, err error) {
	h := ref.header
	size := int(h.UncompressedPageSize)
	r.plain = resize(r.plain, size)
	if h.Type == format.DataPageV2 {
		d := &h.DataPageHeaderV2.V
		skip := int(d.RepetitionLevelsByteLength)
		cut := skip + int(d.DefinitionLevelsByteLength)
		s = sections{r.packed[:skip], r.packed[skip:cut], r.packed[cut:], int(d.NumValues), d.Encoding}
		r.stream = stream{off: ref.off + int64(cut), packed: s.values, plain: s.values, codec: format.Uncompressed}
		if !d.IsCompressed.Valid || d.IsCompressed.V {
			if len(s.values) > 0 || size > cut {
				s.values, err = r.unpack.unpack(r.plain[:0], s.values, size-cut)
				r.stream.plain, r.stream.codec = s.values, r.unpack.codec
			}
		}
		return s, err
	}
	d := &h.DataPageHeader.V
	plain, err := r.unpack.unpack(r.plain[:0], r.packed, size)
	if err != nil {
		return sections{}, err
	}
	r.stream = stream{off: ref.off, packed: r.packed, plain: plain, codec: r.unpack.codec}
	s = sections{values: plain, count: int(d.NumValues), enc: d.Encoding}
	if r.data.col.repeats > 0 {
		if err := s.cut(&s.repeats, d.RepetitionLevelEncoding); err != nil {
			return sections{}, fmt.Errorf("repetition levels: %w", err)
		}
	}
	if r.data.col.depth > 0 {
		if err := s.cut(&s.levels, d.DefinitionLevelEncoding); err != nil {
			return sections{}, fmt.Errorf("definition levels: %w", err)
		}
	}
	r.stream.at = len(plain) - len(s.values)
	return s, nil
}

// cut takes levels from the front of the values.
func (s *sections) cut(levels *[]byte, enc format.Encoding) error {
	if enc != format.RLE {
		return fmt.Errorf("encoding %v", enc)
	}
	if len(s.values) < 4 {
		return errValues
	}
	cut := binary.LittleEndian.Uint32(s.values)
	rest := s.values[4:]
	if uint64(cut) > uint64(len(rest)) {
		return errValues
	}
	*levels, s.values = rest[:cut], rest[cut:]
	return nil
}
