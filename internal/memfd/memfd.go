// Package memfd makes the memory that processes of one host share: mapped memfds of a fixed size.
package memfd

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory is one mapped memfd. It is sealed against a change of its size: an access by one process cannot fail because
// of another process. Bytes may not be used after Close.
type Memory struct {
	Bytes []byte
	file  *os.File // nil: another process owns it, and a mapping needs no descriptor
	label string
}

// seals protect the size of a memfd, and the seals themselves. readOnly refuses further writable mappings: the mapping
// of the owner stays writable (Linux 5.1).
const (
	seals    = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	readOnly = unix.F_SEAL_FUTURE_WRITE
)

const prefix = "millrace-"

// Create makes, seals and maps a memfd. The caller owns it. kind is a part of its name in /proc.
func Create(kind string, bytes int64) (*Memory, error) { return createSealed(kind, bytes, seals) }

// CreateReadOnly is as Create, but every other process can only read the memory.
func CreateReadOnly(kind string, bytes int64) (*Memory, error) {
	return createSealed(kind, bytes, seals|readOnly)
}

func createSealed(kind string, bytes int64, seals int) (*Memory, error) {
	var random [12]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("name memfd: %w", err)
	}
	label := prefix + kind + "-" + hex.EncodeToString(random[:])
	fd, err := unix.MemfdCreate(label, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create memfd: %w", err)
	}
	m := &Memory{file: os.NewFile(uintptr(fd), label), label: label}
	if err = unix.Ftruncate(fd, bytes); err != nil {
		err = fmt.Errorf("size memfd: %w", err)
	} else if err = m.mapAll(fd); err == nil { // before the seals, which may refuse a writable mapping
		if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			err = fmt.Errorf("seal memfd: %w", err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Name returns a name under which a process of the same user can open the memory, as long as the owner has it open:
// /proc/PID/fd/N:LABEL. The label is random and part of the memfd's name. So a descriptor number that is used again
// never passes for the memory.
func (m *Memory) Name() string { return fmt.Sprintf("/proc/%d/fd/%d:%s", os.Getpid(), m.Fd(), m.label) }

// Open maps the memory of a name. The memory stays valid after the owner has closed it or died.
func Open(name string) (*Memory, error) {
	path, label, ok := strings.Cut(name, ":")
	if !ok || !strings.HasPrefix(path, "/proc/") || !strings.HasPrefix(label, prefix) {
		return nil, fmt.Errorf("open shared memory %q: want a name like /proc/123/fd/4:%s…", name, prefix)
	}
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0) // opening a pipe must not wait
	if err != nil {
		return nil, fmt.Errorf("open shared memory: %w", err)
	}
	defer file.Close()
	m := &Memory{label: label}
	if err = check(file, label); err == nil {
		err = m.mapAll(int(file.Fd()))
	}
	if err != nil {
		return nil, fmt.Errorf("open shared memory %s: %w", name, err)
	}
	return m, nil
}

// check refuses a file that is not the sealed memfd with a label.
func check(file *os.File, label string) error {
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return err
	}
	if want := "/memfd:" + label + " (deleted)"; link != want {
		return fmt.Errorf("it is %s now: its owner has closed it", link)
	}
	sealed, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return err
	}
	if sealed&unix.F_SEAL_SHRINK == 0 {
		return errors.New("it is not sealed against shrinking")
	}
	return nil
}

// mapAll maps the whole memfd.
func (m *Memory) mapAll(fd int) error {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil {
		m.Bytes, err = unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return fmt.Errorf("map %d bytes: %w", st.Size, err)
	}
	return nil
}

// Fd returns the descriptor of memory that this process has created. It is valid until Close.
func (m *Memory) Fd() int { return int(m.file.Fd()) }

// Populate makes every page present, so that no later access has to wait for one. On kernels before 5.14, which lack
// MADV_POPULATE_WRITE, it writes to each page: no other user of the memory may exist yet.
func (m *Memory) Populate() error {
	// Huge pages are optional: most systems disable them for shared memory.
	_ = unix.Madvise(m.Bytes, unix.MADV_HUGEPAGE)
	err := unix.Madvise(m.Bytes, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) {
		for i := 0; i < len(m.Bytes); i += os.Getpagesize() {
			m.Bytes[i] = 0
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("touch %d bytes of shared memory (raise the memory limit of this process or lower the "+
			"batch size): %w", len(m.Bytes), err)
	}
	return nil
}

// Close unmaps the memory. It is free when no process maps it or has a descriptor of it.
func (m *Memory) Close() error {
	var errs []error
	if m.Bytes != nil {
		errs = append(errs, unix.Munmap(m.Bytes))
		m.Bytes = nil
	}
	if m.file != nil {
		errs = append(errs, m.file.Close())
		m.file = nil
	}
	return errors.Join(errs...)
}
