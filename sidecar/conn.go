package sidecar

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// sendWithin bounds a send to a client that does not read; the credits keep the queue short for one that does.
const sendWithin = 10 * time.Second

// errGone: no more datagrams will come.
var errGone = errors.New("the client is gone")

// receive reads one datagram.
func receive(c *net.UnixConn, buf []byte) (header, []byte, error) {
	n, err := c.Read(buf)
	for errors.Is(err, unix.ECONNRESET) {
		// The client left without reading all we sent. The error comes first and once; behind it is what the client had said.
		n, err = c.Read(buf)
	}
	if err != nil || n == 0 {
		return header{}, nil, errGone
	}
	h, err := parseHeader(buf[:n])
	if err != nil {
		return header{}, nil, err
	}
	return h, buf[headerSize:n], nil
}

func sendMessage(c *net.UnixConn, wire []byte, m message) error {
	if err := c.SetWriteDeadline(time.Now().Add(sendWithin)); err != nil {
		return err
	}
	var oob []byte
	if m.ring != nil {
		oob = unix.UnixRights(m.ring.Fd())
	}
	for body := m.body; ; {
		n := min(len(body), maxDatagram-headerSize)
		h := m.header
		h.body = uint32(n)
		if n < len(body) {
			h.flags |= flagMore
		}
		wire = append(h.append(wire[:0]), body[:n]...)
		if _, _, err := c.WriteMsgUnix(wire, oob, nil); err != nil {
			return fmt.Errorf("send message %d: %w", h.kind, err)
		}
		if body, oob = body[n:], nil; len(body) == 0 {
			return nil
		}
	}
}

// hasHungUp asks the kernel whether the other end is closed, whatever of it is still unread.
func hasHungUp(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	closed := false
	err = raw.Control(func(fd uintptr) {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, pollErr := unix.Poll(polled, 0)
		closed = pollErr == nil && polled[0].Revents != 0
	})
	return err != nil || closed
}
