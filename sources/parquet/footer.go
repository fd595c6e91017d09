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
	mostFooter     = 64 << 20 // bytes; far above files of thousands of columns and row groups
)

// damaged says what of a file does not fit.
func damaged(f sources.File, format string, args ...any) error {
	return millrace.Errorf(millrace.ErrDamaged, "read %s: %w", f.Name(), fmt.Errorf(format, args...))
}

// readFooter reads the file's metadata; end is the byte where the footer begins and all pages end.
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
		return nil, 0, millrace.Errorf(millrace.ErrInvalid, "read %s: it is encrypted, which is not supported", f.Name())
	}
	if string(head[:]) != magic || string(tail[4:]) != magic {
		return nil, 0, damaged(f, "it begins with %q and ends with %q, want %q: cut off or no Parquet file", head[:], tail[4:], magic)
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

// headerStep is how much is read to find a page's header; statistics make some longer.
const (
	headerStep = 2 << 10
	mostHeader = 4 << 20
)

// readHeader reads the page header at off, which has to end before end, and returns its bytes.
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

// headerReader holds the bytes around the last header, as small pages lie close together.
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
