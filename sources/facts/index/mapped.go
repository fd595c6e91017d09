package index

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// mapped is a growing file and its mapping. The mapping reaches beyond the end of the file, so that a growing file
// seldom needs another one. Bytes from size on must not be touched.
type mapped struct {
	file File
	prot int
	view []byte
	size int64    // of the file when it was last looked at
	old  [][]byte // mappings that became too short; slices of them are in use until close
}

// leastView is the least size of a mapping. It takes addresses, not memory.
const leastView = 1 << 30

// look updates size, and maps the file again if it outgrew the mapping. gone reports that the file has no name any
// more.
func (m *mapped) look() (gone bool, err error) {
	size, named, err := stat(m.file)
	if err != nil {
		return false, err
	}
	if size > int64(len(m.view)) || m.view == nil {
		if err := m.remap(size); err != nil {
			return false, err
		}
	}
	m.size = size
	return !named, nil
}

func (m *mapped) remap(size int64) error {
	flags := unix.MAP_SHARED
	if m.file.IsReadOnly() {
		flags = unix.MAP_PRIVATE // words that are learned stay in this process
	}
	for length := max(4*size, leastView); ; length = max(length/2, size) {
		view, err := unix.Mmap(int(m.file.Fd()), 0, int(length), m.prot, flags)
		if err == nil {
			if m.view != nil {
				m.old = append(m.old, m.view)
			}
			m.view = view
			return nil
		}
		if !errors.Is(err, unix.ENOMEM) || length <= max(size, 4096) {
			return fmt.Errorf("map %s: %w; it takes %d bytes of addresses and one mapping: raise `ulimit -v` or "+
				"vm.max_map_count", m.file.Name(), err, size)
		}
	}
}

// bytes returns the file up to its last known size.
func (m *mapped) bytes() []byte { return m.view[:m.size] }

// close unmaps and closes the file. Slices of its bytes must not be used any more.
func (m *mapped) close() error {
	if m == nil {
		return nil
	}
	var errs []error
	for _, v := range append(m.old, m.view) {
		if v != nil {
			errs = append(errs, unix.Munmap(v))
		}
	}
	return errors.Join(append(errs, m.file.Close())...)
}
