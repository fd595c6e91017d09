// Package memnet is a network in memory, for roles that run in one process under test: real gRPC over pipes.
package memnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc/test/bufconn"

	"millrace/internal/seam"
)

// bufferBytes is what a connection holds in each direction before its writer waits.
const bufferBytes = 256 << 10

// Net is a network in memory. A new listener takes an address over from an old one, as a restarted process does.
type Net struct {
	mu        sync.Mutex
	listeners map[string]*listener
}

var _ seam.Net = (*Net)(nil)

// New returns a network on which nobody listens.
func New() *Net { return &Net{listeners: map[string]*listener{}} }

// Listen implements seam.Net.
func (n *Net) Listen(address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{Listener: bufconn.Listen(bufferBytes)}
	n.listeners[address] = l
	return l, nil
}

// Dial implements seam.Net. It fails at once where nobody listens.
func (n *Net) Dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: nobody listens", address)
	}
	c, err := l.DialContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return c, nil
}

// Cut ends all connections to an address. The listener stays.
func (n *Net) Cut(address string) error {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// listener remembers what it accepted.
type listener struct {
	*bufconn.Listener
	mu    sync.Mutex
	conns []net.Conn
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(slices.Clip(l.conns), c)
	return c, nil
}
