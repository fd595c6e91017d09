package etcdtest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Relay passes connections to a member on, after a delay, or not at all.
type Relay struct {
	URL    string
	to     string
	l      net.Listener
	pipes  sync.WaitGroup
	mu     sync.Mutex
	change sync.Cond
	delay  time.Duration
	isCut  bool
	taken  int
	held   int // reads whose bytes wait for the end of a cut
	conns  map[net.Conn]bool
}

// NewRelay returns a relay to a member without encryption. It ends with the test.
func NewRelay(t testing.TB, to *Member) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{URL: "http://" + l.Addr().String(), to: to.Address, l: l, conns: map[net.Conn]bool{}}
	r.change.L = &r.mu
	r.pipes.Go(r.serve)
	t.Cleanup(func() {
		l.Close()
		r.Cut(false)
		r.Drop()
		r.pipes.Wait()
	})
	return r
}

// Delay makes all bytes wait for a time, in each direction.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

// Cut makes all bytes wait until the relay is no longer cut. No end learns of it.
func (r *Relay) Cut(isCut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isCut = isCut
	r.change.Broadcast()
}

// Taken returns how many connections were made to the relay.
func (r *Relay) Taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// Holds reports whether bytes have come that wait for the end of a cut.
func (r *Relay) Holds() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held > 0
}

// Drop closes all connections.
func (r *Relay) Drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.Close()
	}
	clear(r.conns)
}

// serve accepts connections until the listener is closed.
func (r *Relay) serve() {
	for {
		in, err := r.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", r.to)
		if err != nil {
			in.Close()
			continue
		}
		r.mu.Lock()
		r.taken++
		r.conns[in], r.conns[out] = true, true
		r.mu.Unlock()
		r.pipes.Go(func() { r.pass(in, out) })
		r.pipes.Go(func() { r.pass(out, in) })
	}
}

// parcel is bytes and the time at which they are due.
type parcel struct {
	bytes []byte
	due   time.Time
}

// pass copies one direction of a connection.
func (r *Relay) pass(from, to net.Conn) {
	defer to.Close()
	defer from.Close()
	parcels := make(chan parcel, 1024)
	r.pipes.Go(func() {
		for p := range parcels {
			time.Sleep(time.Until(p.due))
			r.mu.Lock()
			r.held++
			for r.isCut {
				r.change.Wait()
			}
			r.held--
			r.mu.Unlock()
			if _, err := to.Write(p.bytes); err != nil {
				from.Close()
			}
		}
	})
	defer close(parcels)
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		r.mu.Lock()
		due := time.Now().Add(r.delay)
		r.mu.Unlock()
		if n > 0 {
			parcels <- parcel{buffer[:n], due}
		}
		if err != nil {
			return
		}
	}
}
