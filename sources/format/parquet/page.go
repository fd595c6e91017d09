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
	raw    rawPage
	loaded *pageRef // the page in raw
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

	near        headerReader // has all bytes of a small chunk of a far file
	told        announcement // of pages
	toldIndexes announcement // of parts of the page index, by a scan
	until       int64        // the scan announced the row groups before this row of the file
}

// rawPage is a page with the bytes of the file.
type rawPage struct {
	buf    []byte // header and data
	data   []byte
	off    int64 // of the data in the file
	header *format.PageHeader
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
	r := &reader{data: data, dec: decoder{column: data.col}, near: headerReader{f: data.f},
		told: announcement{f: data.f, isFar: data.isFar}, toldIndexes: announcement{f: data.f, isFar: data.isFar}}
	r.single = pieceReader{f: data.f, told: &r.told}
	return r
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
	if r.data.isCoded(ref) {
		if of = r.pages.dictionary; of == nil || r.data.piecesOf(of) == nil {
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

// decodeCodes decodes the places in the dictionary of a page's values. codes is nil if a value is null, or if the
// values are no such places after all.
func (r *reader) decodeCodes(ref *pageRef) error {
	if r.codesOf == ref {
		return nil
	}
	r.values = r.values[:0] // their memory is used again
	r.codesOf = nil
	if err := r.load(ref); err != nil {
		return err
	}
	s, err := r.sections()
	if err != nil {
		return r.fail(ref, err)
	}
	there, err := r.present(s.levels, s.count)
	if err != nil {
		return r.fail(ref, err)
	}
	if !isCoded(s.enc) {
		r.codes = nil
		return nil
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

// leave ends the announcements.
func (r *reader) leave() {
	r.told.end()
	r.toldIndexes.end()
}

// enter goes to the row group of a row.
func (r *reader) enter(c *chunk, row uint64) error {
	if r.chunk == c {
		return nil
	}
	r.near.forget()
	if err := r.announceRun(c, row); err != nil {
		return err
	}
	p, err := r.data.pagesOf(c, &r.near)
	if err != nil {
		return err
	}
	if r.unpack == nil || r.unpack.codec != c.codec {
		if r.unpack != nil {
			r.unpack.close()
		}
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
	isPlain, err := r.decodePage()
	if err != nil {
		return r.fail(ref, err)
	}
	if isPlain {
		r.notePieces(ref, len(r.values))
	}
	return nil
}

// loadBoth loads a data page, and the dictionary of its values if it has one that is not decoded yet. Pages are read in
// the order of the file if it is known whether the page needs the dictionary.
func (r *reader) loadBoth(ref *pageRef) error {
	if r.data.isCoded(ref) {
		if err := r.loadDictionary(); err != nil {
			return err
		}
	}
	if err := r.load(ref); err != nil || !isCoded(encodingOf(r.raw.header)) {
		return err
	}
	return r.loadDictionary()
}

// loadDictionary decodes the dictionary of the row group, if it has one that is not decoded yet.
func (r *reader) loadDictionary() error {
	d := r.pages.dictionary
	if d == nil || r.dec.dictionary != nil {
		return nil
	}
	var raw rawPage
	if err := r.read(&raw, d); err != nil {
		return err
	}
	if err := r.decodeDictionary(&raw); err != nil {
		return r.fail(d, err)
	}
	r.stream = stream{off: raw.off, packed: raw.data, plain: r.dict, codec: r.unpack.codec}
	r.notePieces(d, len(r.dec.dictionary))
	return nil
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

// load reads a data page.
func (r *reader) load(ref *pageRef) error {
	r.loaded = nil
	if err := r.read(&r.raw, ref); err != nil {
		return err
	}
	r.loaded = ref
	if enc := encodingOf(r.raw.header); isCoded(enc) != r.data.isCoded(ref) {
		r.data.setCoded(ref, isCoded(enc))
	}
	return nil
}

// read reads a page's bytes, header and data at once. It checks the header's numbers and the checksum if there is one.
func (r *reader) read(p *rawPage, ref *pageRef) error {
	p.buf = resize(p.buf, int(ref.size))
	if !r.near.copy(p.buf, ref.off) {
		done := func() {}
		if r.ahead != nil {
			done = r.told.alone(ref.span())
		}
		err := sources.ReadFull(r.data.f, p.buf, ref.off)
		done()
		if err != nil {
			return err
		}
	}
	header, n, err := decodeHeader(p.buf)
	if err != nil {
		if r.pages.isListed {
			err = fmt.Errorf("%w; %s", err, indexCure)
		}
		return damaged(r.data.f, "row group %d, page header at byte %d: %w", r.chunk.group, ref.off, err)
	}
	rows, err := r.chunk.check(header, ref.off+int64(n))
	if err == nil {
		err = r.chunk.fits(r.pages, ref, header, n, rows)
	}
	if err != nil {
		return damaged(r.data.f, "row group %d, page at byte %d: %w", r.chunk.group, ref.off, err)
	}
	p.header, p.data, p.off = header, p.buf[n:], ref.off+int64(n)
	if want := uint32(header.CRC); want != 0 {
		if got := crc32.ChecksumIEEE(p.data); got != want {
			return r.fail(ref, fmt.Errorf("checksum is %08x, want %08x", got, want))
		}
	}
	return nil
}

// decodeDictionary decodes a page as the dictionary of the row group's further pages.
func (r *reader) decodeDictionary(p *rawPage) error {
	h := p.header
	if e := h.DictionaryPageHeader.V.Encoding; e != format.Plain && e != plainDictionary {
		return fmt.Errorf("a dictionary in encoding %v", e)
	}
	var err error
	r.dict = resize(r.dict, int(h.UncompressedPageSize))
	if r.dict, err = r.unpack.unpack(r.dict[:0], p.data, int(h.UncompressedPageSize)); err != nil {
		return err
	}
	n := int(h.DictionaryPageHeader.V.NumValues)
	r.dec.dictionary, err = r.dec.decodePlain(make([][]byte, 0, n), r.dict, n)
	return err
}

// decodePage decodes the loaded page into one value a row. isPlain reports whether the values follow one another and
// none is null.
func (r *reader) decodePage() (isPlain bool, err error) {
	s, err := r.sections()
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

// sections unpacks the loaded page and cuts it.
func (r *reader) sections() (s sections, err error) {
	h, packed := r.raw.header, r.raw.data
	size := int(h.UncompressedPageSize)
	r.plain = resize(r.plain, size)
	if h.Type == format.DataPageV2 {
		d := &h.DataPageHeaderV2.V
		skip := int(d.RepetitionLevelsByteLength)
		cut := skip + int(d.DefinitionLevelsByteLength)
		s = sections{packed[:skip], packed[skip:cut], packed[cut:], int(d.NumValues), d.Encoding}
		r.stream = stream{off: r.raw.off + int64(cut), packed: s.values, plain: s.values, codec: format.Uncompressed}
		if !d.IsCompressed.Valid || d.IsCompressed.V {
			if len(s.values) > 0 || size > cut {
				s.values, err = r.unpack.unpack(r.plain[:0], s.values, size-cut)
				r.stream.plain, r.stream.codec = s.values, r.unpack.codec
			}
		}
		return s, err
	}
	d := &h.DataPageHeader.V
	plain, err := r.unpack.unpack(r.plain[:0], packed, size)
	if err != nil {
		return sections{}, err
	}
	r.stream = stream{off: r.raw.off, packed: packed, plain: plain, codec: r.unpack.codec}
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
