package memnet

import (
	"context"
	"fmt"
	"net"
	"sync"

	"millrace/internal/seam"
)

// Host is the network as one process has it. Two lives of a process are two hosts of one name.
type Host struct {
	net  *Net
	name string

	mu        sync.Mutex
	dead      bool
	conns     map[*conn]bool // both ends of a connection belong to a host each
	listeners []*listener
}

var _ seam.Net = (*Host)(nil)

// Host returns a new host. Holds know it by its name.
func (n *Net) Host(name string) *Host { return &Host{net: n, name: name, conns: map[*conn]bool{}} }

// Listen implements seam.Net.
func (h *Host) Listen(address string) (net.Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return nil, fmt.Errorf("listen at %s: %w", address, net.ErrClosed)
	}
	l := &listener{host: h, address: address, queue: make(chan *conn, 64), over: make(chan struct{})}
	h.listeners = append(h.listeners, l)
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.net.listeners[address] = l
	return l, nil
}

// Dial implements seam.Net: it takes a way there and back. A host that cannot be reached is waited for, one that does not listen is not.
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error) {
	h.net.mu.Lock()
	l := h.net.listeners[address]
	h.net.mu.Unlock()
	if l == nil {
		return nil, refused(address)
	}
	if err := h.net.clear(ctx, h, l.host); err != nil {
		return nil, err
	}
	if err := h.net.clear(ctx, l.host, h); err != nil {
		return nil, err
	}
	near, far := h.net.connect(h, l.host, address)
	if !h.join(near) || !l.host.join(far) || !l.take(far) {
		near.reset()
		return nil, refused(address)
	}
	if err := near.out.pause(ctx); err != nil {
		near.reset()
		return nil, err
	}
	return near, nil
}

// join notes a connection of the host; a dead one has none.
func (h *Host) join(c *conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return false
	}
	h.conns[c] = true
	return true
}

func (h *Host) leave(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
}

// Die is kill -9 as the network sees it. Bytes written before arrive, then the end of the stream. Nothing follows.
func (h *Host) Die() {
	for _, c := range h.end() {
		_ = c.Close() // never fails
	}
}

// Vanish is what the network sees of a power cut: as Die, but nobody is told. The other ends of its connections stay open, silent, until
// the function that is returned resets them, as a kernel does when its patience ends.
func (h *Host) Vanish() (giveUp func()) {
	conns := h.end()
	for _, c := range conns {
		c.mute()
	}
	return func() {
		for _, c := range conns {
			c.reset()
		}
	}
}

func (h *Host) end() []*conn {
	h.mu.Lock()
	h.dead = true
	listeners := h.listeners
	conns := make([]*conn, 0, len(h.conns))
	for c := range h.conns {
		conns = append(conns, c)
	}
	h.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close() // never fails
	}
	return conns
}

// Freeze holds up everything that comes from the host or goes to it, until thaw is called.
func (h *Host) Freeze() (thaw func()) {
	return h.net.hold(func(by int) { h.net.frozen[h] += by })
}

// listener hands out dialled connections and remembers them.
type listener struct {
	host    *Host
	address string
	queue   chan *conn
	closing sync.Once
	over    chan struct{}

	mu    sync.Mutex
	conns []*conn
}

// take queues a connection; false where nobody accepts any more.
func (l *listener) take(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.over:
		return false
	default:
	}
	select {
	case l.queue <- c:
		l.conns = append(l.conns, c)
		return true
	default:
		return false
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.over:
		return nil, fmt.Errorf("accept at %s: %w", l.address, net.ErrClosed)
	}
}

// Close implements net.Listener. Connections that nobody accepted are reset.
func (l *listener) Close() error {
	l.closing.Do(func() {
		l.mu.Lock()
		close(l.over)
		l.mu.Unlock()
		n := l.host.net
		n.mu.Lock()
		if n.listeners[l.address] == l {
			delete(n.listeners, l.address)
		}
		n.mu.Unlock()
		for {
			select {
			case c := <-l.queue:
				c.reset()
			default:
				return
			}
		}
	})
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return place(l.address) }

// place is an address of this network.
type place string

// Network implements net.Addr.
func (place) Network() string { return "memory" }

// String implements net.Addr.
func (p place) String() string { return string(p) }
