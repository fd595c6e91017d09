package look

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"millrace/pixels/header"
	"millrace/sources/values"
)

// Images describes the images that a field holds, by their headers.
type Images struct {
	Read    int      `json:"read"`    // images whose header was read
	Formats []string `json:"formats"` // JPEG, PNG or WebP; sorted
	Width   *Span    `json:"width"`   // pixels, after the orientation is applied
	Height  *Span    `json:"height"`  // pixels, after the orientation is applied
	Turned  int      `json:"turned"`  // images that their orientation turns or mirrors
	Unread  []string `json:"unread"`  // the first images that cannot be read, and why
	unread  int
}

// add looks at one more value of a field: an image is binary, an object with `bytes`, or in a list of these.
func (x *Images) add(v any) {
	switch v := v.(type) {
	case []byte:
		x.read(bytes.NewReader(v), int64(len(v)))
	case values.Object:
		if content, found := v.Get("bytes"); found {
			if b, ok := content.([]byte); ok {
				x.add(b)
			}
		}
	case []any:
		for _, element := range v {
			if _, nested := element.([]any); !nested {
				x.add(element)
			}
		}
	}
}

func (x *Images) read(r io.ReaderAt, size int64) {
	image, err := header.Read(r, size)
	if err != nil {
		if x.unread++; len(x.Unread) < mostBad {
			x.Unread = append(x.Unread, fmt.Sprintf("image %d %s", x.Read+x.unread, err))
		}
		return
	}
	x.Read++
	if format := string(image.Format); !slices.Contains(x.Formats, format) {
		x.Formats = append(x.Formats, format)
		slices.Sort(x.Formats)
	}
	width, height := image.Oriented()
	x.Width, x.Height = x.Width.add(width), x.Height.add(height)
	if image.Orientation > 1 {
		x.Turned++
	}
}

// String describes the images in words, as `JPEG 640…1600 × 480…1200, 3 of 1000 turned by EXIF`.
func (x *Images) String() string {
	out := fmt.Sprintf("%s %s × %s", strings.Join(x.Formats, ", "), x.Width, x.Height)
	if x.Turned > 0 {
		out += fmt.Sprintf(", %d of %d turned by EXIF", x.Turned, x.Read)
	}
	if x.unread > 0 {
		out += fmt.Sprintf(", %d unreadable", x.unread)
	}
	return out
}
