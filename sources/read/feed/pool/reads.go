package pool

import (
	"context"
	"slices"
	"time"

	"millrace/sources/read/feed/decode"
)

// Borrow returns a decoder for a random read, which is outside the feeds' steps. The caller calls Return.
func (p *Pool) Borrow() *decode.Decoder {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.spare); n > 0 {
		d := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return d
	}
	return p.fresh()
}

// Return takes back a decoder whose part was finished.
func (p *Pool) Return(d *decode.Decoder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.spare) < p.size {
		p.spare = append(p.spare, d)
	}
}

// BeginRead waits until fewer than size random reads decode. If none of them ends within a grace, they may be stuck:
// after each grace, one of the waiting reads begins. The caller calls EndRead. An error is that of ctx.
func (p *Pool) BeginRead(ctx context.Context) error {
	if p.TryRead() {
		return nil
	}
	p.mu.Lock()
	turn := make(chan struct{}, 1)
	p.readers = append(p.readers, turn)
	left := grace - time.Since(p.moved)
	p.mu.Unlock()
	wait := time.NewTimer(max(left, 0))
	defer wait.Stop()
	for {
		select {
		case <-turn:
			return nil
		case <-wait.C:
			if left = p.passOver(turn); left <= 0 {
				return nil
			}
			wait.Reset(left)
		case <-ctx.Done():
			p.mu.Lock()
			defer p.mu.Unlock()
			if !p.stopWaiting(turn) {
				p.endRead()
			}
			return ctx.Err()
		}
	}
}

// passOver lets a waiting read begin if no other one has begun or ended for the grace. Otherwise it returns the rest
// of the grace.
func (p *Pool) passOver(turn chan struct{}) (left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left = grace - time.Since(p.moved); left > 0 {
		return left
	}
	if p.stopWaiting(turn) {
		p.addRead()
	}
	return 0
}

// stopWaiting removes a read from those that wait, and reports whether it was among them; mu is held. If it was not, it
// had its turn.
func (p *Pool) stopWaiting(turn chan struct{}) bool {
	i := slices.Index(p.readers, turn)
	if i >= 0 {
		p.readers = slices.Delete(p.readers, i, i+1)
	}
	return i >= 0
}

// TryRead is BeginRead without waiting. It reports whether the read may begin.
func (p *Pool) TryRead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reads >= p.size || len(p.readers) > 0 {
		return false
	}
	p.addRead()
	return true
}

// EndRead ends one BeginRead or TryRead.
func (p *Pool) EndRead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endRead()
}

// endRead is EndRead; mu is held.
func (p *Pool) endRead() {
	p.reads--
	p.moved = time.Now()
	if p.reads < p.size && len(p.readers) > 0 {
		p.addRead()
		p.readers[0] <- struct{}{}
		p.readers = p.readers[1:]
	}
}

// addRead counts a read that begins; mu is held.
func (p *Pool) addRead() {
	p.reads++
	p.moved = time.Now()
}

// ResumeRead is BeginRead without waiting, also if that exceeds the bound. A read uses it after it has handed over a
// document.
func (p *Pool) ResumeRead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addRead()
}
