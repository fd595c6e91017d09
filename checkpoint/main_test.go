package checkpoint

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"millrace/checkpoint/disk"
)

// TestMain also plays the scenes of fatal_test.go, in a child process.
func TestMain(m *testing.M) {
	if scene := os.Getenv(sceneEnv); scene != "" {
		playScene(scene, os.Getenv(sceneDirEnv))
		return
	}
	goleak.VerifyTestMain(m)
}

const memDir = "run/checkpoint"

func memConfig(d *disk.Disk) Config { return Config{Dir: memDir, CreatedBy: "test", Disk: d} }

func mustOpen(t testing.TB, d *disk.Disk) *Store {
	t.Helper()
	s, err := Open(memConfig(d))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func body(n uint64, size int) []byte {
	b := []byte(fmt.Sprintf("body of %d;", n))
	for len(b) < size {
		b = append(b, byte(n)+byte(len(b)*7))
	}
	return b
}

func key(step uint64) StepKey { return StepKey{Stream: "train", Step: step} }

// steps commits n steps, each with one record, a plan and a digest, beginning with step from.
func steps(t testing.TB, s *Store, from, n uint64, size int) {
	t.Helper()
	for step := from; step < from+n; step++ {
		if _, err := s.Commit(stepCommit(step, size)); err != nil {
			t.Fatal(err)
		}
	}
}

func stepCommit(step uint64, size int) Commit {
	return Commit{
		Records: []Record{{Step: int64(step), Kind: 3, Body: body(step, size)}},
		Plans:   []Plan{{Key: key(step), Body: body(step+1000, size), Digest: []byte{byte(step), 2, 3}}},
	}
}

func verified(t testing.TB, s *Store) Report {
	t.Helper()
	r, err := s.Verify()
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() {
		t.Fatalf("store does not verify: %v", r.Problems)
	}
	return r
}
