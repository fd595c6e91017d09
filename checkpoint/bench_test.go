package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkAppend measures one synced append on the file system of TMPDIR.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s, err := Open(Config{Dir: filepath.Join(b.TempDir(), "checkpoint")})
			if err != nil {
				b.Fatal(err)
			}
			defer mustClose(b, s)
			r := Record{Step: 1, Kind: 1, Body: body(1, size)}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Append(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen measures opening a store of 2000 steps (4 KiB records, 4 KiB plans), finding the newest snapshot and
// replaying 100 records.
func BenchmarkOpen(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "checkpoint")
	s, err := Open(Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	before := residentMiB(b)
	steps(b, s, 1, 2000, 4<<10)
	b.Logf("resident: %.1f MiB when open, %.1f MiB after 2000 commits", before, residentMiB(b))
	if err := s.SaveSnapshot(1900, 1900, make([]byte, 16<<10)); err != nil {
		b.Fatal(err)
	}
	mustClose(b, s)
	for b.Loop() {
		s, err := Open(Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		snap, _, err := s.NewestSnapshot()
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Replay(snap.Index+1, func(Record) error { return nil }); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		mustClose(b, s)
		b.StartTimer()
	}
}

// residentMiB returns the resident memory of this process.
func residentMiB(b *testing.B) (mib float64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}
