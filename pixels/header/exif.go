package header

import (
	"bytes"
	"encoding/binary"
	"regexp"
)

// tagOrientation is the tag of the orientation in EXIF data.
const tagOrientation = 0x0112

var xmpOrientation = regexp.MustCompile(`tiff:Orientation(?:="|>)([0-9])`)

// orientation returns the orientation of EXIF data, or, if they have none, of XMP data. Data that cannot be read, and a
// value that EXIF does not know, leave the image as it is stored.
func orientation(exif, xmp []byte) int {
	n, found := exifOrientation(exif)
	if !found {
		if match := xmpOrientation.FindSubmatch(xmp); match != nil {
			n = int(match[1][0] - '0')
		}
	}
	if n < 1 || n > 8 {
		return 1
	}
	return n
}

// exifOrientation returns the orientation that the first directory of EXIF data states (TIFF 6.0, section 2).
func exifOrientation(b []byte) (n int, found bool) {
	for bytes.HasPrefix(b, []byte("Exif\x00\x00")) {
		b = b[6:]
	}
	var order binary.ByteOrder = binary.LittleEndian
	switch {
	case hasPrefix(b, "MM\x00*"):
		order = binary.BigEndian
	case !hasPrefix(b, "II*\x00"):
		return 0, false
	}
	if len(b) < 8 {
		return 0, false
	}
	place := int64(order.Uint32(b[4:]))
	if place+2 > int64(len(b)) {
		return 0, false
	}
	entries := b[place+2:]
	for range order.Uint16(b[place:]) {
		if len(entries) < 12 {
			break
		}
		tag, kind, count := order.Uint16(entries), order.Uint16(entries[2:]), order.Uint32(entries[4:])
		if value := entries[8:12]; tag == tagOrientation && count == 1 {
			switch kind {
			case 3, 8: // 16 bits, the usual type
				return int(order.Uint16(value)), true
			case 4, 9: // 32 bits; Pillow takes no other types
				return int(min(order.Uint32(value), 9)), true
			}
		}
		entries = entries[12:]
	}
	return 0, false
}
