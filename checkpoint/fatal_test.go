package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/checkpoint/disk"
	"millrace/checkpoint/disk/disktest"
)

// The scenes that a child process plays, because they end it.
const (
	sceneEnv    = "MILLRACE_TEST_SCENE"
	sceneDirEnv = "MILLRACE_TEST_SCENE_DIR"

	sceneFsync = "fsync" // the third commit's fsync fails with EIO
	sceneFull  = "full"  // the third commit finds the disk full, and there is no reserve
	sceneHold  = "hold"  // holds the store until its standard input ends
	sceneKill  = "kill"  // prints each acknowledged index until killed
)

func playScene(scene, dir string) {
	var broken atomic.Bool
	breaking := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch {
		case !broken.Load():
			return nil
		case scene == sceneFsync && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData):
			return syscall.EIO
		case scene == sceneFull && op.Kind == errorfs.OpFileWrite:
			return syscall.ENOSPC
		}
		return nil
	}))
	var on *disk.Disk
	switch scene {
	case sceneFsync:
		on = disk.New(breaking, 8<<20)
	case sceneFull:
		on = disk.New(breaking, 0)
	}
	s, err := Open(Config{Dir: dir, Disk: on})
	for i := 0; err == nil && (i < 10 || scene == sceneKill); i++ {
		broken.Store(i == 2)
		var last uint64
		last, err = s.Append(Record{Step: NoStep, Body: body(uint64(i+1), 300)})
		fmt.Println("acknowledged", last)
		if scene == sceneHold {
			_, _ = os.Stdin.Read(make([]byte, 1))
			return
		}
	}
	fmt.Fprintln(os.Stderr, "went on after:", err)
	os.Exit(3)
}

func sceneCommand(scene, dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), sceneEnv+"="+scene, sceneDirEnv+"="+dir)
	return cmd
}

func TestBrokenDiskEndsTheProcessWithOneLine(t *testing.T) {
	for scene, words := range map[string][]string{
		sceneFsync: {"write to ", "input/output error", "check the disk", "everything acknowledged so far is kept"},
		sceneFull:  {"write to ", "disk full", "free some space", "everything acknowledged so far is kept"},
	} {
		t.Run(scene, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "checkpoint")
			cmd := sceneCommand(scene, dir)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Fatalf("ended with %v, want exit status 1; it said %q", err, stderr.String())
			}
			line := stderr.String()
			if strings.Count(line, "\n") != 1 {
				t.Fatalf("said more or less than a line: %q", line)
			}
			for _, w := range append(words, dir) {
				if !strings.Contains(line, w) {
					t.Errorf("%q does not say %q", line, w)
				}
			}
			if !strings.HasSuffix(string(out), "acknowledged 2\n") {
				t.Fatalf("acknowledged %q, want exactly 2", out)
			}
			s, err := Open(Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer mustClose(t, s)
			if _, last := s.Bounds(); last < 2 || last > 3 {
				t.Errorf("%d records after the restart, want the 2 acknowledged and at most the one under way", last)
			}
			verified(t, s)
		})
	}
}

// TestKill: after a kill -9 during commits, every acknowledged record is there and the lock is free.
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoint")
	cmd := sceneCommand(sceneKill, dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked, buf := 0, make([]byte, 4096)
	for acked < 40 {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		acked += bytes.Count(buf[:n], []byte("\n"))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, s)
	if _, last := s.Bounds(); last < uint64(acked) {
		t.Errorf("%d records after the kill, %d were acknowledged", last, acked)
	}
	verified(t, s)
}

func TestLock(t *testing.T) {
	t.Run("same process", func(t *testing.T) {
		root := t.TempDir()
		dir := filepath.Join(root, "checkpoint")
		s, err := Open(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(root, "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{dir, link, dir + "/../checkpoint"} {
			for act, open := range map[string]func(Config) (*Store, error){"Open": Open, "OpenReadOnly": OpenReadOnly} {
				if _, err := open(Config{Dir: name}); !errors.Is(err, ErrLocked) {
					t.Errorf("second %s of %s: %v, want ErrLocked", act, name, err)
				}
			}
		}
		mustClose(t, s)
		if s, err = Open(Config{Dir: link}); err != nil {
			t.Fatalf("open after close: %v", err)
		}
		mustClose(t, s)
	})
	t.Run("other process", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "checkpoint")
		cmd := sceneCommand(sceneHold, dir)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 64)); err != nil { // it has the store now
			t.Fatal(err)
		}
		_, err = Open(Config{Dir: dir})
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint("process ", cmd.Process.Pid)) ||
			!strings.Contains(err.Error(), dir) {
			t.Errorf("open of a held store: %v, want ErrLocked with the directory and process %d", err, cmd.Process.Pid)
		}
		if err := in.Close(); err != nil { // it leaves, maybe after the next Open has begun
			t.Fatal(err)
		}
		s, err := Open(Config{Dir: dir, LockWait: time.Minute})
		if err := errors.Join(err, cmd.Wait()); err != nil {
			t.Fatalf("open after the holder left: %v", err)
		}
		mustClose(t, s)
	})
}

// TestDiskFull: with a reserve, a full disk is an error and does not end the process.
func TestDiskFull(t *testing.T) {
	mem := disktest.NewMemory()
	var full atomic.Bool
	reservePath := mem.FS().PathJoin(memDir, "BALLAST")
	const reserve = 64 << 10
	faulty := errorfs.Wrap(mem.FS(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !full.Load() || op.Kind != errorfs.OpFileWrite {
			return nil
		}
		if _, err := mem.FS().Stat(reservePath); errors.Is(err, fs.ErrNotExist) {
			return nil // the room of the deleted reserve
		}
		return syscall.ENOSPC
	}))
	s := mustOpen(t, disk.New(faulty, reserve))
	defer func() { mustClose(t, s) }()
	steps(t, s, 1, 3, 500)
	full.Store(true)
	if _, err := s.Commit(stepCommit(4, 500)); err != nil {
		t.Fatalf("the commit that met the full disk: %v, want it saved by the reserve", err)
	}
	for range 3 {
		if _, err := s.Commit(stepCommit(5, 500)); !errors.Is(err, ErrDiskFull) ||
			!strings.Contains(err.Error(), memDir) ||
			!strings.Contains(err.Error(), "free some space") {
			t.Fatalf("commit on a full disk: %v, want ErrDiskFull with directory and cure", err)
		}
	}
	if err := s.SaveSnapshot(2, 2, []byte("state")); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("snapshot on a full disk: %v", err)
	}
	if r := verified(t, s); r.Last != 4 {
		t.Fatalf("journal ends at %d, want 4", r.Last)
	}
	full.Store(false)
	steps(t, s, 5, 2, 500)
	if info, err := mem.FS().Stat(reservePath); err != nil || info.Size() != reserve {
		t.Errorf("the reserve was not made again: %v", err)
	}
}
