package webdataset_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/klauspost/compress/gzip"

	"millrace/sources"
	"millrace/sources/format/webdataset"
	"millrace/sources/sourcetest"
)

// zipped packs an archive.
func zipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestArchivesPutTogether: `cat a.tar b.tar` has the groups of both, with any padding behind the marks. An archive
// without an end mark is read if the source says so.
func TestArchivesPutTogether(t *testing.T) {
	one, two := archive("a.txt", "one", "b.txt", "two"), archive("c.txt", "three")
	want := []sourcetest.Want{{Text: "one"}, {Text: "two"}, {Text: "three"}}
	truncated := func(fs sources.FS) sources.Format {
		f := webdataset.New(fs)
		f.Truncated = true
		return f
	}
	for name, c := range map[string]struct {
		open  func(sources.FS) sources.Format
		bytes []byte
	}{
		"two":              {format, slices.Concat(one, two)},
		"padded":           {format, slices.Concat(one, make([]byte, 9<<10), two, make([]byte, 9<<10))},
		"much padding":     {format, slices.Concat(one, make([]byte, 700<<10), two)},
		"a lone block":     {format, slices.Concat(one[:len(one)-512], two)},
		"without marks":    {truncated, slices.Concat(one[:len(one)-1024], two[:len(two)-1024])},
		"without the last": {truncated, slices.Concat(one, two[:len(two)-1024])},
		"accepted, whole":  {truncated, slices.Concat(one, two)},
	} {
		plain := fixture(name, c.bytes, "txt", want)
		sourcetest.Run(t, "webdataset", c.open, []sourcetest.Fixture{plain})
		sourcetest.Run(t, "webdataset", c.open, []sourcetest.Fixture{{Name: name + ", packed",
			Files: sourcetest.Files{"x.tar.gz": zipped(t, c.bytes)}, Field: sources.Field{Text: "txt"}, Want: want}})
	}
}
