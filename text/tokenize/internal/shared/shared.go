// Package shared lets the processes of a host have one copy of equal tables: a file that each of them maps.
//
// The name of the file is the digest of its content. A process maps a file only if its bytes are those of the tables
// that the process has made itself. So a damaged file changes no table, and no format has a version.
package shared

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/crypto/blake2b"
	"golang.org/x/sys/unix"
)

// Table is an immutable slice of values without pointers.
type Table struct {
	bytes []byte
	move  func(to []byte)
}

// Of returns the table of a slice.
func Of[T any](s *[]T) Table {
	var one T
	data := unsafe.SliceData(*s)
	return Table{
		bytes: unsafe.Slice((*byte)(unsafe.Pointer(data)), uintptr(len(*s))*unsafe.Sizeof(one)),
		move:  func(to []byte) { *s = unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(to))), len(*s)) },
	}
}

// At returns the table of an array.
func At[T any](p **T) Table {
	return Table{
		bytes: unsafe.Slice((*byte)(unsafe.Pointer(*p)), unsafe.Sizeof(**p)),
		move:  func(to []byte) { *p = (*T)(unsafe.Pointer(unsafe.SliceData(to))) },
	}
}

// align is the alignment of tables in a file: a cache line.
const align = 64

// Map moves tables to a file of a directory, mapped for reading. The first process of a host writes the file. The
// mapping lasts as long as the process. After an error the tables are where they were.
func Map(dir string, tables ...Table) error {
	content, err := layOut(tables)
	if err != nil {
		return fmt.Errorf("lay out tables: %w", err)
	}
	path := filepath.Join(dir, content.name)
	mapped, err := open(path, content)
	if errors.Is(err, errOther) || errors.Is(err, fs.ErrNotExist) {
		if err = write(path, content, errors.Is(err, errOther)); err == nil {
			mapped, err = open(path, content)
		}
	}
	if err != nil {
		return fmt.Errorf("share tables between the processes of this host: %w", err)
	}
	for i, t := range tables {
		if at := content.offsets[i]; len(t.bytes) > 0 {
			t.move(mapped[at : at+len(t.bytes)])
		}
	}
	return nil
}

// layout is the content of a file: tables, each at its offset, and zeros between them.
type layout struct {
	tables  []Table
	offsets []int
	size    int
	name    string
}

func layOut(tables []Table) (*layout, error) {
	l := &layout{tables: tables}
	digest, err := blake2b.New(16, nil)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		l.offsets = append(l.offsets, l.size)
		l.size += (len(t.bytes) + align - 1) &^ (align - 1)
		fmt.Fprintf(digest, "%d:", len(t.bytes))
		digest.Write(t.bytes)
	}
	l.name = hex.EncodeToString(digest.Sum(nil)) + ".tables"
	return l, nil
}

// errOther says that a file has other content than its name says.
var errOther = errors.New("its content is damaged")

// open maps the file if it has the content.
func open(path string, content *layout) (mapped []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != int64(content.size) {
		return nil, fmt.Errorf("read %s: %w", path, errOther)
	}
	mapped, err = unix.Mmap(int(f.Fd()), 0, content.size, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	for i, t := range content.tables {
		if at := content.offsets[i]; !bytes.Equal(mapped[at:at+len(t.bytes)], t.bytes) {
			return nil, errors.Join(fmt.Errorf("read %s: %w", path, errOther), unix.Munmap(mapped))
		}
	}
	return mapped, nil
}

// write makes the file. If another process made it meanwhile, that file stays, so that both map the same one. instead:
// the file replaces one with other content.
func write(path string, content *layout, instead bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	for i, t := range content.tables {
		if _, err := f.WriteAt(t.bytes, int64(content.offsets[i])); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := errors.Join(f.Truncate(int64(content.size)), f.Close()); err != nil {
		return err
	}
	if instead {
		return os.Rename(f.Name(), path)
	}
	if err := os.Link(f.Name(), path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
