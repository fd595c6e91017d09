package sidecar

import (
	"fmt"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// peer is the process at the other end. Its pidfd reports its death even if a forked child keeps the socket open.
type peer struct {
	pid   int32 // 0 if the process is in another PID namespace
	uid   uint32
	pidfd *os.File // nil if the kernel gives none; then only the socket shows the end of the process
}

// peerOf returns the process that connected. It refuses a process whose user is not among allowed.
func peerOf(c *net.UnixConn, allowed []uint32) (*peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("identify the client's process: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	fd := -1
	err = raw.Control(func(s uintptr) {
		if cred, credErr = unix.GetsockoptUcred(int(s), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr != nil {
			return
		}
		_ = unix.SetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer)
		_ = unix.SetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer)
		var pidErr error
		if fd, pidErr = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PEERPIDFD); pidErr != nil {
			// Kernels before 6.5 lack SO_PEERPIDFD. If another process got the pid after connect, pidfd is of that one.
			if fd, pidErr = unix.PidfdOpen(int(cred.Pid), 0); pidErr != nil {
				fd = -1
			}
		}
	})
	if err == nil {
		err = credErr
	}
	if err != nil {
		return nil, fmt.Errorf("identify the client's process: %w", err)
	}
	p := &peer{pid: cred.Pid, uid: cred.Uid}
	if fd >= 0 {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("watch the client's process: %w", err)
		}
		p.pidfd = os.NewFile(uintptr(fd), "pidfd")
	}
	if !slices.Contains(allowed, p.uid) {
		p.close()
		return nil, fmt.Errorf("refuse process %d: it belongs to user %d, which may not connect", p.pid, p.uid)
	}
	return p, nil
}

// wait returns true when the process has exited, and false if close was called first.
func (p *peer) wait() bool {
	if p.pidfd == nil {
		return false
	}
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	return raw.Read(hasExited) == nil
}

// exited reports whether the process has exited. It returns false if there is no pidfd.
func (p *peer) exited() bool {
	if p.pidfd == nil {
		return false
	}
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	exited := false
	return raw.Control(func(fd uintptr) { exited = hasExited(fd) }) == nil && exited
}

// hasExited reports whether the process of a pidfd has exited.
func hasExited(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

func (p *peer) close() {
	if p.pidfd != nil {
		_ = p.pidfd.Close()
	}
}
