package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"millrace"
	"millrace/sources"
)

const (
	magic          = "PAR1"
	encryptedMagic = "PARE"
	tailSize       = 8        // footer length and magic
	mostFooter     = 64 << 20 // bytes; files of thousands of columns and row groups are far below
)

// damaged returns the error of a file that cannot be read.
func damaged(f sources.File, format string, args ...any) error {
	return millrace.Errorf(millrace.ErrDamaged, "read %s: %w", f.Name(), fmt.Errorf(format, args...))
}

// readFooter returns the file's metadata. The footer begins at byte end, and all pages end before it.
func readFooter(f sources.File) (meta *format.FileMetaData, end int64, err error) {
	if f.Size() < 4+tailSize {
		return nil, 0, damaged(f, "%d bytes are no Parquet file", f.Size())
	}
	var head [4]byte
	var tail [tailSize]byte
	if err := sources.ReadFull(f, head[:], 0); err != nil {
		return nil, 0, err
	}
	if err := sources.ReadFull(f, tail[:], f.Size()-tailSize); err != nil {
		return nil, 0, err
	}
	if string(head[:]) == encryptedMagic || string(tail[4:]) == encryptedMagic {
		return nil, 0, millrace.Errorf(millrace.ErrInvalid,
			"read %s: it is encrypted, and encrypted files are not read; write it without encryption", f.Name())
	}
	if string(head[:]) != magic || string(tail[4:]) != magic {
		return nil, 0, damaged(f, "it begins with %q and ends with %q, want %q: cut off or no Parquet file", head[:],
			tail[4:], magic)
	}
	size := int64(binary.LittleEndian.Uint32(tail[:]))
	if size > mostFooter || size > f.Size()-4-tailSize {
		return nil, 0, damaged(f, "a footer of %d bytes in a file of %d", size, f.Size())
	}
	end = f.Size() - tailSize - size
	b := make([]byte, size)
	if err := sources.ReadFull(f, b, end); err != nil {
		return nil, 0, err
	}
	// A signature may follow the metadata, so it need not fill the footer.
	n, err := thriftLen(b)
	if err != nil {
		return nil, 0, damaged(f, "footer at byte %d: %w", end, err)
	}
	meta = new(format.FileMetaData)
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), b[:n], meta); err != nil {
		return nil, 0, damaged(f, "footer at byte %d: %w", end, err)
	}
	return meta, end, nil
}

// headerStep is the first number of bytes to read for a page's header. Statistics make some headers longer.
const (
	headerStep = 2 << 10
	mostHeader = 4 << 20
)

// read returns the page header at off and its size. The header ends before end.
func (r *headerReader) read(off, end int64) (*format.PageHeader, int64, error) {
	for step := int64(headerStep); ; step *= 8 {
		b, err := r.bytesAt(off, min(step, end-off))
		if err != nil {
			return nil, 0, err
		}
		n, err := thriftLen(b)
		if errors.Is(err, errThriftShort) && step < min(end-off, mostHeader) {
			continue
		}
		if err != nil {
			return nil, 0, damaged(r.f, "page header at byte %d: %w", off, err)
		}
		h := new(format.PageHeader)
		if err := thrift.Unmarshal(new(thrift.CompactProtocol), b[:n], h); err != nil {
			return nil, 0, damaged(r.f, "page header at byte %d: %w", off, err)
		}
		return h, int64(n), nil
	}
}

// headerReader keeps the bytes around the last header, because small pages lie close together.
type headerReader struct {
	f   sources.File
	buf []byte
	lo  int64
}

func (r *headerReader) bytesAt(off, n int64) ([]byte, error) {
	if off < r.lo || off+n > r.lo+int64(len(r.buf)) {
		r.buf, r.lo = make([]byte, n), off
		if err := sources.ReadFull(r.f, r.buf, off); err != nil {
			r.buf = nil
			return nil, err
		}
	}
	return r.buf[off-r.lo:][:n], nil
}
