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

// The layout of an xz file: https://tukaani.org/xz/xz-file-format.txt. A stream has a head, blocks, an index of the
// blocks and a foot.
const (
	xzHead  = 12 // bytes of a stream's head, and of its foot
	xzLZMA2 = 0x21
	xzBlock = 1 << 10  // bytes of the largest head of a block
	xzIndex = 16 << 20 // bytes of the largest index: a million blocks

	leastXZBlock = 5 // bytes, without padding
)

// CheckXZ refuses a file with a block whose dictionary is too large, or with filters of programs, and a file that does
// not consist of whole streams. The library takes memory for any dictionary, and takes a file that is cut behind a
// block for a whole one. CheckXZ finds the blocks by the indexes.
func CheckXZ(f sources.File) error {
	end := f.Size()
	for last := true; end > 0 || last; last = false {
		var err error
		if end, err = checkXZStream(f, end); err != nil {
			return err
		}
	}
	return nil
}

// damagedXZ returns the error of a file that does not consist of whole streams.
func damagedXZ(f sources.File, what string) error {
	return millrace.Errorf(millrace.ErrDamaged, "decompress %s: %s; copy it again", f.Name(), what)
}

// checkXZStream checks the stream that ends at a place, or before the zeros there, and returns its beginning.
func checkXZStream(f sources.File, end int64) (begin int64, err error) {
	cut := damagedXZ(f, "it does not end with the footer of an xz file, so it is cut off")
	b := make([]byte, xzHead)
	for {
		if end < 2*xzHead {
			return 0, cut
		}
		if err := sources.ReadFull(f, b, end-xzHead); err != nil {
			return 0, err
		}
		if binary.LittleEndian.Uint32(b[8:]) != 0 { // streams are padded by four zeros at a time
			break
		}
		end -= 4
	}
	if string(b[10:]) != "YZ" || crc32.ChecksumIEEE(b[4:10]) != binary.LittleEndian.Uint32(b) {
		return 0, cut
	}
	size := (int64(binary.LittleEndian.Uint32(b[4:])) + 1) * 4
	at := end - xzHead - size
	if at < xzHead {
		return 0, cut
	}
	if size > xzIndex {
		return 0, millrace.Errorf(millrace.ErrInvalid, "decompress %s: its xz index has %d MiB, at most %d MiB are "+
			"read; compress it again with larger blocks", f.Name(), size>>20, xzIndex>>20)
	}
	blocks, err := readXZIndex(f, at, int(size))
	if err != nil {
		return 0, err
	}
	for i := len(blocks) - 1; i >= 0; i-- {
		if blocks[i] > at-xzHead {
			return 0, damagedXZ(f, "its xz index does not fit its blocks")
		}
		at -= blocks[i]
		if err := checkXZBlock(f, at); err != nil {
			return 0, err
		}
	}
	return at - xzHead, nil
}

// readXZIndex returns the bytes of each block of a stream, with its padding.
func readXZIndex(f sources.File, at int64, size int) (blocks []int64, err error) {
	damaged := damagedXZ(f, "its xz index is damaged")
	b := make([]byte, size)
	if err := sources.ReadFull(f, b, at); err != nil {
		return nil, err
	}
	body := b[:size-4]
	if body[0] != 0 || crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(b[size-4:]) {
		return nil, damaged
	}
	rest := body[1:]
	next := func() (v uint64, ok bool) {
		v, n := binary.Uvarint(rest) // as the format's integers, which have nine bytes at most
		if n <= 0 || v > 1<<62 {
			return 0, false
		}
		rest = rest[n:]
		return v, true
	}
	count, ok := next()
	if !ok || count > uint64(len(rest))/2 {
		return nil, damaged
	}
	for range count {
		packed, ok := next()
		if _, too := next(); !ok || !too || packed < leastXZBlock {
			return nil, damaged
		}
		blocks = append(blocks, int64(packed+3)&^3)
	}
	return blocks, nil
}

// checkXZBlock refuses the block at a place for its filters or its dictionary.
func checkXZBlock(f sources.File, begin int64) error {
	b := make([]byte, min(xzBlock, f.Size()-begin))
	if err := sources.ReadFull(f, b, begin); err != nil {
		return err
	}
	size := (int(b[0]) + 1) * 4
	if b[0] == 0 || size > len(b) {
		return damagedXZ(f, "its xz index does not fit its blocks")
	}
	if b = b[:size]; crc32.ChecksumIEEE(b[:size-4]) != binary.LittleEndian.Uint32(b[size-4:]) {
		return damagedXZ(f, "the head of an xz block is damaged")
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
		return damagedXZ(f, "the head of an xz block is damaged")
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
