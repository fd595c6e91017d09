// Package arena shares memory between the processes of one host: the owner makes an arena, and a peer that learns its
// name writes to it. The owner decides about the use of an arena; nothing in it is locked.
package arena

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Space makes and opens arenas. Host does so on this host, arenatest.Memory in a simulation.
type Space interface {
	// Create makes an arena with room for that many tokens. The caller owns it.
	Create(tokens int) (*Arena, error)
	// Open maps the arena of a name, which its owner has passed on.
	Open(name string) (*Arena, error)
}

// Arena is shared memory for tokens. Close ends the view of this process; no slice of Tokens may be used after it. The
// memory is free when no process has a view.
type Arena struct {
	Name   string
	Tokens []uint32
	close  func() error
}

// New returns an arena over given memory, for implementations of Space.
func New(name string, tokens []uint32, close func() error) *Arena { return &Arena{name, tokens, close} }

// Close ends the view.
func (a *Arena) Close() error { return a.close() }

// Host makes arenas of memfds. A peer reopens them at /proc, as a process of the same user may. They are sealed against
// a change of their size, so that no process can make an access of another one fail.
type Host struct{}

var _ Space = Host{}

// A name is /proc/PID/fd/N:LABEL. The label is random and part of the memfd's name: a descriptor number that is used
// again never passes for the arena.
const prefix = "millrace-arena-"

const seals = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL

// Create implements Space.
func (Host) Create(tokens int) (*Arena, error) {
	var random [12]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("make arena: %w", err)
	}
	label := prefix + hex.EncodeToString(random[:])
	fd, err := unix.MemfdCreate(label, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make arena: %w", err)
	}
	file := os.NewFile(uintptr(fd), label)
	if err = unix.Ftruncate(fd, 4*int64(tokens)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make arena of %d tokens: %w", tokens, err), file.Close())
	}
	// The descriptor stays open for the peer, which opens it by its number.
	return view(fmt.Sprintf("/proc/%d/fd/%d:%s", os.Getpid(), fd, label), fd, file.Close)
}

// Open implements Space.
func (Host) Open(name string) (*Arena, error) {
	path, label, ok := strings.Cut(name, ":")
	if !ok || !strings.HasPrefix(path, "/proc/") || !strings.HasPrefix(label, prefix) {
		return nil, fmt.Errorf("open arena %q: want a name like /proc/123/fd/4:%s…", name, prefix)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open arena: %w", err)
	}
	defer file.Close() // a view needs no descriptor
	if err := check(file, label); err != nil {
		return nil, fmt.Errorf("open arena %s: %w", name, err)
	}
	return view(name, int(file.Fd()), func() error { return nil })
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

// view maps a descriptor. release is called after the view.
func view(name string, fd int, release func() error) (*Arena, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && st.Size < 4 {
		err = fmt.Errorf("it has %d bytes", st.Size)
	}
	var memory []byte
	if err == nil {
		memory, err = unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map arena %s: %w", name, err), release())
	}
	tokens := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/4)
	return New(name, tokens, func() error { return errors.Join(unix.Munmap(memory), release()) }), nil
}
