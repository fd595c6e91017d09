package packed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/ulikunitz/xz"

	"millrace"
	"millrace/sources"
)

// mostDictionary is the largest dictionary of an xz file that is read: that of xz -9 has 64 MiB.
const mostDictionary = 128 << 20

// The layout of the first block of an xz file: https://tukaani.org/xz/xz-file-format.txt, section 3.1.
const (
	xzHead   = 12
	xzLZMA2  = 0x21
	xzFilter = 64 // bytes of a block's head that are looked at
)

// CheckXZ refuses a file whose first block has a dictionary that is too large, or filters of programs, and a file that
// does not end as an xz file. The library takes memory for any dictionary, and takes a file that is cut behind a block
// for a whole one.
func CheckXZ(f sources.File) error {
	if err := checkXZEnd(f); err != nil {
		return err
	}
	b := make([]byte, min(xzFilter, max(f.Size()-xzHead, 0)))
	if err := sources.ReadFull(f, b, xzHead); err != nil {
		return err
	}
	if len(b) < 2 || b[0] == 0 {
		return nil // no block
	}
	at := 2
	for _, flag := range []byte{0x40, 0x80} { // sizes of the block, before its filters
		if b[1]&flag == 0 {
			continue
		}
		for at < len(b) && b[at]&0x80 != 0 {
			at++
		}
		at++
	}
	switch {
	case at+3 > len(b):
		return millrace.Errorf(millrace.ErrDamaged, "decompress %s: the head of its first xz block is damaged; "+
			"copy it again", f.Name())
	case b[1]&3 != 0 || b[at] != xzLZMA2:
		return millrace.Errorf(millrace.ErrInvalid, "decompress %s: it has the xz filter %#x, and only LZMA2 is read; "+
			"compress it again without filters", f.Name(), b[at])
	}
	bits := b[at+2]
	if size := int64(2|bits&1) << (bits/2 + 11); bits > 40 || size > mostDictionary {
		return millrace.Errorf(millrace.ErrInvalid, "decompress %s: its xz dictionary has %d MiB, at most %d MiB are "+
			"read; compress it again with xz -9 at most", f.Name(), size>>20, mostDictionary>>20)
	}
	return nil
}

// checkXZEnd refuses a file that does not end with the footer of a stream.
func checkXZEnd(f sources.File) error {
	end := f.Size()
	b := make([]byte, xzHead)
	for end >= int64(len(b)) {
		if err := sources.ReadFull(f, b, end-int64(len(b))); err != nil {
			return err
		}
		if binary.LittleEndian.Uint32(b[8:]) != 0 { // streams are padded by four zeros at a time
			break
		}
		end -= 4
	}
	if string(b[10:]) != "YZ" || crc32.ChecksumIEEE(b[4:10]) != binary.LittleEndian.Uint32(b) {
		return millrace.Errorf(millrace.ErrDamaged, "decompress %s: it does not end with the footer of an xz file, so "+
			"it is cut off; copy it again", f.Name())
	}
	return nil
}

// NewXZ returns the unpacked bytes of a file that CheckXZ accepts. in has the bytes of the file. A panic of the library
// is an error.
func NewXZ(f sources.File, in io.Reader) (io.Reader, error) {
	r := &xzReader{f: f}
	err := sources.Fence(millrace.ErrDamaged, f.Name, func() (err error) {
		r.r, err = xz.NewReader(in)
		return err
	})
	return r, err
}

// xzReader reads a file of xz.
type xzReader struct {
	f sources.File
	r io.Reader
}

// Read implements io.Reader.
func (x *xzReader) Read(p []byte) (n int, err error) {
	err = sources.Fence(millrace.ErrDamaged, x.f.Name, func() error {
		n, err = x.r.Read(p)
		return err
	})
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("xz: %w", err)
	}
	return n, err
}
