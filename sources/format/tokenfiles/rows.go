package tokenfiles

import (
	"bufio"
	"context"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"

	"millrace/sources"
	"millrace/sources/format/parts/ids"
)

// readRows reads dolma's rows: start, end, id, src, loc as CSV, packed with gzip. The later cells are passed over. They
// may have quotes, and line breaks inside quotes. Rows follow each other without gaps.
func (p *plan) readRows(ctx context.Context, f sources.File) (*ids.Builder, uint64, error) {
	b, last := &ids.Builder{}, uint64(0)
	if f.Size() == 0 {
		return b, 0, nil
	}
	in := sources.NewReader(f, 0, f.Size())
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, 0, unpackError(f, in, err)
	}
	r := &rows{in: bufio.NewReaderSize(z, 64<<10)}
	// Each document has an id at least, and a few may be empty.
	most := uint64(p.layout.Size) + 1<<16
	for row := uint64(0); ; row++ {
		if row%1024 == 0 && ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		start, end, err := r.next()
		switch {
		case errors.Is(err, io.EOF):
			return b, last, nil
		case errors.Is(err, errRow):
			return nil, 0, misfit(f, "row %d has no numbers `start,end` at its beginning, or does not end", row+1)
		case err != nil:
			return nil, 0, unpackError(f, in, err)
		case start != last || end < start || end > uint64(p.layout.Size):
			return nil, 0, misfit(
				f,
				"row %d goes from id %d to %d; the one before ends at %d, and %s has %d bytes",
				row+1,
				start,
				end,
				last,
				p.file.Name(),
				p.layout.Size,
			)
		case row > most:
			return nil, 0, misfit(f, "it has more rows than %s has bytes", p.file.Name())
		}
		b.Add(end - start)
		last = end
	}
}

// unpackError returns the cause of an unpacker's error: that of the file, else damage.
func unpackError(f sources.File, in *sources.Reader, err error) error {
	if in.Err() != nil {
		return in.Err()
	}
	return misfit(f, "it cannot be unpacked: %v", err)
}

var errRow = errors.New("not a row")

// rows reads CSV. It keeps no cell.
type rows struct{ in *bufio.Reader }

// next returns the first two cells of a row.
func (r *rows) next() (start, end uint64, err error) {
	if start, err = r.number(true); err != nil {
		return 0, 0, err
	}
	if end, err = r.number(false); err != nil {
		return 0, 0, err
	}
	return start, end, r.rest()
}

// number reads a cell with a number, and the comma behind it. The number may be in quotes. Empty lines before the first
// cell are passed over.
func (r *rows) number(first bool) (n uint64, err error) {
	quoted, digits := false, 0
	for {
		c, err := r.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF) && first && digits == 0 && !quoted:
			return 0, io.EOF
		case errors.Is(err, io.EOF):
			return 0, errRow
		case err != nil:
			return 0, err
		case first && digits == 0 && !quoted && (c == '\r' || c == '\n'):
		case c == '"' && (digits == 0) != quoted:
			quoted = true
		case c >= '0' && c <= '9' && digits < 19:
			n = n*10 + uint64(c-'0')
			digits++
		case c == ',' && digits > 0:
			return n, nil
		case !first && digits > 0 && (c == '\n' || c == '\r'):
			return n, r.in.UnreadByte() // a row of two cells
		default:
			return 0, errRow
		}
	}
}

// rest passes over the other cells of a row and its line break.
func (r *rows) rest() error {
	inside := false
	for {
		c, err := r.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF) && inside:
			return errRow
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case c == '"':
			inside = !inside // two quotes in a row are one of the text
		case c == '\n' && !inside:
			return nil
		}
	}
}
