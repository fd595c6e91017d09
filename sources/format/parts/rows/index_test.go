package rows

import (
	"errors"
	"os"
	"testing"

	"millrace"
)

// FuzzIndexBlob feeds arbitrary indexes of a file of 900 bytes.
func FuzzIndexBlob(f *testing.F) {
	var b indexBuilder
	for i := range int64(300) {
		b.addRecord(i * 3)
	}
	b.addPoint(point{0, 900, 0})
	f.Add(b.encode(plain, 900, 900))
	f.Add(b.encode(bgzf, 900, 900))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, blob []byte) {
		file := sized{900}
		x, err := openIndex(file, blob)
		if err != nil {
			if !errors.Is(err, millrace.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		if _, err := x.pointsOf(file); err != nil && !errors.Is(err, millrace.ErrDamaged) {
			t.Fatal(err)
		}
		for _, n := range []uint64{0, 1, 127, 128, 299, 300, x.count - 1, 1 << 63} {
			if start, end, ok := x.extent(n); ok && (start < 0 || start >= end || end > x.plain) {
				t.Fatalf("record %d lies at %d … %d of %d", n, start, end, x.plain)
			}
		}
	})
}

type sized struct{ n int64 }

func (s sized) Size() int64                       { return s.n }
func (s sized) Name() string                      { return "f" }
func (s sized) ReadAt([]byte, int64) (int, error) { return 0, os.ErrInvalid }
