package rows

import (
	"encoding/binary"
	"errors"
	"fmt"

	"millrace/sources"
)

// The frame layout of RFC 8878, section 3.1 (https://www.rfc-editor.org/rfc/rfc8878).
const (
	zstdMagic     = 0xFD2FB528
	skippableMask = 0xFFFFFFF0
	skippable     = 0x184D2A50
	zstdBlock     = 128 << 10 // most uncompressed bytes of a block
)

// zstdWalk follows the structure of a zstd file without decompressing it. Its caller passes the few bytes that it wants
// and skips the number that see returns. It is needed because the decoder takes a file that was cut inside a frame's
// magic for a whole one.
type zstdWalk struct {
	part        zstdPart
	want        int
	windowBytes int64
	summed      bool  // a checksum follows the last block
	content     int64 // bytes that the frame declares, -1 if it declares none
	most        int64 // most bytes that the frame's blocks so far can hold
	blocks      int64 // bytes of the frame's blocks in the file
	data        bool  // the frame just ended holds data: it was not skippable
}

type zstdPart int

const (
	atMagic zstdPart = iota // between two frames
	atSkippable
	atDescriptor
	atHeader
	atBlock
)

func newZstdWalk() *zstdWalk { return &zstdWalk{part: atMagic, want: 4} }

// between reports whether a file may end here.
func (z *zstdWalk) between() bool { return z.part == atMagic }

// see takes the wanted bytes and returns the number of bytes to skip before the next. After -1, the caller passes the
// same bytes again, with the bytes that follow.
func (z *zstdWalk) see(b []byte) (skip int64, err error) {
	switch z.part {
	case atMagic:
		return 0, z.seeMagic(binary.LittleEndian.Uint32(b))
	case atSkippable:
		z.data = false
		z.next(atMagic, 4)
		return int64(binary.LittleEndian.Uint32(b)), nil
	case atDescriptor:
		// The header's first byte is the descriptor, which decides the header's length. The whole header comes next.
		z.next(atHeader, headerLen(b[0]))
		return -1, nil
	case atHeader:
		return 0, z.seeHeader(b)
	}
	return z.seeBlock(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16)
}

func (z *zstdWalk) next(part zstdPart, want int) { z.part, z.want = part, want }

func (z *zstdWalk) seeMagic(magic uint32) error {
	switch {
	case magic == zstdMagic:
		z.next(atDescriptor, 1)
	case magic&skippableMask == skippable:
		z.next(atSkippable, 4)
	default:
		return errors.New("no zstd frame begins here")
	}
	return nil
}

func headerLen(descriptor byte) int {
	n := 1
	single := descriptor&0x20 != 0
	if !single {
		n++
	}
	n += [4]int{0, 1, 2, 4}[descriptor&3]
	return n + contentLen(descriptor)
}

func contentLen(descriptor byte) int {
	if descriptor>>6 == 0 && descriptor&0x20 == 0 {
		return 0
	}
	return 1 << (descriptor >> 6)
}

func (z *zstdWalk) seeHeader(b []byte) error {
	d := b[0]
	if d&8 != 0 {
		return errors.New("reserved bit set in a zstd frame header")
	}
	z.content, z.most, z.blocks = -1, 0, 0
	z.summed = d&4 != 0
	if n := contentLen(d); n > 0 {
		var field [8]byte
		copy(field[:], b[len(b)-n:])
		v := binary.LittleEndian.Uint64(field[:])
		if n == 2 {
			v += 256
		}
		if v > 1<<62 {
			return fmt.Errorf("a zstd frame declares %d bytes", v)
		}
		z.content = int64(v)
	}
	z.windowBytes = z.content
	if d&0x20 == 0 {
		base := int64(1) << (10 + b[1]>>3)
		z.windowBytes = base + base/8*int64(b[1]&7)
	}
	if z.windowBytes > mostWindow {
		return &windowError{z.windowBytes}
	}
	z.next(atBlock, 3)
	return nil
}

func (z *zstdWalk) seeBlock(h uint32) (skip int64, err error) {
	size := int64(h >> 3)
	skip = size
	switch h >> 1 & 3 {
	case 0:
		z.most += size
	case 1:
		z.most += size
		skip = 1
	case 2:
		z.most += min(max(z.windowBytes, 1<<10), zstdBlock)
	default:
		return 0, errors.New("reserved block type in a zstd frame")
	}
	if size > zstdBlock {
		return 0, errors.New("zstd block of more than 128 KiB")
	}
	if h&1 != 0 {
		if z.summed {
			skip += 4
		}
		z.data = true
		z.next(atMagic, 4)
	}
	z.blocks += 3 + skip
	return skip, nil
}

// fits reports whether the frame so far is small enough for a restart point. See frameBytes.
func (z *zstdWalk) fits() bool {
	if z.content >= 0 {
		return z.content <= frameBytes && z.blocks <= 2*frameBytes
	}
	return z.most <= frameBytes && z.blocks <= 2*frameBytes
}

// zstdPoints returns the frames of a file. It returns nil as soon as one is too large to restart from.
func zstdPoints(f sources.File) ([]point, error) {
	z := newZstdWalk()
	var points []point
	var b [16]byte
	start := int64(0)
	for off := int64(0); off < f.Size() || !z.between(); {
		if z.between() {
			start, z.data = off, false
		}
		if err := sources.ReadFull(f, b[:z.want], off); err != nil {
			return nil, err
		}
		off += int64(z.want)
		skip, err := z.see(b[:z.want])
		if err != nil {
			return nil, damaged(f, off, err)
		}
		off += skip
		if off > f.Size() {
			return nil, damaged(f, f.Size(),
				fmt.Errorf("the file ends inside a zstd frame that begins at byte %d", start))
		}
		if z.part == atBlock || z.data {
			if !z.fits() {
				return nil, nil
			}
		}
		if z.between() && z.data {
			points = append(points, point{packed: start, size: off - start})
			z.data = false
		}
	}
	return points, nil
}
