package rows

import (
	"encoding/binary"

	"millrace/sources"
)

// bgzfHead is a gzip member's fixed head together with the length of its extra field. BGZF puts the member's own length
// into the subfield BC there, so members are found without decompressing. See section 4.1 of
// https://samtools.github.io/hts-specs/SAMv1.pdf.
const (
	bgzfHead   = 12
	bgzfExtra  = 4 // FLG of a member that has an extra field only
	bgzfMember = 64 << 10
)

// bgzfPoints returns the members of a BGZF file, or nil if any part of the file is not BGZF.
func bgzfPoints(f sources.File) ([]point, error) {
	var points []point
	for off := int64(0); off < f.Size(); {
		size, err := bgzfMemberAt(f, off)
		if err != nil || size == 0 {
			return nil, err
		}
		points = append(points, point{packed: off, size: size})
		off += size
	}
	return points, nil
}

// bgzfMemberAt returns the number of bytes of the member at off, 0 if it is not a whole BGZF member.
func bgzfMemberAt(f sources.File, off int64) (size int64, err error) {
	var head [bgzfHead]byte
	if off+bgzfHead > f.Size() {
		return 0, nil
	}
	if err := sources.ReadFull(f, head[:], off); err != nil {
		return 0, err
	}
	if head[0] != 0x1f || head[1] != 0x8b || head[2] != 8 || head[3] != bgzfExtra {
		return 0, nil
	}
	extra := make([]byte, binary.LittleEndian.Uint16(head[10:]))
	if off+bgzfHead+int64(len(extra)) > f.Size() {
		return 0, nil
	}
	if err := sources.ReadFull(f, extra, off+bgzfHead); err != nil {
		return 0, err
	}
	size = bgzfSize(extra)
	if size < bgzfHead+int64(len(extra))+8 || off+size > f.Size() {
		return 0, nil
	}
	var tail [4]byte
	if err := sources.ReadFull(f, tail[:], off+size-4); err != nil {
		return 0, err
	}
	if binary.LittleEndian.Uint32(tail[:]) > bgzfMember {
		return 0, nil
	}
	return size, nil
}

// bgzfSize returns the member's length from the subfield BC, 0 without one.
func bgzfSize(extra []byte) int64 {
	for len(extra) >= 4 {
		n := int(binary.LittleEndian.Uint16(extra[2:]))
		if len(extra) < 4+n {
			return 0
		}
		if extra[0] == 'B' && extra[1] == 'C' && n == 2 {
			return int64(binary.LittleEndian.Uint16(extra[4:])) + 1
		}
		extra = extra[4+n:]
	}
	return 0
}
