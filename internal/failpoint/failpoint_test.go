package failpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, bad := range []string{"a", "a=explode", "a=kill@x", "a=sleep:soon", "a=sleep", "a=slow:1ms"} {
		if _, err := Parse(bad, "loader-0"); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	s, err := Parse("loader-1:loader/fetch/before=kill; loader/offer/before=panic@2;a=sleep:1ms@0", "loader-0")
	if err != nil {
		t.Fatal(err)
	}
	s.Hit("loader/fetch/before") // armed only for loader-1
	s.Hit("loader/offer/before") // the first hit has no action
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the second hit did not panic")
			}
		}()
		s.Hit("loader/offer/before")
	}()
	s.Hit("loader/offer/before")
	start := time.Now()
	s.Hit("a")
	s.Hit("a")
	if time.Since(start) < 2*time.Millisecond {
		t.Error("every hit should sleep")
	}
}

// TestASlowPointIsSlowWhileItsFileExists, at every hit.
func TestASlowPointIsSlowWhileItsFileExists(t *testing.T) {
	file := filepath.Join(t.TempDir(), "slow")
	s, err := Parse("a=slow:20ms:"+file, "loader-0")
	if err != nil {
		t.Fatal(err)
	}
	pauses := 0
	s.OnTaken(func(string, string) { pauses++ })
	s.Hit("a")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	s.Hit("a")
	s.Hit("a")
	if spent := time.Since(start); pauses != 2 || spent < 40*time.Millisecond {
		t.Errorf("%d pauses, %v", pauses, spent)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if s.Hit("a"); pauses != 2 {
		t.Errorf("%d pauses after the file was removed", pauses)
	}
}

// TestFaults checks the errors of armed points, the reported actions, and points that are not armed.
func TestFaults(t *testing.T) {
	s, err := Parse("checkpoint/sync=eio@2;index/write=enospc:"+filepath.Join(t.TempDir(), "done")+"@0", "loader-0")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	s.OnTaken(func(point, action string) { told = append(told, point+" "+action) })
	if err := s.Fault("checkpoint/sync"); err != nil {
		t.Error(err)
	}
	if err := s.Fault("checkpoint/sync"); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	var wrote []byte
	write := func(b []byte) (int, error) { wrote = append(wrote, b...); return len(b), nil }
	if n, err := s.Write("index/write", []byte("abcd"), write); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Error(n, err)
	}
	if n, err := s.Write("index/write", []byte("abcd"), write); n != 4 || err != nil || string(wrote) != "abcd" {
		t.Error(n, err, wrote)
	}
	if want := []string{"checkpoint/sync eio", "index/write enospc"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if !s.Arms("checkpoint/") || s.Arms("loader/") {
		t.Error("the disk of the journal is armed, nothing else")
	}
}

// TestOnce: an action is not taken if its file exists.
func TestOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "done")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Parse("a=kill:"+file+"@2", "loader-0")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.Hit("a")
	}
	if mark(file) || !mark(file+"2") {
		t.Error("a mark can be made once")
	}
}

func TestNilIsFree(t *testing.T) {
	var s *Set
	s.Hit("anything")
}
