package tfrecord_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"reflect"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/example"
	"millrace/sources/format/tfrecord"
	"millrace/sources/sourcetest"
)

func examples(sources.FS) sources.Format { return tfrecord.Format{Content: example.Example} }
func texts(sources.FS) sources.Format    { return tfrecord.Format{Content: example.Text} }

func written(t testing.TB, name string) []byte {
	b, err := os.ReadFile("testdata/" + name + ".tfrecord")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func masked(b []byte) []byte {
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return binary.LittleEndian.AppendUint32(nil, (sum>>15|sum<<17)+0xa282ead8)
}

func frame(records ...string) (out []byte) {
	for _, r := range records {
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(r)))
		out = append(append(out, head...), masked(head)...)
		out = append(append(out, r...), masked([]byte(r))...)
	}
	return out
}

func fixture(name string, b []byte, seekable bool, want ...sourcetest.Want) sourcetest.Fixture {
	return sourcetest.Fixture{Name: name, Files: sourcetest.Files{"d/x.tfrecord": b}, Seekable: seekable, Want: want,
		Field: sources.Field{Text: "text"}, Limits: sources.Limits{SampleBytes: 4096}}
}

// TestContract: files of a real writer, plain and packed; names do not tell the packing.
func TestContract(t *testing.T) {
	var want []sourcetest.Want
	for i := range 20 {
		want = append(want, sourcetest.Want{Text: fmt.Sprintf("record %d %s", i, strings.Repeat("wörd ", i%7))})
	}
	want = append(want, sourcetest.Want{Bad: `field "text" is absent; the record has label`})
	sourcetest.Run(t, "tfrecord", examples, []sourcetest.Fixture{
		fixture("plain", written(t, "plain"), true, want...),
		fixture("gzip", written(t, "packed"), false, want...),
		fixture("zlib", written(t, "zlib"), false, want...),
	})
	long := strings.Repeat("x", 5000)
	wrong := frame("a", "b", "c")
	wrong[17+12] ^= 1
	sourcetest.Run(t, "tfrecord", texts, []sourcetest.Fixture{
		fixture("empty", nil, true),
		fixture("texts", frame("a", "", "wörd", "\xff"), true, sourcetest.Want{Text: "a"}, sourcetest.Want{Text: ""},
			sourcetest.Want{Text: "wörd"}, sourcetest.Want{Bad: "UTF-8"}),
		fixture("too long", frame("a", long, "b"), true, sourcetest.Want{Text: "a"},
			sourcetest.Want{Bad: "sample_bytes"}, sourcetest.Want{Text: "b"}),
		fixture("wrong checksum", wrong, true, sourcetest.Want{Text: "a"}, sourcetest.Want{Bad: "checksum"},
			sourcetest.Want{Text: "c"}),
	})
}

// TestFeatures: lists of several values, and one value as itself.
func TestFeatures(t *testing.T) {
	file, _ := sourcetest.Files{"x": written(t, "plain")}.Open("x")
	s, err := examples(nil).Open(t.Context(), file, sources.Field{Text: "text", Others: []string{"label", "quality",
		"ids"}}, sources.Limits{}.Resolved(), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Scan(t.Context(), 3, func(r sources.Record) error {
		if r.Number == 3 && !reflect.DeepEqual(r.Others, []any{3, 0.75, []any{0, 1, 2}}) {
			t.Errorf("got %v", r.Others)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestMisfits(t *testing.T) {
	good := frame("first", "second")
	for what, c := range map[string]struct {
		b    []byte
		says string
	}{
		"cut in the data":     {good[:len(good)-6], "ends early"},
		"cut in the head":     {good[:len(good)-12], "ends early"},
		"no records":          {[]byte("just some text, no frames"), "wrong checksum"},
		"a wrong length":      {append(frame("a"), append([]byte{1}, good[1:]...)...), "byte 17 has a length"},
		"gzip that ends":      {written(t, "packed")[:60], "ends early"},
		"gzip without a head": {written(t, "packed")[:5], "unpacked"},
		"zlib that ends":      {written(t, "zlib")[:60], "ends early"},
	} {
		err := sourcetest.Open(t, texts, fixture(what, c.b, true))
		if what == "gzip that ends" || what == "zlib that ends" {
			err = sourcetest.Open(t, examples, sourcetest.Fixture{Files: sourcetest.Files{"d/x.tfrecord": c.b},
				Field: sources.Field{Text: "text"}})
		}
		if !errors.Is(err, millrace.ErrDamaged) || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), "d/x.tfrecord") {
			t.Errorf("%s: got %v, want ErrDamaged with %q", what, err, c.says)
		}
	}
}

// TestDamage: a length that the file does not have takes no memory.
func TestDamage(t *testing.T) {
	huge := frame("a", "b")
	binary.LittleEndian.PutUint64(huge[17:], 4000)
	copy(huge[25:], masked(huge[17:25]))
	sourcetest.Damage(t, texts, []sourcetest.Fixture{
		fixture("plain", frame("a", "", "wörd", strings.Repeat("x", 300)), true),
		fixture("gzip", written(t, "packed"), false),
	}, 8<<20)
	if err := sourcetest.Open(t, texts, fixture("huge", huge, true)); !errors.Is(err, millrace.ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

func FuzzTFRecord(f *testing.F) {
	f.Add(frame("a", "b"), false)
	f.Add(written(f, "plain")[:400], true)
	f.Add(written(f, "packed"), false)
	f.Add(written(f, "zlib"), false)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) >= 12 { // past the gate of the checksums
			b = bytes.Clone(b)
			copy(b[8:], masked(b[:8]))
		}
		sourcetest.Fuzz(t, examples, fixture("fuzz", b, true))
	})
}
