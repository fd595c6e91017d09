package pool

import (
	"context"
	"slices"
	"time"

	"millrace/sources/feed/decode"
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

// BeginRead waits until fewer than size random reads decode. If none of them ends within the grace, they may stand
// still, and the caller goes on. The caller calls EndRead. An error is that of ctx.
func (p *Pool) BeginRead(ctx context.Context) error {
	if p.TryRead() {
		return nil
	}
	p.mu.Lock()
	turn := make(chan struct{}, 1)
	p.readers = append(p.readers, turn)
	p.mu.Unlock()
	wait := time.NewTimer(grace)
	defer wait.Stop()
	select {
	case <-turn:
		return nil
	case <-wait.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.readers, turn); i >= 0 {
		p.readers = slices.Delete(p.readers, i, i+1)
		p.reads++
	}
	if err := ctx.Err(); err != nil {
		p.endRead()
		return err
	}
	return nil
}

// TryRead is BeginRead without waiting. It reports whether the read may begin.
func (p *Pool) TryRead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reads >= p.size || len(p.readers) > 0 {
		return false
	}
	p.reads++
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
	if p.reads < p.size && len(p.readers) > 0 {
		p.reads++
		p.readers[0] <- struct{}{}
		p.readers = p.readers[1:]
	}
}

// ResumeRead is BeginRead without waiting, also if that exceeds the bound. A read uses it after it has handed over a
// document.
func (p *Pool) ResumeRead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
}
