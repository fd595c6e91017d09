package copies

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"millrace/sources/store/openfiles"
)

// content returns n bytes that pack to about a half.
func content(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = "aabcdefghijklmno"[r.IntN(16)]
	}
	return b
}

func newShelf(dir string) *Shelf { return NewShelf(dir, openfiles.New(8), new(Reader)) }

func put(t *testing.T, b []byte) *Shelf {
	t.Helper()
	shelf, frames := newShelf(filepath.Join(t.TempDir(), "copies")), 0
	err := shelf.Write(t.Context(), "one", false, func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b)), nil
	}, func() { frames++ })
	if err != nil {
		t.Fatal(err)
	}
	if want := (len(b) + FrameBytes - 1) / FrameBytes; frames != want {
		t.Errorf("it told of %d frames of %d", frames, want)
	}
	return shelf
}

func find(t *testing.T, s *Shelf) *Copy {
	t.Helper()
	c, err := s.Find("one")
	if err != nil || c == nil {
		t.Fatalf("%v, %v", c, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestACopyIsReadAtRandom compares reads at random with the content, from several goroutines.
func TestACopyIsReadAtRandom(t *testing.T) {
	for _, n := range []int{0, 1, FrameBytes - 1, FrameBytes, FrameBytes + 1, 5*FrameBytes + 77} {
		b := content(n)
		c := find(t, put(t, b))
		if c.Size() != int64(n) {
			t.Fatalf("size %d of %d", c.Size(), n)
		}
		var all sync.WaitGroup
		for g := range 4 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(2, uint64(g)))
				for range 50 {
					off := r.Int64N(int64(n) + 2)
					p := make([]byte, r.IntN(3*FrameBytes))
					got, err := c.ReadAt(p, off)
					want := b[min(off, int64(n)):min(off+int64(len(p)), int64(n))]
					if !bytes.Equal(p[:got], want) {
						t.Errorf("%d bytes at %d differ", len(p), off)
					}
					if isShort := got < len(p); isShort != errors.Is(err, io.EOF) || !isShort && err != nil {
						t.Errorf("%d of %d bytes at %d of %d: %v", got, len(p), off, n, err)
					}
				}
			})
		}
		all.Wait()
	}
}

// TestACopyIsZstd: a decoder of zstd unpacks a copy, and so does the command if it is installed.
func TestACopyIsZstd(t *testing.T) {
	b := content(3*FrameBytes + 5)
	path := find(t, put(t, b)).Path()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dec, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	if got, err := io.ReadAll(dec); err != nil || !bytes.Equal(got, b) {
		t.Errorf("%d of %d bytes: %v", len(got), len(b), err)
	}
	if command, err := exec.LookPath("zstd"); err == nil {
		if got, err := exec.Command(command, "-dc", path).Output(); err != nil || !bytes.Equal(got, b) {
			t.Errorf("the command unpacks %d of %d bytes: %v", len(got), len(b), err)
		}
	}
}

// TestDamageIsFound flips every bit of the table and bits of the frames. A read fails, or gives the right bytes.
func TestDamageIsFound(t *testing.T) {
	b := content(2*FrameBytes + 999)
	shelf := put(t, b)
	path := find(t, shelf).Path()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 3))
	found := 0
	try := func(damaged []byte) {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := shelf.Find("one")
		if err != nil {
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a damaged copy is left: %v", err)
			}
			found++
			return
		}
		defer c.Close()
		got := make([]byte, c.Size())
		if _, err := c.ReadAt(got, 0); err != nil {
			found++
		} else if !bytes.Equal(got, b) {
			t.Error("damage gives other bytes")
		}
	}
	flips := 0
	for at := range len(whole) * 8 {
		if at/8 < len(whole)-60 && r.IntN(20000) > 0 {
			continue
		}
		damaged := bytes.Clone(whole)
		damaged[at/8] ^= 1 << (at % 8)
		flips++
		try(damaged)
	}
	for range 50 {
		try(whole[:r.IntN(len(whole))])
	}
	if found < (flips+50)*9/10 {
		t.Errorf("%d of %d damages were found", found, flips+50)
	}
}

type failing struct {
	io.Reader
	closed bool
}

func (f *failing) Close() error {
	f.closed = true
	return nil
}

type failsAfter struct{ left int }

func (f *failsAfter) Read(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, syscall.EIO
	}
	return len(p), nil
}

// TestAFailedWriteLeavesNothing: neither does an interrupted one.
func TestAFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	shelf := newShelf(dir)
	from := &failing{Reader: &failsAfter{3 * FrameBytes}}
	open := func() (io.ReadCloser, error) { return from, nil }
	if err := shelf.Write(t.Context(), "one", false, open, func() {}); !errors.Is(err, syscall.EIO) || !from.closed {
		t.Errorf("%v, closed %v", err, from.closed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	from = &failing{Reader: &failsAfter{1 << 30}}
	if err := shelf.Write(ctx, "one", false, open, cancel); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestOneWriterAtATime: of writers that begin together one writes, unless they are to write again. A part that a killed
// process left is written over.
func TestOneWriterAtATime(t *testing.T) {
	dir := t.TempDir()
	part := filepath.Join(dir, "one.zst.part")
	if err := os.WriteFile(part, []byte("left by a killed process"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := content(4 * FrameBytes)
	for _, again := range []bool{false, true} {
		var mu sync.Mutex
		writes := 0
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				err := newShelf(dir).Write(t.Context(), "one", again, func() (io.ReadCloser, error) {
					mu.Lock()
					defer mu.Unlock()
					writes++
					return io.NopCloser(bytes.NewReader(b)), nil
				}, func() {})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if want := map[bool]int{false: 1, true: 4}[again]; writes != want {
			t.Errorf("again %v: %d writers wrote", again, writes)
		}
		got := make([]byte, len(b))
		if _, err := find(t, newShelf(dir)).ReadAt(got, 0); err != nil || !bytes.Equal(got, b) {
			t.Errorf("again %v: the copy differs: %v", again, err)
		}
	}
	if _, err := os.Stat(part); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a part is left: %v", err)
	}
}

// FuzzTable reads arbitrary bytes as a copy.
func FuzzTable(f *testing.F) {
	for _, n := range []int{0, 100, FrameBytes + 1} {
		var b bytes.Buffer
		w := &writer{to: &b, wrote: func() {}}
		if err := w.all(context.Background(), bytes.NewReader(content(n))); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := readTable(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		if frames := int64(len(x.starts) - 1); x.size > frames*FrameBytes || x.starts[frames] > int64(len(b)) {
			t.Fatalf("%d frames have %d bytes, and %d unpacked", frames, x.starts[frames], x.size)
		}
	})
}
