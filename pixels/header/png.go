package header

import (
	"bytes"
	"encoding/binary"
)

// The longest metadata of a PNG or WebP that is read for an orientation. Longer data is taken to have none.
const mostMetadata = 1 << 20

// colours are the numbers of channels by the colour type of a PNG. A palette has 3; a tRNS chunk adds alpha.
var colours = map[byte]int{0: 1, 2: 3, 3: 3, 4: 2, 6: 4}

// png reads all chunks of a PNG: metadata may follow the pixels.
func (f *file) png(out *Image) error {
	head, err := f.at(8, 25)
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint32(head) != 13 || string(head[4:8]) != "IHDR" {
		return refuse("is damaged: it does not begin with an IHDR chunk")
	}
	width, height := binary.BigEndian.Uint32(head[8:]), binary.BigEndian.Uint32(head[12:])
	if width > 1<<31-1 || height > 1<<31-1 {
		return refuse("is damaged: it claims sides of %d×%d", width, height)
	}
	out.Width, out.Height, out.Bits = int(width), int(height), int(head[16])
	channels, found := colours[head[17]]
	if !found {
		return refuse("is damaged: its colour type is %d", head[17])
	}
	out.Channels, out.Progressive = channels, head[20] == 1
	var exif, xmp []byte
	for place := int64(8 + 25); place < f.size; {
		chunk, err := f.at(place, 12) // a chunk without content has 12 bytes
		if err != nil {
			return err
		}
		n, kind := int64(binary.BigEndian.Uint32(chunk)), string(chunk[4:8])
		switch {
		case n > 1<<31-1:
			return refuse("is damaged: a chunk at byte %d has a length of %d", place, n)
		case kind == "IEND":
			out.Orientation = orientation(exif, xmp)
			return nil
		case kind == "acTL":
			moving, err := f.at(place+8, 4)
			if err != nil {
				return err
			}
			if n := binary.BigEndian.Uint32(moving); n > 1 {
				return refuse("has %d frames; an image with one is read", n)
			}
		case kind == "tRNS" && out.Channels%2 == 1:
			out.Channels++
		case (kind == "eXIf" || kind == "iTXt") && n <= mostMetadata:
			content, err := f.at(place+8, int(n))
			if err != nil {
				return err
			}
			if kind == "eXIf" {
				exif = content
			} else if text, found := bytes.CutPrefix(content, []byte("XML:com.adobe.xmp\x00\x00\x00")); found {
				xmp = text
			}
		}
		place += 8 + n + 4
	}
	return refuse("ends before its last chunk, after %d bytes", f.size)
}
