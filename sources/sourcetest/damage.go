package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace"
	"millrace/sources"
)

// Bounds of one attempt to read a damaged shard.
const (
	mostTime = 20 * time.Second
	mostRead = 1 << 20 // records after which the reader counts as endless
)

// Damage cuts every file of the fixtures and flips its bits, at samples of a long file. Reading must end in time,
// without a panic and within the allocated bytes an attempt. It must give records, bad samples, or an error that names
// the damaged file and is ErrDamaged or ErrInvalid.
func Damage(t *testing.T, mk New, fixtures []Fixture, allocated uint64) {
	for _, f := range fixtures {
		t.Run(f.Name, func(t *testing.T) {
			s, err := f.open(t.Context(), f.Files, mk, nil)
			if err != nil {
				t.Fatal(err)
			}
			all, err := scan(t.Context(), s, 0)
			if err != nil {
				t.Fatal(err)
			}
			for path, b := range f.Files {
				for _, n := range sample(len(b), 60) {
					f.damage(t, mk, path, b[:n], fmt.Sprintf("cut to %d of %d bytes", n, len(b)), allocated, nil)
				}
				for _, at := range sampleFlips(len(b)) {
					for _, bit := range []byte{1, 0x80, 0xff} {
						flipped := bytes.Clone(b)
						flipped[at] ^= bit
						f.damage(t, mk, path, flipped, fmt.Sprintf("byte %d of %d xor %#x", at, len(b), bit), allocated,
							all)
					}
				}
			}
		})
	}
}

func sampleFlips(n int) []int {
	step := max(1, n/150)
	var out []int
	for i := 0; i < n; i++ {
		if i < 40 || i >= n-40 || i%step == 0 {
			out = append(out, i)
		}
	}
	return out
}

// damage reads one damaged shard in all ways. all are the records of the whole file; nil: a difference is allowed.
func (f Fixture) damage(t *testing.T, mk New, path string, b []byte, what string, allocated uint64, all []record) {
	t.Helper()
	files := Files{}
	for p, whole := range f.Files {
		files[p] = whole
	}
	files[path] = b
	ctx, cancel := context.WithTimeout(t.Context(), mostTime)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := f.attempt(ctx, files, mk)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > allocated {
		t.Errorf("%s: %s: reading allocated %d bytes, bound is %d", path, what, n, allocated)
	}
	switch {
	case errors.Is(err, errPanic), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errEndless):
		t.Errorf("%s: %s: %v", path, what, err)
	case err != nil && !errors.Is(err, millrace.ErrDamaged) && !errors.Is(err, millrace.ErrInvalid):
		t.Errorf("%s: %s: got an error that is not ErrDamaged: %v", path, what, err)
	case err != nil && !strings.Contains(err.Error(), f.path()) && !strings.Contains(err.Error(), path):
		t.Errorf("%s: %s: the error does not name the file: %v", path, what, err)
	case err == nil && f.Checked && all != nil && !slices.EqualFunc(got, all, record.equal):
		t.Errorf("%s: %s: the records changed without an error", path, what)
	}
}

var (
	errPanic   = errors.New("panic")
	errEndless = errors.New("the records do not end")
)

// attempt opens, scans, indexes and reads a shard as a run would.
func (f Fixture) attempt(ctx context.Context, files Files, mk New) (got []record, err error) {
	defer func() {
		if r := recover(); r != nil {
			buf := make([]byte, 4<<10)
			err = fmt.Errorf("%w: %v\n%s", errPanic, r, buf[:runtime.Stack(buf, false)])
		}
	}()
	s, err := f.open(ctx, files, mk, nil)
	if err != nil {
		return nil, err
	}
	err = s.Scan(ctx, 0, func(r sources.Record) error {
		if got = append(got, keep(r)); len(got) > mostRead {
			return errEndless
		}
		return nil
	})
	if err != nil {
		return got, err
	}
	blob, err := s.Index(ctx, func(int64) {})
	if err != nil {
		return got, err
	}
	if s, err = f.open(ctx, files, mk, blob); err != nil {
		return got, err
	}
	if !s.Seekable() {
		return got, nil
	}
	var numbers []uint64
	for i := 0; i < len(got); i += 1 + len(got)/16 {
		numbers = append(numbers, uint64(i))
	}
	read, err := read(ctx, s, numbers)
	for i, r := range read {
		if !r.equal(got[numbers[i]]) {
			return got, fmt.Errorf("%w: record %d is %v when scanned and %v when read", errPanic, numbers[i],
				got[numbers[i]], r)
		}
	}
	return got, err
}

// Fuzz reads one shard of arbitrary bytes. It fails on a panic, an endless read, records that differ between scan and
// read, or an error other than ErrDamaged and ErrInvalid.
func Fuzz(t *testing.T, mk New, f Fixture) {
	ctx, cancel := context.WithTimeout(t.Context(), mostTime)
	defer cancel()
	_, err := f.attempt(ctx, f.Files, mk)
	if err != nil && !errors.Is(err, millrace.ErrDamaged) && !errors.Is(err, millrace.ErrInvalid) {
		t.Fatal(err)
	}
}
