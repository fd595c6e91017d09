package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

// The names of a store's files.
const (
	entryExt   = ".tokens"
	blocksExt  = ".blocks"
	fillPrefix = ".fill-"
	usedName   = ".used" // bytes of all entries and of those being written; locked while it is changed
)

// errNoRoom is the error of an entry for which the limit has no room.
var errNoRoom = errors.New("the limit has no room for it")

// room counts the bytes of a store's files against its limit, for all processes of a host. Each change of a file's size
// goes through it, so the files never exceed the limit together.
type room struct {
	dir     string
	ext     string // of entries
	limit   int64
	fs      FS
	started time.Time // entries used since then stay
	isFixed bool      // the directory can only be read
	evicted atomic.Uint64
}

// errReadOnly is the error of a change in a directory that can only be read.
var errReadOnly = errors.New("the directory of the cache is read-only")

// open prepares the directory. One that can be read and not be written stays as it is.
func (r *room) open() error {
	err := os.MkdirAll(r.dir, 0o755)
	if err == nil {
		err = r.change(0, func() (int64, error) { return 0, nil })
	}
	if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) {
		if _, failed := r.list(); failed == nil {
			r.isFixed, err = true, nil
		}
	}
	return err
}

// change runs act while no other process changes the store's sizes. act returns the bytes by which the files grew, also
// with an error. Before that, change makes room for `more` bytes by removing entries.
func (r *room) change(more int64, act func() (grown int64, err error)) error {
	if r.isFixed {
		return errReadOnly
	}
	f, err := os.OpenFile(filepath.Join(r.dir, usedName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("count the bytes of the cache: %w", err)
	}
	defer f.Close()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil || !errors.Is(err, unix.EINTR) {
			break // without locks the limit holds for each process
		}
	}
	used, known := readUsed(f)
	if !known || used+more > r.limit {
		if used, err = r.makeRoom(more); err != nil {
			return err
		}
	}
	if used+more > r.limit {
		return errors.Join(writeUsed(f, used), errNoRoom)
	}
	grown, err := act()
	return errors.Join(err, writeUsed(f, used+grown))
}

// The count of bytes is a number and its hash.
func readUsed(f *os.File) (used int64, known bool) {
	var b [16]byte
	if n, _ := f.ReadAt(b[:], 0); n != len(b) || xxh3.Hash(b[:8]) != binary.LittleEndian.Uint64(b[8:]) {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(b[:])), true
}

func writeUsed(f *os.File, used int64) error {
	b := binary.LittleEndian.AppendUint64(nil, uint64(max(used, 0)))
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(b, xxh3.Hash(b)), 0); err != nil {
		return fmt.Errorf("count the bytes of the cache: %w", err)
	}
	return nil
}

// stored is a file of the store.
type stored struct {
	path string
	size int64
	used time.Time // when a process last opened it
	fill bool      // it is being written, or its writer died
}

// list returns the store's files.
func (r *room) list() ([]stored, error) {
	names, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("list the cache: %w", err)
	}
	var out []stored
	for _, n := range names {
		fill := strings.HasPrefix(n.Name(), fillPrefix)
		if !fill && filepath.Ext(n.Name()) != r.ext {
			continue
		}
		st, err := n.Info()
		if err != nil {
			continue // removed meanwhile
		}
		size := st.Size()
		if sys, ok := st.Sys().(*syscall.Stat_t); ok && r.ext == blocksExt { // they have holes
			size = sys.Blocks * 512
		}
		out = append(out, stored{filepath.Join(r.dir, n.Name()), size, st.ModTime(), fill})
	}
	return out, nil
}

// makeRoom removes entries until the limit has room for `more` bytes, and returns the bytes of the files that are left.
// The files of dead writers go first, then entries by their last use. An entry stays if a process has it open, or if it
// was used since this store was opened: passes over a set larger than the cache would else remove each entry just
// before its next use.
func (r *room) makeRoom(more int64) (used int64, err error) {
	all, err := r.list()
	if err != nil {
		return 0, err
	}
	slices.SortFunc(all, func(a, b stored) int {
		if a.fill != b.fill {
			if a.fill {
				return -1
			}
			return 1
		}
		return a.used.Compare(b.used)
	})
	for _, s := range all {
		used += s.size
	}
	for _, s := range all {
		old := s.used.Before(r.started)
		if (s.fill || used+more > r.limit && old) && r.remove(s.path) {
			used -= s.size
			if !s.fill {
				r.evicted.Add(1)
			}
		}
	}
	return used, nil
}

// remove removes a file unless a process has it open.
func (r *room) remove(path string) bool {
	f, err := r.fs.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Lock(true) && f.IsAt(path) && r.fs.Remove(path) == nil
}
