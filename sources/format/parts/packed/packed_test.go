package packed_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"millrace"
	"millrace/sources/format/parts/packed"
	"millrace/sources/sourcetest"
)

// unpack returns the unpacked bytes of a file of a kind.
func unpack(kind packed.Kind, b []byte) ([]byte, error) {
	f, err := sourcetest.Files{"x": b}.Open("x")
	if err != nil {
		return nil, err
	}
	r, err := packed.NewReader(f, kind)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// text returns bytes with repetitions near and far.
func text(n int) (out []byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	for len(out) < n {
		switch rng.IntN(3) {
		case 0:
			out = append(out, bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(300))...)
		case 1:
			for range rng.IntN(400) {
				out = append(out, byte(rng.IntN(256)))
			}
		default:
			if len(out) > 0 {
				at := rng.IntN(len(out))
				out = append(out, out[at:min(len(out), at+rng.IntN(500))]...)
			}
		}
	}
	return out[:n]
}

func pack(t testing.TB, kind packed.Kind, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch kind {
	case packed.Zstd:
		z, err := zstd.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	case packed.Gzip:
		w = gzip.NewWriter(&out)
	case packed.Brotli:
		w = brotli.NewWriter(&out)
	case packed.Snappy:
		return snappy.Encode(nil, b)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestEveryKindUnpacks(t *testing.T) {
	for _, kind := range []packed.Kind{packed.Zstd, packed.Gzip, packed.Brotli, packed.Snappy} {
		for _, n := range []int{0, 1, 70_000, 900_000} {
			want := text(n)
			b := pack(t, kind, want)
			if got, err := unpack(kind, b); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s of %d bytes: got %d, %v", kind, n, len(got), err)
			}
			if n == 0 || kind == packed.Brotli {
				continue
			}
			for _, damaged := range [][]byte{b[:len(b)-1], append(bytes.Clone(b), 1)} {
				if got, err := unpack(kind, damaged); !errors.Is(err, millrace.ErrDamaged) {
					t.Errorf("%s of %d bytes, damaged: got %d bytes, %v", kind, n, len(got), err)
				}
			}
		}
	}
}

func TestSnappyThatLeadsOutsideIsDamaged(t *testing.T) {
	for in, says := range map[string]string{
		"\x04\x01\x01":             "leads outside", // a copy before the first byte
		"\x03\x00a\x09\x00":        "leads outside", // a copy from 0 bytes before
		"\x02\x08abc":              "longer than the rest",
		"\xff\xff\xff\xff\x0f\x00": "ends inside",
		"\xff\xff\xff\xff\xff\x0f": "is no number",
	} {
		if _, err := unpack(packed.Snappy, []byte(in)); !errors.Is(err, millrace.ErrDamaged) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%x: got %v, want %q", in, err, says)
		}
	}
}

func FuzzSnappy(f *testing.F) {
	f.Add(snappy.Encode(nil, text(3000)))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := snappy.DecodedLen(b)
		if err != nil || n > 1<<20 {
			return
		}
		want, wrong := snappy.Decode(nil, b)
		got, err := unpack(packed.Snappy, b)
		if wrong == nil && err == nil && !bytes.Equal(got, want) || wrong != nil && err == nil {
			t.Fatalf("got %d bytes, %v; want %d, %v", len(got), err, len(want), wrong)
		}
	})
}

// FuzzUnpack unpacks files of any bytes as each kind: the bytes that they unpack to, or an error that names the file.
func FuzzUnpack(f *testing.F) {
	b := text(300)
	kinds := []packed.Kind{packed.Zstd, packed.Gzip, packed.Brotli, packed.Snappy, packed.Bzip2, packed.XZ}
	for i, kind := range kinds[:4] {
		f.Add(uint8(i), pack(f, kind, b))
	}
	f.Add(uint8(4), []byte("BZh91AY&SY"))
	var streamed bytes.Buffer
	w, err := xz.NewWriter(&streamed)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		f.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(5), streamed.Bytes())
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		file, err := sourcetest.Files{"d/x": b}.Open("d/x")
		if err != nil {
			t.Fatal(err)
		}
		r, err := packed.NewReader(file, kinds[int(kind)%len(kinds)])
		if err == nil {
			defer r.Close()
			_, err = io.Copy(io.Discard, io.LimitReader(r, 8<<20))
		}
		if err != nil && (!errors.Is(err, millrace.ErrDamaged) && !errors.Is(err, millrace.ErrInvalid) ||
			!strings.Contains(err.Error(), "d/x")) {
			t.Fatal(err)
		}
	})
}
