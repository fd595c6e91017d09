package memnet

import (
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// conn is one end of a connection.
type conn struct {
	out, in *pipe
	remote  string
	host    *Host
	once    sync.Once
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) { return c.in.read(b) }

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close implements net.Conn. The other end reads the written bytes and then the end of the stream.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.out.finish(io.EOF)
		c.in.deafen(net.ErrClosed)
		c.host.leave(c)
	})
	return nil
}

// mute ends only this end. Its later writes are lost, and the other end does not notice.
func (c *conn) mute() {
	c.out.mute()
	c.in.deafen(net.ErrClosed)
	c.host.leave(c)
}

// breakOff breaks the connection for a writer. This end notices at once, the other end after the written bytes.
func (c *conn) breakOff() {
	c.out.finish(syscall.ECONNRESET)
	c.in.deafen(syscall.ECONNRESET)
	c.host.leave(c)
}

// reset ends both ends and loses the bytes in flight.
func (c *conn) reset() {
	c.out.fail(syscall.ECONNRESET)
	c.in.fail(syscall.ECONNRESET)
	c.host.leave(c)
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return place(c.host.name) }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return place(c.remote) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.in.expire(&c.in.readBy, t)
	c.out.expire(&c.out.writeBy, t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.expire(&c.in.readBy, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.expire(&c.out.writeBy, t)
	return nil
}
