package memnet

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"
)

// bufferBytes is the size of the buffer of each direction. A writer waits when it is full.
const bufferBytes = 256 << 10

// segment is the bytes of one write, or the end of the stream.
type segment struct {
	due time.Time
	b   []byte
	end error
}

// pipe is one direction. It has one reader and one writer at a time.
type pipe struct {
	net      *Net
	from, to *Host
	weather  Weather
	latency  time.Duration
	blow     func() // breaks the connection after the written bytes

	ready, room chan struct{} // a token each for the reader and the writer to look again

	mu              sync.Mutex
	rng             *rand.Rand
	queue           []segment
	size            int       // bytes queued
	last            time.Time // arrival time of the last segment
	fuse            int       // bytes until the connection breaks; 0: never
	failed          error     // both ends notice at once
	silent          bool      // written bytes are lost
	readBy, writeBy time.Time
}

func newPipe(w Weather, seed uint64) *pipe {
	p := &pipe{weather: w, ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	if w.Jitter > 0 {
		p.rng = rand.New(rand.NewPCG(seed, 3))
	}
	return p
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wait blocks until the channel has a token, the time has come (never if it is zero), or a hold ends. The pipe is not
// locked.
func wait(token <-chan struct{}, until time.Time, changed <-chan struct{}) {
	if until.IsZero() {
		select {
		case <-token:
		case <-changed:
		}
		return
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-token:
	case <-changed:
	case <-timer.C:
	}
}

// sooner returns the earlier of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (p *pipe) read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		now, until := time.Now(), p.readBy
		var changed <-chan struct{}
		switch {
		case p.failed != nil:
			defer p.mu.Unlock()
			return 0, p.failed
		case !p.readBy.IsZero() && !now.Before(p.readBy):
			defer p.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case len(p.queue) > 0 && p.queue[0].due.After(now):
			until = sooner(until, p.queue[0].due)
		case len(p.queue) > 0:
			var held bool
			if held, changed = p.net.holds(p.from, p.to); !held {
				defer p.mu.Unlock()
				return p.take(b)
			}
		}
		p.mu.Unlock()
		wait(p.ready, until, changed)
	}
}

// take moves bytes of the first segment to b. The pipe is locked.
func (p *pipe) take(b []byte) (int, error) {
	s := &p.queue[0]
	if s.end != nil {
		return 0, s.end
	}
	if most := p.weather.Read; most > 0 && len(b) > most {
		b = b[:most]
	}
	n := copy(b, s.b)
	s.b = s.b[n:]
	if p.size -= n; p.size < bufferBytes {
		poke(p.room)
	}
	if len(s.b) == 0 {
		p.queue = p.queue[1:]
	}
	return n, nil
}

func (p *pipe) write(b []byte) (int, error) {
	for {
		p.mu.Lock()
		switch {
		case p.silent:
			defer p.mu.Unlock()
			return len(b), nil
		case p.failed != nil:
			defer p.mu.Unlock()
			return 0, p.failed
		case !p.writeBy.IsZero() && !time.Now().Before(p.writeBy):
			defer p.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case p.size < bufferBytes:
			broken := p.fuse > 0 && p.fuse <= len(b)
			if broken {
				b = b[:p.fuse]
			} else if p.fuse > 0 {
				p.fuse -= len(b)
			}
			p.put(segment{b: append([]byte(nil), b...)})
			p.mu.Unlock()
			if broken {
				p.blow()
				return len(b), syscall.ECONNRESET
			}
			return len(b), nil
		}
		until := p.writeBy
		p.mu.Unlock()
		wait(p.room, until, nil)
	}
}

// put queues a segment behind earlier ones. The pipe is locked.
func (p *pipe) put(s segment) {
	s.due = time.Now().Add(p.latency)
	if p.rng != nil {
		s.due = s.due.Add(time.Duration(p.rng.Int64N(int64(p.weather.Jitter) + 1)))
	}
	if s.due.Before(p.last) {
		s.due = p.last
	}
	if p.weather.Bytes > 0 {
		s.due = s.due.Add(time.Duration(len(s.b)) * time.Second / time.Duration(p.weather.Bytes))
	}
	p.last, p.size = s.due, p.size+len(s.b)
	p.queue = append(p.queue, s)
	poke(p.ready)
}

// finish ends the stream after the written bytes.
func (p *pipe) finish(end error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil && !p.silent {
		p.put(segment{end: end})
	}
	p.silent = true
}

// mute loses all bytes written from now on.
func (p *pipe) mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

// deafen ends the direction for its reader. The writer notices only by the other direction.
func (p *pipe) deafen(err error) {
	p.mute()
	p.fail(err)
}

// fail ends the direction for both of its ends at once.
func (p *pipe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
	p.queue, p.size = nil, 0
	poke(p.ready)
	poke(p.room)
}

func (p *pipe) expire(at *time.Time, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*at = t
	poke(p.ready)
	poke(p.room)
}

// pause waits for one round trip.
func (p *pipe) pause(ctx context.Context) error {
	if p.latency == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(2 * p.latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
