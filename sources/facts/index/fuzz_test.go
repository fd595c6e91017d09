package index

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"millrace"
)

// FuzzLog reads a log with any bytes behind its head, between two records. A blob is as it was saved, or is not there.
func FuzzLog(f *testing.F) {
	first, second := newKey(millrace.Digest{1}, "index"), newKey(millrace.Digest{2}, "index")
	one, two := appendRecord(nil, first, []byte("first")), appendRecord(nil, second, []byte("the second blob"))
	f.Add([]byte{}, uint8(0))
	f.Add(one, uint8(0))
	f.Add(two[:20], uint8(3))
	f.Add(append(bytes.Clone(two), 0, 0, 0), uint8(40))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, flip uint8) {
		log := append(newLogHead(0), one...)
		if flip > 0 {
			log[logHead+int(flip)%len(one)] ^= flip
		}
		log = append(append(log, b...), two...)
		path := filepath.Join(dir, "log")
		if err := os.WriteFile(path, log, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, skip := range []bool{false, true} {
			l, err := openLog(OSFS(), path, false)
			if err != nil {
				t.Fatal(err)
			}
			if lost := l.scan(skip); lost < 0 || lost > int64(len(log)) {
				t.Errorf("%d of %d bytes are lost", lost, len(log))
			}
			got, ok := l.find(first)
			if flip == 0 && (!ok || string(got) != "first") && !bytes.Contains(b, first.shard[:]) {
				t.Errorf("the first blob is %q, %v", got, ok)
			}
			l.find(second)
			if err := l.close(); err != nil {
				t.Error(err)
			}
		}
	})
}
