package arrayrecord_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/minio/highwayhash"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/arrayrecord"
	"millrace/sources/format/parts/example"
	"millrace/sources/sourcetest"
)

func format(sources.FS) sources.Format { return arrayrecord.Format{Content: example.Text} }

// written unpacks a file of testdata, which array_record's own writer wrote.
func written(t testing.TB, name string) []byte {
	f, err := os.Open("testdata/" + name + ".array_record.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func texts(n int) (out []sourcetest.Want) {
	for i := range n {
		out = append(out, sourcetest.Want{Text: fmt.Sprintf("record %d %s", i, strings.Repeat("wörd ", i*7%40))})
	}
	return out
}

func fixture(t testing.TB, name string, want []sourcetest.Want) sourcetest.Fixture {
	return sourcetest.Fixture{
		Name: name, Files: sourcetest.Files{"d/x.array_record": written(t, name)}, Want: want, Seekable: true,
		Field: sources.Field{Text: "text"}, Limits: sources.Limits{SampleBytes: 250_000},
	}
}

func TestContract(t *testing.T) {
	limited := fixture(t, "long", []sourcetest.Want{{Text: "a"}, {Bad: "sample_bytes"}, {Text: "c"}})
	limited.Name, limited.Limits.SampleBytes = "too long", 1000
	sourcetest.Run(t, "arrayrecord", format, []sourcetest.Fixture{
		fixture(t, "default", texts(30)),
		fixture(t, "plain", texts(30)),
		fixture(t, "brotli", texts(30)),
		fixture(t, "zstd", texts(30)),
		fixture(t, "snappy", texts(30)),
		fixture(t, "padded", texts(3)),
		fixture(t, "empty", nil),
		fixture(t, "odd", []sourcetest.Want{{Text: ""}, {Text: "x"}, {Text: ""}, {Bad: "not valid UTF-8"},
			{Text: "last"}}),
		// One record reaches over several blocks, whose headers interrupt it.
		fixture(t, "long", []sourcetest.Want{{Text: "a"}, {Text: strings.Repeat("b", 200_000)}, {Text: "c"}}),
		limited,
	})
}

func TestTransposedIsRefusedByName(t *testing.T) {
	err := sourcetest.Open(t, format, fixture(t, "transposed", nil))
	if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), "transpose:false") {
		t.Errorf("got %v", err)
	}
}

// TestDamageCostsAChunk: the footer leads to the chunks behind a damaged one.
func TestDamageCostsAChunk(t *testing.T) {
	f := fixture(t, "zstd", texts(30))
	b := bytes.Clone(f.Files["d/x.array_record"])
	b[64+40+20] ^= 1 // inside the data of the first chunk
	f.Files = sourcetest.Files{"d/x.array_record": b}
	f.Want = append(make([]sourcetest.Want, 16), f.Want[16:]...)
	for i := range 16 {
		f.Want[i] = sourcetest.Want{Bad: "the chunk at byte 64 is damaged"}
	}
	sourcetest.Run(t, "arrayrecord", format, []sourcetest.Fixture{f})
}

func TestDamage(t *testing.T) {
	sourcetest.Damage(t, format, []sourcetest.Fixture{fixture(t, "zstd", nil)}, 8<<20)
}

// TestChecksumsCoverEveryRecord: after a flipped bit, each record is as it was, or bad.
func TestChecksumsCoverEveryRecord(t *testing.T) {
	whole, want := written(t, "plain"), texts(30)
	for at := 64; at < 4<<10; at += 17 {
		b := bytes.Clone(whole)
		b[at] ^= byte(1 << (at % 8))
		file, _ := sourcetest.Files{"x": b}.Open("x")
		s, err := format(nil).Open(t.Context(), file, sources.Field{Text: "text"}, sources.Limits{}.Resolved(), nil)
		if err != nil {
			continue
		}
		err = s.Scan(t.Context(), 0, func(r sources.Record) error {
			if r.Err == nil && string(r.Text) != want[r.Number].Text {
				t.Errorf("byte %d: record %d is %q", at, r.Number, r.Text)
			}
			return nil
		})
		if err != nil && !errors.Is(err, millrace.ErrDamaged) && !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("byte %d: %v", at, err)
		}
	}
}

// sealed puts right checksums over a chunk's head and data, past the gate that keeps random damage out.
func sealed(b []byte, at int) {
	le, sum := binary.LittleEndian, func(p []byte) uint64 {
		return highwayhash.Sum64(p, []byte("Riegeli/records\nRiegeli/records\n"))
	}
	if at < 0 || at+40 > len(b) {
		return
	}
	if n := le.Uint64(b[at+8:]); n < 1<<15 && at+40+int(n) <= len(b) {
		le.PutUint64(b[at+16:], sum(b[at+40:][:n]))
	}
	le.PutUint64(b[at:], sum(b[at+8:at+40]))
}

// TestHostileChunks: with right checksums, wrong sizes still cost no more than the chunk or the file.
func TestHostileChunks(t *testing.T) {
	for _, name := range []string{"zstd", "brotli", "snappy", "plain"} {
		whole := written(t, name)
		for i := range 30 {
			for _, at := range []int{64, len(whole) - 64<<10 + 24} {
				b := bytes.Clone(whole)
				b[at+8+i%56] ^= byte(1 + 37*i)
				sealed(b, at)
				sourcetest.Fuzz(t, format, sourcetest.Fixture{
					Files: sourcetest.Files{"x": b}, Field: sources.Field{Text: "text"},
				})
			}
		}
	}
}

func FuzzArrayRecord(f *testing.F) {
	for i, name := range []string{"zstd", "brotli", "snappy", "plain", "default"} {
		f.Add(written(f, name)[64:1024], uint8(i))
	}
	whole := written(f, "default")
	f.Fuzz(func(t *testing.T, chunks []byte, where uint8) {
		b := bytes.Clone(whole)
		at := 64
		if where > 127 {
			at = len(b) - 64<<10 + 24
		}
		copy(b[at:], chunks)
		sealed(b, at)
		sourcetest.Fuzz(t, format, sourcetest.Fixture{
			Files: sourcetest.Files{"x": b}, Field: sources.Field{Text: "text"},
		})
	})
}
