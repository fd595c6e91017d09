package sidecar

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sendWithin limits a send to a client that does not read. For a client that reads, the frames limit the queue.
	sendWithin = 10 * time.Second
	// partWithin limits the time in which a client reads the reason of its refusal or disconnection.
	partWithin = 2 * time.Second
)

// errGone is the error if the client will send no more datagrams.
var errGone = errors.New("the client is gone")

// receive reads one datagram.
func receive(c *net.UnixConn, buf []byte) (header, []byte, error) {
	n, err := c.Read(buf)
	for errors.Is(err, unix.ECONNRESET) {
		// The client left with unread messages. This error comes once, before the datagrams that the client had sent.
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

// sendMessage sends a message in one or more datagrams. wire is its buffer and may be nil.
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
		wire = append(h.appendTo(wire[:0]), body[:n]...)
		if _, _, err := c.WriteMsgUnix(wire, oob, nil); err != nil {
			return fmt.Errorf("send message %d: %w", h.kind, err)
		}
		if body, oob = body[n:], nil; len(body) == 0 {
			return nil
		}
	}
}

// hasHungUp reports whether the other end is closed, even if some of its datagrams are still unread.
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
