package header

import (
	"bytes"
	"fmt"
)

const magic = 32 // bytes that identify a format

// foreigners are the beginnings of files that people store as images and that are not read.
var foreigners = []struct{ prefix, name string }{
	{"GIF8", "a GIF"},
	{"II*\x00", "a TIFF"},
	{"MM\x00*", "a TIFF"},
	{"II+\x00", "a TIFF"},
	{"MM\x00+", "a TIFF"},
	{"BM", "a BMP"},
	{"\x00\x00\x01\x00", "an icon"},
	{"\xff\x0a", "a JPEG XL"},
	{"\x00\x00\x00\x0cJXL ", "a JPEG XL"},
	{"\x00\x00\x00\x0cjP  ", "a JPEG 2000"},
	{"\xff\x4f\xff\x51", "a JPEG 2000"},
	{"8BPS", "a Photoshop file"},
	{"%PDF", "a PDF"},
	{"\x1a\x45\xdf\xa3", "a WebM or Matroska video"},
	{"OggS", "an Ogg file"},
	{"ID3", "an MP3"},
	{"fLaC", "a FLAC"},
	{"\x1f\x8b", "packed with gzip"},
	{"PK\x03\x04", "a ZIP archive"},
	{"http://", "a web address; download the images first"},
	{"https://", "a web address; download the images first"},
}

// brands are the major brands of ISO base media files.
var brands = map[string]string{
	"avif": "an AVIF", "avis": "an AVIF", "heic": "a HEIC", "heix": "a HEIC", "heim": "a HEIC", "mif1": "a HEIC",
	"msf1": "a HEIC", "qt  ": "a QuickTime video", "M4A ": "an M4A sound",
}

// foreign names the format of a file that is no JPEG, PNG or WebP, with an article.
func foreign(b []byte) string {
	for _, f := range foreigners {
		if hasPrefix(b, f.prefix) {
			return f.name
		}
	}
	if len(b) >= 12 && string(b[4:8]) == "ftyp" {
		if name, found := brands[string(b[8:12])]; found {
			return name
		}
		return "an MP4 video"
	}
	if hasPrefix(b, "RIFF") && len(b) >= 12 {
		return fmt.Sprintf("a RIFF file of %q", b[8:12])
	}
	switch text := bytes.TrimLeft(b, "\xef\xbb\xbf \t\r\n"); {
	case len(text) == 0:
		return "blank"
	case text[0] == '<':
		return "HTML or XML"
	case text[0] == '{' || text[0] == '[':
		return "JSON"
	case isText(b):
		return "text"
	}
	return fmt.Sprintf("no image that is known here (it begins with % x)", b[:min(len(b), 4)])
}

func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' && c != '\r' && c != '\n' || c >= 0x7f {
			return false
		}
	}
	return true
}
