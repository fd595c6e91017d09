package header

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func read(b []byte) (Image, error) { return Read(bytes.NewReader(b), int64(len(b))) }

func images(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, ending := range []string{"*.jpg", "*.png", "*.webp"} {
		paths, err := filepath.Glob(filepath.Join("testdata", ending))
		if err != nil || len(paths) == 0 {
			t.Fatal(err, paths)
		}
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			out[filepath.Base(path)] = b
		}
	}
	return out
}

// TestPillowSaysTheSame compares sides and orientation with Pillow's and its ImageOps.exif_transpose.
func TestPillowSaysTheSame(t *testing.T) {
	text, err := os.ReadFile("testdata/images.json")
	if err != nil {
		t.Fatal(err)
	}
	var said map[string]struct {
		Format                     string
		Width, Height, Orientation int
		Oriented                   [2]int
	}
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	all := images(t)
	if len(said) != len(all) {
		t.Errorf("images.json has %d images, the directory %d", len(said), len(all))
	}
	for name, want := range said {
		got, err := read(all[name])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		width, height := got.Oriented()
		if !strings.EqualFold(string(got.Format), want.Format) ||
			got.Width != want.Width || got.Height != want.Height || got.Orientation != want.Orientation ||
			width != want.Oriented[0] || height != want.Oriented[1] {
			t.Errorf("%s: got %+v, Pillow says %+v", name, got, want)
		}
	}
}

// TestKinds checks what Pillow's answer does not show.
func TestKinds(t *testing.T) {
	all := images(t)
	for _, want := range []struct {
		name        string
		channels    int
		bits        int
		progressive bool
	}{
		{"plain.jpg", 3, 8, false}, {"progressive.jpg", 3, 8, true}, {"grey.jpg", 1, 8, false},
		{"cmyk.jpg", 4, 8, false},
		{"1.png", 1, 1, false}, {"l.png", 1, 8, false}, {"la.png", 2, 8, false}, {"p.png", 3, 8, false},
		{"transparent.png", 4, 8, false}, {"rgba.png", 4, 8, false}, {"i16.png", 1, 16, false},
		{"lossy.webp", 3, 8, false}, {"lossy-alpha.webp", 4, 8, false}, {"lossless-alpha.webp", 4, 8, false},
	} {
		got, err := read(all[want.name])
		if err != nil || got.Channels != want.channels || got.Bits != want.bits || got.Progressive != want.progressive {
			t.Errorf("%s: got %+v, %v; want %+v", want.name, got, err, want)
		}
	}
}

// TestRefusals checks that the error names the format of a file that is no readable image.
func TestRefusals(t *testing.T) {
	all := images(t)
	edit := func(name string, at int, with string) string {
		b := bytes.Clone(all[name])
		copy(b[at:], with)
		return string(b)
	}
	frame := bytes.Index(all["plain.jpg"], []byte{0xff, 0xc0})
	head, rest := string(all["l.png"][:33]), string(all["l.png"][33:])
	moving := head + "\x00\x00\x00\x08acTL\x00\x00\x00\x05\x00\x00\x00\x00crc." + rest
	profile := "\xff\xe2\xff\xff" + strings.Repeat("\x00", 65533)
	far := "\xff\xd8" + strings.Repeat(profile, 17) + string(all["plain.jpg"][2:])
	for _, c := range []struct{ name, content, want string }{
		{"nothing", "", "has no bytes"},
		{"gif", "GIF89a\x01\x00\x01\x00", "is a GIF; JPEG, PNG and WebP are read"},
		{"tiff", "II*\x00\x08\x00\x00\x00", "is a TIFF"},
		{"big tiff", "MM\x00+\x00\x08\x00\x00", "is a TIFF"},
		{"avif", "\x00\x00\x00\x20ftypavif\x00\x00\x00\x00", "is an AVIF"},
		{"heic", "\x00\x00\x00\x18ftypheic\x00\x00\x00\x00", "is a HEIC"},
		{"mp4", "\x00\x00\x00\x18ftypisom\x00\x00\x00\x00", "is an MP4 video"},
		{"webm", "\x1a\x45\xdf\xa3\x01\x00", "is a WebM or Matroska video"},
		{"jxl", "\xff\x0a\x00\x00", "is a JPEG XL"},
		{"html", "\n <!DOCTYPE html><html>", "is HTML or XML"},
		{"json", `{"error": "not found"}`, "is JSON"},
		{"address", "https://example.com/a.jpg", "is a web address; download the images first"},
		{"text", "no such image", "is text"},
		{"sound", "RIFF\x24\x00\x00\x00WAVEfmt ", `is a RIFF file of "WAVE"`},
		{"noise", "\x01\x02\x03\x04", "is no image that is known here (it begins with 01 02 03 04)"},
		{"12 bits", edit("plain.jpg", frame+4, "\x0c"), "has 12 bits a sample"},
		{"no height", edit("plain.jpg", frame+5, "\x00\x00"), "states its height behind its pixels"},
		{"lossless", edit("plain.jpg", frame+1, "\xc3"), "is a lossless or hierarchical JPEG"},
		{"two components", edit("plain.jpg", frame+9, "\x02"), "has 2 colour components"},
		{"no frame", string(all["plain.jpg"][:2]) + "\xff\xda\x00\x08", "has no frame header before its pixels"},
		{"far frame", far, "has no frame header in its first 1048576 bytes"},
		{"short segment", "\xff\xd8\xff\xe0\x00\x01", "a segment at byte 4 has a length of 1"},
		{"moving png", moving, "has 5 frames"},
		{"flat png", edit("l.png", 16, "\x00\x00\x00\x00"), "has no pixels: it is 0×9"},
		{"huge png", edit("l.png", 16, "\xff\xff\xff\xff"), "it claims sides of 4294967295×9"},
		{"moving webp", edit("exif.webp", 20, "\x02"), "has several frames"},
		{"other canvas", edit("exif.webp", 24, "\x01"), "its canvas is 2×23 and its frame 37×23"},
		{"cut webp", string(all["lossy.webp"][:50]), "ends after 50 of"},
	} {
		_, err := read([]byte(c.content))
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrUnread) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

// TestEveryPrefix checks that a cut file has the same header or is refused. A PNG must have its last chunk, because
// metadata may stand behind the pixels.
func TestEveryPrefix(t *testing.T) {
	for name, b := range images(t) {
		whole, err := read(b)
		if err != nil {
			t.Fatal(err)
		}
		step := max(1, len(b)/300)
		for n := 0; n < len(b); n += step {
			got, err := read(b[:n])
			switch {
			case err != nil && !errors.Is(err, ErrUnread):
				t.Fatalf("%s, %d bytes: %v", name, n, err)
			case err == nil && got != whole:
				t.Fatalf("%s, %d bytes: got %+v, want %+v", name, n, got, whole)
			case err == nil && whole.Format != JPEG:
				t.Fatalf("%s: %d of %d bytes are no whole %s", name, n, len(b), whole.Format)
			}
		}
	}
}

// TestFileErrors checks that an error of the file is no fault of the image.
func TestFileErrors(t *testing.T) {
	b := images(t)["plain.jpg"]
	if _, err := Read(bytes.NewReader(b[:40]), int64(len(b))); err == nil || errors.Is(err, ErrUnread) {
		t.Errorf("got %v", err)
	}
}

func FuzzRead(f *testing.F) {
	for _, b := range images(f) {
		f.Add(b[:min(len(b), 4096)])
	}
	f.Add(binary.BigEndian.AppendUint32([]byte("\x89PNG\r\n\x1a\n"), 13))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := read(b)
		if err != nil && !errors.Is(err, ErrUnread) {
			t.Fatal(err)
		}
		if err == nil && (got.Width <= 0 || got.Height <= 0 || got.Orientation < 1 || got.Orientation > 8) {
			t.Fatalf("%+v", got)
		}
	})
}
