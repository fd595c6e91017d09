package header

import (
	"bytes"
	"encoding/binary"
)

// The markers of a JPEG that have a meaning here.
const (
	startOfScan  = 0xda
	endOfImage   = 0xd9
	application1 = 0xe1
)

// frames are the kinds of frames, by their markers. All other frames are lossless or hierarchical.
var frames = map[byte]struct{ progressive, unread bool }{
	0xc0: {}, 0xc1: {}, 0xc9: {}, // baseline, extended, with arithmetic coding
	0xc2: {progressive: true}, 0xca: {progressive: true},
	0xc3: {unread: true}, 0xc5: {unread: true}, 0xc6: {unread: true}, 0xc7: {unread: true},
	0xcb: {unread: true}, 0xcd: {unread: true}, 0xce: {unread: true}, 0xcf: {unread: true},
}

// jpeg reads the segments of a JPEG up to its frame header, and the orientation from segments before its first scan.
func (f *file) jpeg(out *Image) error {
	var exif, xmp []byte
	for place, framed := int64(2), false; ; {
		marker, err := f.marker(&place)
		switch {
		case err != nil:
			return err
		case marker == startOfScan && framed:
			out.Orientation = orientation(exif, xmp)
			return nil
		case marker == startOfScan || marker == endOfImage:
			return refuse("has no frame header before its pixels")
		case marker == 0x01 || marker >= 0xd0 && marker <= 0xd7: // they have no length
			continue
		case place > mostSkipped && !framed:
			return refuse("has no frame header in its first %d bytes", mostSkipped)
		}
		length, err := f.at(place, 2)
		if err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint16(length))
		if n < 2 {
			return refuse("is damaged: a segment at byte %d has a length of %d", place, n)
		}
		if frame, found := frames[marker]; found {
			if framed {
				return refuse("has two frame headers")
			}
			if frame.unread {
				return refuse("is a lossless or hierarchical JPEG; baseline and progressive JPEG are read")
			}
			out.Progressive, framed = frame.progressive, true
			if err := f.frame(place+2, out); err != nil {
				return err
			}
		}
		if marker == application1 {
			content, err := f.at(place+2, n-2)
			if err != nil {
				return err
			}
			if rest, found := bytes.CutPrefix(content, []byte("Exif\x00\x00")); found {
				exif = append(exif, rest...) // Pillow, too, joins the parts of longer data
			} else if rest, found := bytes.CutPrefix(content, []byte("http://ns.adobe.com/xap/1.0/\x00")); found {
				xmp = rest
			}
		}
		place += int64(n)
	}
}

// marker returns the marker at a place and moves the place behind it. Any number of 0xff may precede a marker.
func (f *file) marker(place *int64) (byte, error) {
	b, err := f.at(*place, 2)
	if err != nil {
		return 0, err
	}
	if b[0] != 0xff {
		return 0, refuse("is damaged: byte %d is no marker of a JPEG", *place)
	}
	for *place += 2; b[1] == 0xff; *place++ {
		if err := f.fill(b[1:], *place); err != nil {
			return 0, err
		}
	}
	return b[1], nil
}

// frame reads a frame header.
func (f *file) frame(place int64, out *Image) error {
	b, err := f.at(place, 6)
	if err != nil {
		return err
	}
	out.Bits = int(b[0])
	out.Height, out.Width = int(binary.BigEndian.Uint16(b[1:])), int(binary.BigEndian.Uint16(b[3:]))
	out.Channels = int(b[5])
	switch {
	case out.Bits != 8:
		return refuse("has %d bits a sample; JPEG with 8 is read", out.Bits)
	case out.Height == 0:
		return refuse("states its height behind its pixels, which is not read")
	case out.Channels != 1 && out.Channels != 3 && out.Channels != 4:
		return refuse("has %d colour components; JPEG with 1, 3 or 4 is read", out.Channels)
	}
	return nil
}
