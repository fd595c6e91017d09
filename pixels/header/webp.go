package header

import "encoding/binary"

// The flags of a VP8X chunk.
const (
	webpMoves = 0x02
	webpAlpha = 0x10
)

// webp reads the chunks of a WebP. The frame's own header decides the sides, and the canvas must agree with it.
func (f *file) webp(out *Image) error {
	var exif, xmp []byte
	out.Bits, out.Channels = 8, 3
	head, err := f.at(4, 4)
	if err != nil {
		return err
	}
	end := 8 + int64(binary.LittleEndian.Uint32(head))
	if end > f.size {
		return refuse("ends after %d of %d bytes", f.size, end)
	}
	canvas, framed := [2]int{}, false
	for place := int64(12); place+8 <= end; {
		chunk, err := f.at(place, 8)
		if err != nil {
			return err
		}
		kind, n := string(chunk[:4]), int64(binary.LittleEndian.Uint32(chunk[4:]))
		if place+8+n > end {
			return refuse("is damaged: a chunk at byte %d ends behind the file", place)
		}
		switch kind {
		case "VP8X":
			b, err := f.at(place+8, 10)
			if err != nil {
				return err
			}
			if b[0]&webpMoves != 0 {
				return refuse("has several frames; an image with one is read")
			}
			if b[0]&webpAlpha != 0 {
				out.Channels = 4
			}
			canvas = [2]int{1 + uint24(b[4:]), 1 + uint24(b[7:])}
		case "VP8 ", "VP8L":
			if !framed {
				if err := f.webpFrame(kind, place+8, out); err != nil {
					return err
				}
				framed = true
			}
		case "EXIF", "XMP ":
			if n > mostMetadata {
				break
			}
			content, err := f.at(place+8, int(n))
			if err != nil {
				return err
			}
			if kind == "EXIF" {
				exif = content
			} else {
				xmp = content
			}
		}
		place += 8 + n + n%2
	}
	switch {
	case !framed:
		return refuse("has no frame")
	case canvas != [2]int{} && canvas != [2]int{out.Width, out.Height}:
		return refuse("is damaged: its canvas is %d×%d and its frame %d×%d",
			canvas[0], canvas[1], out.Width, out.Height)
	}
	out.Orientation = orientation(exif, xmp)
	return nil
}

// webpFrame reads the header of a lossy or a lossless frame.
func (f *file) webpFrame(kind string, place int64, out *Image) error {
	b, err := f.at(place, 10)
	if err != nil {
		return err
	}
	if kind == "VP8L" {
		if b[0] != 0x2f {
			return refuse("is damaged: its frame begins with %#x", b[0])
		}
		bits := binary.LittleEndian.Uint32(b[1:])
		out.Width, out.Height = 1+int(bits&0x3fff), 1+int(bits>>14&0x3fff)
		if bits>>28&1 == 1 {
			out.Channels = 4
		}
		return nil
	}
	if b[0]&1 != 0 || b[3] != 0x9d || b[4] != 0x01 || b[5] != 0x2a {
		return refuse("is damaged: its frame is no key frame")
	}
	out.Width = int(binary.LittleEndian.Uint16(b[6:]) & 0x3fff)
	out.Height = int(binary.LittleEndian.Uint16(b[8:]) & 0x3fff)
	return nil
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
