package arrow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/pierrec/lz4/v4"
)

var errLZ4 = errors.New("its LZ4 frame has another size")

// The flags of the head of an LZ4 frame. See https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md.
const (
	lz4Magic        = 0x184D2204
	lz4Version      = 0x40
	lz4Independent  = 1 << 5 // no block refers to bytes of another
	lz4BlockSums    = 1 << 4
	lz4ContentSize  = 1 << 3
	lz4ContentSum   = 1 << 2
	lz4Dictionary   = 1 << 0
	lz4NotPacked    = 1 << 31 // of the size of a block
	lz4Window       = 64 << 10
	lz4MostBlock    = 4 << 20
	lz4SmallestHead = 7
)

// unpackLZ4 unpacks one LZ4 frame of size bytes. It never writes more than the capacity of out. The blocks are taken
// apart here: the library compares the checksum of a block with its unpacked bytes, the format with the packed ones.
func unpackLZ4(out, b []byte, size int) ([]byte, error) {
	flags, rest, err := lz4Head(b)
	if err != nil {
		return out, err
	}
	le := binary.LittleEndian
	sums := 0
	if flags&lz4BlockSums != 0 {
		sums = 4
	}
	for {
		if len(rest) < 4 {
			return out, errLZ4
		}
		n := le.Uint32(rest)
		if rest = rest[4:]; n == 0 {
			break
		}
		isPlain := n&lz4NotPacked != 0
		if n &^= lz4NotPacked; n > lz4MostBlock || int(n)+sums > len(rest) {
			return out, errLZ4
		}
		block := rest[:n]
		if sums > 0 && le.Uint32(rest[n:]) != xxh32(block) {
			return out, errors.New("the checksum of a block of its LZ4 frame differs")
		}
		rest = rest[int(n)+sums:]
		if out, err = lz4Block(out, block, size, isPlain, flags&lz4Independent != 0); err != nil {
			return out, err
		}
	}
	if flags&lz4ContentSum != 0 {
		if len(rest) < 4 || le.Uint32(rest) != xxh32(out) {
			return out, errors.New("the checksum of its LZ4 frame differs")
		}
		rest = rest[4:]
	}
	if len(rest) > 0 || len(out) != size {
		return out, errLZ4
	}
	return out, nil
}

// lz4Head reads the head of a frame.
func lz4Head(b []byte) (flags byte, rest []byte, err error) {
	if len(b) < lz4SmallestHead || binary.LittleEndian.Uint32(b) != lz4Magic {
		return 0, nil, errors.New("it begins with no LZ4 frame")
	}
	flags = b[4]
	if flags&0xc0 != lz4Version || flags&lz4Dictionary != 0 {
		return 0, nil, fmt.Errorf("its LZ4 frame has the flags %#x, which are not read", flags)
	}
	n := 6
	if flags&lz4ContentSize != 0 {
		n += 8
	}
	if len(b) <= n || b[n] != byte(xxh32(b[4:n])>>8) {
		return 0, nil, errors.New("the head of its LZ4 frame is damaged")
	}
	return flags, b[n+1:], nil
}

// lz4Block appends the content of a block. Behind out, size bytes in all have room.
func lz4Block(out, block []byte, size int, isPlain, isAlone bool) ([]byte, error) {
	from := len(out)
	if isPlain {
		if len(block) > size-from {
			return out, errLZ4
		}
		return append(out, block...), nil
	}
	var before []byte
	if !isAlone {
		before = out[max(0, from-lz4Window):]
	}
	n, err := lz4.UncompressBlockWithDict(block, out[from:size], before)
	if err != nil {
		return out, err
	}
	return out[:from+n], nil
}

// xxh32 returns the checksum of LZ4 frames: xxHash of 32 bits with the seed 0. See
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
func xxh32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	le, size := binary.LittleEndian, uint32(len(b))
	h := uint32(p5)
	if len(b) >= 16 {
		p := uint32(p1)
		v := [4]uint32{p + p2, p2, 0, -p}
		for ; len(b) >= 16; b = b[16:] {
			for i := range v {
				v[i] = bits.RotateLeft32(v[i]+le.Uint32(b[4*i:])*p2, 13) * p1
			}
		}
		h = 0
		for i, n := range [4]int{1, 7, 12, 18} {
			h += bits.RotateLeft32(v[i], n)
		}
	}
	h += size
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+le.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
