package look_test

import (
	"archive/tar"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"millrace/app/look"
)

func picture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../pixels/header/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// writeTar writes one record for each content: members `jpg` and `txt`.
func writeTar(t *testing.T, path string, contents ...[]byte) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for i, content := range contents {
		for _, m := range []struct {
			ending  string
			content []byte
		}{{"jpg", content}, {"txt", []byte("a caption")}} {
			h := tar.Header{Name: string(rune('a'+i)) + "." + m.ending, Size: int64(len(m.content)), Mode: 0o600}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(m.content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// writeImages writes an Arrow file with one record: a list of images as Hugging Face's `datasets` stores them.
func writeImages(t *testing.T, path string, contents ...[]byte) {
	t.Helper()
	image := arrow.StructOf(arrow.Field{Name: "bytes", Type: arrow.BinaryTypes.Binary, Nullable: true},
		arrow.Field{Name: "path", Type: arrow.BinaryTypes.String, Nullable: true})
	schema := arrow.NewSchema([]arrow.Field{{Name: "images", Type: arrow.ListOf(image)}}, nil)
	b := array.NewRecordBuilder(memory.NewGoAllocator(), schema)
	list := b.Field(0).(*array.ListBuilder)
	list.Append(true)
	each := list.ValueBuilder().(*array.StructBuilder)
	for _, content := range contents {
		each.Append(true)
		each.FieldBuilder(0).(*array.BinaryBuilder).Append(content)
		each.FieldBuilder(1).AppendNull()
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := ipc.NewFileWriter(f, ipc.WithSchema(schema))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(b.NewRecord()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestImages: a field of images shows their formats, their sides as they are looked at, and what cannot be read.
func TestImages(t *testing.T) {
	plain, turned, page := picture(t, "plain.jpg"), picture(t, "exif-6.jpg"), []byte("<html>404</html>")
	for _, c := range []struct {
		path   string
		write  func(t *testing.T, path string, contents ...[]byte)
		field  string
		unread []string
	}{
		{"a.tar", writeTar, "jpg", []string{"image 3 is HTML or XML; JPEG, PNG and WebP are read"}},
		{"a.arrow", writeImages, "images", []string{"image 3 is HTML or XML; JPEG, PNG and WebP are read"}},
	} {
		path := filepath.Join(t.TempDir(), c.path)
		c.write(t, path, plain, turned, page, picture(t, "rgba.png"))
		d, err := look.Describe(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(d.Fields, func(x look.Field) bool { return x.Name == c.field })
		if at < 0 || d.Fields[at].Images == nil {
			t.Fatalf("%s: no images in %+v", c.path, d.Fields)
		}
		const want = "JPEG, PNG 14…37 × 9…37, 1 of 3 turned by EXIF, 1 unreadable"
		if got := d.Fields[at].Images; got.String() != want || !slices.Equal(got.Unread, c.unread) {
			t.Errorf("%s: got %s and %q", c.path, got, got.Unread)
		}
		for i := range d.Fields {
			if i != at && d.Fields[i].Images != nil {
				t.Errorf("%s: field %s has images", c.path, d.Fields[i].Name)
			}
		}
		var out strings.Builder
		if err := d.Print(&out); err != nil || !strings.Contains(out.String(), want) ||
			!strings.Contains(out.String(), "field "+c.field+": "+c.unread[0]) {
			t.Errorf("%s: %v: %s", c.path, err, &out)
		}
	}
}
