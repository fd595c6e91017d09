package openfiles_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"millrace/sources/store/openfiles"
)

// counted counts the files that are open.
type counted struct{ open, most, times atomic.Int64 }

type countedFile struct{ *counted }

func (c *counted) make() (io.Closer, error) {
	n := c.open.Add(1)
	c.times.Add(1)
	for most := c.most.Load(); n > most; most = c.most.Load() {
		c.most.CompareAndSwap(most, n)
	}
	return countedFile{c}, nil
}

func (f countedFile) Close() error {
	f.open.Add(-1)
	return nil
}

// TestFilesStayBelowTheLimit: many goroutines use many files, and never more than the limit are open.
func TestFilesStayBelowTheLimit(t *testing.T) {
	const limit, all = 5, 40
	pool, c := openfiles.New(limit), &counted{}
	files := make([]*openfiles.File, all)
	for i := range files {
		files[i] = pool.File(c.make)
	}
	var wait sync.WaitGroup
	for g := range uint64(8) {
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(g, 0))
			for range 2000 {
				if rng.IntN(10) == 0 {
					f, err := pool.Open(c.make)
					if err != nil {
						t.Error(err)
						return
					}
					f.Close()
					pool.Closed()
					continue
				}
				f := files[rng.IntN(all)]
				h, err := f.Acquire()
				if err != nil {
					t.Error(err)
					return
				}
				if rng.IntN(10) == 0 {
					h.Judge(unix.ESTALE)
				}
				h.Release()
			}
		})
	}
	wait.Wait()
	if c.most.Load() > limit || pool.Count() > limit {
		t.Errorf("%d files were open at once, the limit is %d", c.most.Load(), limit)
	}
	for _, f := range files {
		f.Close()
	}
	if n, m := c.open.Load(), pool.Count(); n != 0 || m != 0 {
		t.Errorf("%d files are open after the end, the pool counts %d", n, m)
	}
}

// TestUsedAgainWithoutOpening: a file below the limit stays open. The least recently used one is closed for another.
func TestUsedAgainWithoutOpening(t *testing.T) {
	pool := openfiles.New(2)
	var made [3]counted
	var files [3]*openfiles.File
	for i := range files {
		files[i] = pool.File(made[i].make)
	}
	for _, i := range []int{0, 1, 0, 2, 0, 1} {
		h, err := files[i].Acquire()
		if err != nil {
			t.Fatal(err)
		}
		h.Release()
	}
	for i, want := range []int64{1, 2, 1} {
		if n := made[i].times.Load(); n != want {
			t.Errorf("file %d was opened %d times, want %d", i, n, want)
		}
	}
}

// TestADeadDescriptorIsReplaced: after an error that may come from the descriptor, the next use opens the file anew.
// The uses that go on keep the old opening, which the last of them closes.
func TestADeadDescriptorIsReplaced(t *testing.T) {
	pool, c := openfiles.New(4), &counted{}
	f := pool.File(c.make)
	acquire := func() *openfiles.Handle {
		t.Helper()
		h, err := f.Acquire()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first, second := acquire(), acquire()
	for _, harmless := range []error{nil, unix.EINTR, io.EOF, errors.New("its bytes are wrong")} {
		if first.Judge(harmless); acquire() != first {
			t.Fatalf("after %v, the file was opened anew", harmless)
		}
		first.Release()
	}
	first.Judge(fmt.Errorf("read a: %w", unix.ESTALE))
	first.Judge(unix.ENOTCONN)
	third := acquire()
	if third == first || c.open.Load() != 2 || pool.Count() != 2 {
		t.Fatalf("%d files are open, the pool counts %d", c.open.Load(), pool.Count())
	}
	first.Release()
	second.Judge(unix.ESTALE) // of the old opening: the new one stays
	if acquire() != third {
		t.Error("the new opening went out of use with the old one")
	}
	third.Release()
	second.Release()
	if third.Release(); c.open.Load() != 1 || c.times.Load() != 2 {
		t.Errorf("%d files are open after %d openings", c.open.Load(), c.times.Load())
	}
	if err := f.Close(); err != nil || c.open.Load() != 0 || pool.Count() != 0 {
		t.Errorf("%v: %d files are open, the pool counts %d", err, c.open.Load(), pool.Count())
	}
}

// TestWithoutDescriptors: a file that cannot be opened for want of descriptors is tried again after all unused files
// were closed. If that does not help, the error has the cure and no errno, so it is final.
func TestWithoutDescriptors(t *testing.T) {
	pool, c := openfiles.New(10), &counted{}
	idle := pool.File(c.make)
	h, err := idle.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
	scarce := func() (io.Closer, error) {
		if c.open.Load() > 0 {
			return nil, fmt.Errorf("open a: %w", unix.EMFILE)
		}
		return c.make()
	}
	f, err := pool.Open(scarce)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pool.Open(scarce)
	var exhausted *openfiles.Exhausted
	if !errors.As(err, &exhausted) || errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") ||
		!strings.Contains(err.Error(), "limits.open_files") || !strings.Contains(err.Error(), "open a") {
		t.Fatal(err)
	}
	f.Close()
	pool.Closed()
	if _, err := pool.Open(scarce); err != nil || pool.Count() != 1 {
		t.Fatalf("%v, %d files", err, pool.Count())
	}
}
