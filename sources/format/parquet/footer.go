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
	farTail        = 64 << 10 // bytes at the end of a far file that are read at once
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
	head, last, err := readEnds(f)
	if err != nil {
		return nil, 0, err
	}
	tail := last[len(last)-tailSize:]
	if string(head) == encryptedMagic || string(tail[4:]) == encryptedMagic {
		return nil, 0, millrace.Errorf(millrace.ErrInvalid,
			"read %s: it is encrypted, and encrypted files are not read; write it without encryption", f.Name())
	}
	if string(head) != magic || string(tail[4:]) != magic {
		return nil, 0, damaged(f, "it begins with %q and ends with %q, want %q: cut off or no Parquet file",
			head, tail[4:], magic)
	}
	size := int64(binary.LittleEndian.Uint32(tail))
	if size > f.Size()-4-tailSize {
		return nil, 0, damaged(f, "a footer of %d bytes in a file of %d", size, f.Size())
	}
	if size > mostFooter {
		return nil, 0, damaged(f, "%w", sources.Limited("write it again as several files, or with larger row groups",
			"its footer has %d bytes, at most %d are read", size, mostFooter))
	}
	end = f.Size() - tailSize - size
	b := last[max(int64(len(last))-tailSize-size, 0) : len(last)-tailSize]
	if int64(len(b)) < size {
		b = make([]byte, size)
		if err := sources.ReadFull(f, b, end); err != nil {
			return nil, 0, err
		}
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

// readEnds returns the first bytes of a file and its last ones. Of a far file these are likely to have the whole
// footer, so that it takes one round trip to open the file.
func readEnds(f sources.File) (head, last []byte, err error) {
	head, last = make([]byte, len(magic)), make([]byte, tailSize)
	if isFar(f) {
		last = make([]byte, min(farTail, f.Size()))
	}
	at := f.Size() - int64(len(last))
	defer sources.Expect(f, func() []sources.Range {
		return []sources.Range{{Start: 0, End: int64(len(head))}, {Start: at, End: f.Size()}}
	})()
	if err := sources.ReadFull(f, head, 0); err != nil {
		return nil, nil, err
	}
	return head, last, sources.ReadFull(f, last, at)
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
		h, n, err := decodeHeader(b)
		if errors.Is(err, errThriftShort) && step < min(end-off, mostHeader) {
			continue
		}
		if errors.Is(err, errThriftShort) && step < end-off {
			err = sources.Limited("write the file again without statistics in page headers",
				"it has more than %d bytes", mostHeader)
		}
		if err != nil {
			return nil, 0, damaged(r.f, "page header at byte %d: %w", off, err)
		}
		return h, int64(n), nil
	}
}

// decodeHeader decodes the page header at the beginning of b. n is its size.
func decodeHeader(b []byte) (h *format.PageHeader, n int, err error) {
	if n, err = thriftLen(b); err != nil {
		return nil, 0, err
	}
	h = new(format.PageHeader)
	err = thrift.Unmarshal(new(thrift.CompactProtocol), b[:n], h)
	return h, n, err
}

// headerReader keeps the bytes around the last header, because small pages are close together.
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

// copy fills p with kept bytes of the file from off on, and reports whether it has them.
func (r *headerReader) copy(p []byte, off int64) bool {
	if off < r.lo || off+int64(len(p)) > r.lo+int64(len(r.buf)) {
		return false
	}
	copy(p, r.buf[off-r.lo:])
	return true
}

// forget drops the kept bytes.
func (r *headerReader) forget() { r.buf = nil }
