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
	ended := p.ended
	p.mu.Unlock()
	wait := time.NewTicker(grace)
	defer wait.Stop()
	for {
		select {
		case <-turn:
			return nil
		case <-wait.C:
		case <-ctx.Done():
		}
		waits, err := p.stillWaits(ctx, turn, &ended)
		if !waits {
			return err
		}
	}
}

// stillWaits reports whether a read goes on waiting for its turn: it has not come, and reads have ended since the last
// call. Otherwise the read begins, or err is that of ctx.
func (p *Pool) stillWaits(ctx context.Context, turn chan struct{}, ended *uint64) (waits bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.readers, turn)
	if err = ctx.Err(); err == nil && i >= 0 && p.ended != *ended {
		*ended = p.ended
		return true, nil
	}
	if i >= 0 {
		p.readers = slices.Delete(p.readers, i, i+1)
		p.reads++
	}
	if err != nil {
		p.endRead()
	}
	return false, err
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
	p.ended++
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
