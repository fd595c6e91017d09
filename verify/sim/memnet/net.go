// Package memnet is a network in memory, for tests that run roles in one process. Its weather and its caller delay, cut
// and reset the streams of bytes. It waits with package time, so its time is virtual inside a synctest bubble.
package memnet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"millrace/internal/seam"
)

// Weather sets the behaviour of new connections. With the zero value they take no time and lose nothing.
type Weather struct {
	Latency time.Duration // one way; each connection draws its own from 0 to this
	Jitter  time.Duration // each write draws a delay from 0 to this; writes stay in order
	Bytes   int           // bytes per second in one direction; 0: no limit
	Read    int           // most bytes that one Read returns; 0: no limit
	// Fuse resets a connection in the middle of a write, after a number of bytes drawn from 1 to twice this; 0: never.
	Fuse int
}

// Net is a network. It is also the seam of one host without faults; Host makes other hosts.
type Net struct {
	mu        sync.Mutex
	listeners map[string]*listener
	weather   Weather
	rng       *rand.Rand
	near      func(a, b string) bool // no weather between hosts of these names
	held      map[way]int            // number of holds of a way
	frozen    map[*Host]int          // number of freezes of a host
	changed   chan struct{}          // closed and replaced when a hold ends
	home      *Host
}

// way is a direction between two hosts, by name.
type way struct{ from, to string }

var _ seam.Net = (*Net)(nil)

// New returns a network with the zero weather and without listeners.
func New() *Net {
	n := &Net{
		listeners: map[string]*listener{},
		rng:       rand.New(rand.NewPCG(0, 0)),
		near:      func(string, string) bool { return false },
		held:      map[way]int{},
		frozen:    map[*Host]int{},
		changed:   make(chan struct{}),
	}
	n.home = n.Host("")
	return n
}

// Blow sets the weather of new connections. Its randomness comes from the seed.
func (n *Net) Blow(w Weather, seed uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.weather, n.rng = w, rand.New(rand.NewPCG(seed, 7))
}

// Near names the pairs of hosts whose connections have no weather, such as processes of one machine.
func (n *Net) Near(near func(a, b string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.near = near
}

// Listen implements seam.Net. A new listener replaces the old one of its address, like a restarted process.
func (n *Net) Listen(address string) (net.Listener, error) { return n.home.Listen(address) }

// Dial implements seam.Net. It fails at once without a listener.
func (n *Net) Dial(ctx context.Context, address string) (net.Conn, error) {
	return n.home.Dial(ctx, address)
}

// Cut ends all connections that an address has accepted, in order. Bytes written before still arrive. The listener
// stays.
func (n *Net) Cut(address string) error {
	for _, c := range n.accepted(address) {
		_ = c.Close() // Close never fails
	}
	return nil
}

// Reset ends at once all connections that an address has accepted, and loses the bytes in flight.
func (n *Net) Reset(address string) {
	for _, c := range n.accepted(address) {
		c.reset()
	}
}

func (n *Net) accepted(address string) []*conn {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	conns := l.conns
	l.conns = nil
	return conns
}

// Hold delays all bytes from one host to another, by name, until release is called.
func (n *Net) Hold(from, to string) (release func()) {
	w := way{from, to}
	return n.hold(func(by int) { n.held[w] += by })
}

// hold counts a hold until release is called. release wakes the waiting streams.
func (n *Net) hold(count func(by int)) (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	count(1)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		count(-1)
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

// holds reports whether bytes from one host to another are held now. The channel closes when that may have changed.
func (n *Net) holds(from, to *Host) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.held[way{from.name, to.name}] > 0 || n.frozen[from] > 0 || n.frozen[to] > 0, n.changed
}

// clear waits until bytes from one host to another are not held.
func (n *Net) clear(ctx context.Context, from, to *Host) error {
	for {
		held, changed := n.holds(from, to)
		if !held {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connect makes a connection between two hosts.
func (n *Net) connect(from, to *Host, address string) (near, far *conn) {
	n.mu.Lock()
	w := n.weather
	if n.near(from.name, to.name) {
		w = Weather{}
	}
	draw := func(most time.Duration) time.Duration {
		if most <= 0 {
			return 0
		}
		return time.Duration(n.rng.Int64N(int64(most) + 1))
	}
	var pipes [2]*pipe
	latency := draw(w.Latency)
	for i := range pipes {
		pipes[i] = newPipe(w, n.rng.Uint64())
		pipes[i].latency = latency
	}
	if w.Fuse > 0 {
		pipes[n.rng.IntN(2)].fuse = 1 + n.rng.IntN(2*w.Fuse)
	}
	n.mu.Unlock()
	pipes[0].net, pipes[0].from, pipes[0].to = n, from, to
	pipes[1].net, pipes[1].from, pipes[1].to = n, to, from
	near = &conn{out: pipes[0], in: pipes[1], remote: address, host: from}
	far = &conn{out: pipes[1], in: pipes[0], remote: from.name, host: to}
	pipes[0].blow, pipes[1].blow = near.breakOff, far.breakOff
	return near, far
}

// refused returns the error of a dial without a listener.
func refused(address string) error {
	return fmt.Errorf("dial %s: no listener: %w", address, syscall.ECONNREFUSED)
}
