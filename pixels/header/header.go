// Package header reads the properties of an image that a plan needs from its first bytes: format, sides, orientation.
// It decodes no pixel and allocates nothing that an image claims.
//
//	header.go   Read: the first bytes decide the format, never a name
//	jpeg.go     ITU-T T.81, Annex B: the frame behind the application segments
//	png.go      PNG (Third Edition), sections 5 and 11
//	webp.go     RFC 9649
//	exif.go     the orientation in EXIF and XMP data, as Pillow's ImageOps.exif_transpose finds it
//	foreign.go  the names of formats that are not read
package header

import (
	"errors"
	"fmt"
	"io"
)

// Format is the format of an image file.
type Format string

// The formats that are read.
const (
	JPEG Format = "JPEG"
	PNG  Format = "PNG"
	WebP Format = "WebP"
)

// Image describes an image by its header.
type Image struct {
	Format      Format
	Width       int  // pixels, as stored: before the orientation is applied
	Height      int  // pixels, as stored
	Orientation int  // 1 to 8, as EXIF counts; 1: as stored
	Channels    int  // 1 grey, 2 grey with alpha, 3 colour, 4 colour with alpha or CMYK
	Bits        int  // of a sample: 1, 2, 4, 8 or 16
	Progressive bool // a JPEG whose coefficients are held as a whole while it is decoded, or an interlaced PNG
}

// Oriented returns width and height after the orientation is applied.
func (i Image) Oriented() (width, height int) {
	if i.Orientation >= 5 {
		return i.Height, i.Width
	}
	return i.Width, i.Height
}

// ErrUnread is the cause of every error of Read that is due to the image and not to its file.
var ErrUnread = errors.New("not a readable image")

type unread string

func (u unread) Error() string { return string(u) }
func (u unread) Unwrap() error { return ErrUnread }

func refuse(format string, args ...any) error { return unread(fmt.Sprintf(format, args...)) }

// mostSkipped bounds the bytes before the frame header of a JPEG: profiles and previews are at most some 64 KiB each.
const mostSkipped = 1 << 20

// Read reads the header of an image of a number of bytes. An error that is due to the image wraps ErrUnread. Its text
// is the end of a sentence that begins with the image: "is a TIFF; JPEG, PNG and WebP are read".
func Read(r io.ReaderAt, size int64) (Image, error) {
	var first [magic]byte
	n, err := r.ReadAt(first[:min(size, magic)], 0)
	if err != nil && !(errors.Is(err, io.EOF) && int64(n) == min(size, magic)) {
		return Image{}, err
	}
	f := &file{r: r, size: size}
	out := Image{Orientation: 1}
	switch b := first[:n]; {
	case n == 0:
		return Image{}, refuse("has no bytes")
	case hasPrefix(b, "\xff\xd8\xff"):
		out.Format, err = JPEG, f.jpeg(&out)
	case hasPrefix(b, "\x89PNG\r\n\x1a\n"):
		out.Format, err = PNG, f.png(&out)
	case hasPrefix(b, "RIFF") && n >= 12 && string(b[8:12]) == "WEBP":
		out.Format, err = WebP, f.webp(&out)
	default:
		return Image{}, refuse("is %s; JPEG, PNG and WebP are read", foreign(b))
	}
	if err == nil && (out.Width == 0 || out.Height == 0) {
		err = refuse("has no pixels: it is %d×%d", out.Width, out.Height)
	}
	if err != nil {
		return Image{}, err
	}
	return out, nil
}

// file reads parts of an image.
type file struct {
	r    io.ReaderAt
	size int64
}

// at reads n bytes at a place. It refuses an image that ends before.
func (f *file) at(place int64, n int) ([]byte, error) {
	if place+int64(n) > f.size {
		return nil, f.short()
	}
	b := make([]byte, n)
	return b, f.fill(b, place)
}

func (f *file) short() error { return refuse("ends within its header, after %d bytes", f.size) }

func (f *file) fill(b []byte, place int64) error {
	if place+int64(len(b)) > f.size {
		return f.short()
	}
	if n, err := f.r.ReadAt(b, place); n < len(b) {
		return err
	}
	return nil
}

func hasPrefix(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix
}
