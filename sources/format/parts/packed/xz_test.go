package packed_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"

	"millrace"
	"millrace/sources/format/parts/packed"
	"millrace/sources/sourcetest"
)

// xzStream returns a stream of xz with several blocks.
func xzStream(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := xz.WriterConfig{BlockSize: 1000}.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// check checks a file with some bytes.
func check(t *testing.T, b []byte) error {
	t.Helper()
	f, err := sourcetest.Files{"x.xz": b}.Open("x.xz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return packed.CheckXZ(f)
}

// withDictionary changes the dictionary of the block at a place.
func withDictionary(stream []byte, at int, bits byte) []byte {
	out := bytes.Clone(stream)
	head := out[at : at+(int(out[at])+1)*4]
	head[bytes.IndexByte(head[2:], 0x21)+2+2] = bits
	binary.LittleEndian.PutUint32(head[len(head)-4:], crc32.ChecksumIEEE(head[:len(head)-4]))
	return out
}

// TestEveryBlockOfAnXZFileIsChecked: a large dictionary may be in any block of any stream.
func TestEveryBlockOfAnXZFileIsChecked(t *testing.T) {
	text := strings.Repeat("one line of a document\n", 300)
	one := xzStream(t, text)
	second := 0 // the place of the second block
	for at := 16; second == 0; at += 4 {
		if size := (int(one[at]) + 1) * 4; one[at] > 0 && at+size <= len(one) && crc32.ChecksumIEEE(
			one[at:at+size-4]) == binary.LittleEndian.Uint32(one[at+size-4:]) {
			second = at
		}
	}
	zeros := make([]byte, 8)
	sound := [][]byte{one, append(bytes.Clone(one), one...), bytes.Join([][]byte{one, zeros, one, zeros}, nil)}
	for i, b := range sound {
		if err := check(t, b); err != nil {
			t.Errorf("sound file %d: %v", i, err)
		}
	}
	const most = 40 // 4 GiB
	for i, b := range [][]byte{
		withDictionary(one, 12, most), withDictionary(one, second, most),
		append(bytes.Clone(one), withDictionary(one, 12, most)...),
		append(withDictionary(one, second, most), one...),
	} {
		if err := check(t, b); !errors.Is(err, millrace.ErrInvalid) ||
			!strings.Contains(err.Error(), "dictionary has 4096 MiB") {
			t.Errorf("large dictionary %d: %v", i, err)
		}
	}
	for n := range one {
		if err := check(t, one[:n]); err == nil {
			t.Errorf("cut to %d of %d bytes: accepted", n, len(one))
		}
	}
}
