package memnet

import (
	"context"
	"fmt"
	"net"
	"sync"

	"millrace/internal/seam"
)

// Host is the network of one process. Two lives of a process are two hosts with one name.
type Host struct {
	net  *Net
	name string

	mu        sync.Mutex
	dead      bool
	conns     map[*conn]bool // the own ends of connections
	listeners []*listener
}

var _ seam.Net = (*Host)(nil)

// Host returns a new host. Hold finds it by its name.
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

// Dial implements seam.Net. It takes one round trip. It waits for an unreachable host, and fails at once if the host
// does not listen.
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

// Ask blocks while bytes to a name are held. A dead host waits until ctx ends.
func (h *Host) Ask(ctx context.Context, to string) error {
	return h.pass(ctx, h, &Host{name: to})
}

// Answer blocks while bytes from a name are held. A dead host waits until ctx ends.
func (h *Host) Answer(ctx context.Context, from string) error {
	return h.pass(ctx, &Host{name: from}, h)
}

func (h *Host) pass(ctx context.Context, from, to *Host) error {
	if err := h.net.clear(ctx, from, to); err != nil {
		return err
	}
	h.mu.Lock()
	dead := h.dead
	h.mu.Unlock()
	if dead {
		<-ctx.Done()
	}
	return ctx.Err()
}

// join adds a connection to the host, and reports false if the host is dead.
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

// Die plays a kill -9. Bytes written before still arrive, then the end of the stream.
func (h *Host) Die() {
	for _, c := range h.end() {
		_ = c.Close() // Close never fails
	}
}

// Vanish plays a power cut. Unlike after Die, the other ends of the connections do not notice. They stay open and
// silent until the returned function resets them, like a kernel after its timeout.
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
		_ = l.Close() // Close never fails
	}
	return conns
}

// Freeze delays all bytes from and to the host until thaw is called.
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

// take queues a connection. It returns false if the listener is closed.
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

// Close implements net.Listener. It resets connections that were not accepted.
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
