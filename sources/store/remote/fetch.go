package remote

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"millrace/internal/activity"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A request is tried a few times here. A longer outage is the caller's to wait for.
const (
	readTries = 5 // some 0.7 s
	lookTries = 8 // of lists and sizes, which are asked once: some 10 s
	stalled   = 10 * time.Second
	backFirst = 100 * time.Millisecond
	backMost  = 5 * time.Second
)

// back returns the wait before another try, at least as long as the store asks. The second try comes at once: most
// errors are of one request alone, and reads in order wait for its place. Further waits are exponential, with jitter.
func back(try int, asked time.Duration) time.Duration {
	if try == 1 {
		return asked
	}
	most := min(backFirst<<(try-2), backMost)
	return max(asked, most/2+rand.N(most/2))
}

// retry repeats an act while its failure may pass.
func (f *Files) retry(ctx context.Context, tries int, act func(ctx context.Context) error) error {
	for try := 1; ; try++ {
		err := act(ctx)
		var failed *failure
		if err == nil {
			f.host.retries.earn()
			return nil
		}
		if !errors.As(err, &failed) || failed.cause != outage || try >= tries {
			return err
		}
		if !f.host.retries.take(ctx, tries > readTries) || !pause(ctx, back(try, failed.after)) {
			return err
		}
		f.counts.retries.Add(1)
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// quota bounds retries to a part of the good requests: an overloaded store gets less load, not more.
type quota struct {
	mu   sync.Mutex
	left float64
	at   time.Time // of the last refill
}

const (
	quotaEarn = 0.1 // retries for each good request
	quotaMost = 20
	quotaRate = 2.0 // retries a second without any good request
)

func (q *quota) earn() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left = min(q.left+quotaEarn, quotaMost)
}

// take waits for the right to one retry. Without patience it waits once, and returns false if others took the right:
// the store is away, and the caller waits for it and says so.
func (q *quota) take(ctx context.Context, patient bool) bool {
	for try := 1; ; try++ {
		q.mu.Lock()
		now := time.Now()
		if !q.at.IsZero() {
			q.left = min(q.left+quotaRate*now.Sub(q.at).Seconds(), quotaMost)
		}
		q.at = now
		missing := 1 - q.left
		if missing <= 0 {
			q.left--
			q.mu.Unlock()
			return true
		}
		q.mu.Unlock()
		if try > 1 && !patient || !pause(ctx, time.Duration(missing/quotaRate*float64(time.Second))) {
			return false
		}
	}
}

// fetch fills p with the bytes of an object from off on. Bytes that came before a failure are not asked for again.
func (f *Files) fetch(ctx context.Context, s store, of object, p []byte, off int64) error {
	done := 0
	for {
		before := done
		err := f.retry(ctx, readTries, func(ctx context.Context) error {
			n, err := f.hedged(ctx, s, of, p[done:], off+int64(done))
			done += n
			if done == len(p) {
				return nil
			}
			return err
		})
		if err == nil || done == before || done == len(p) {
			return err
		}
	}
}

// hedged is one try of a range. If it takes longer than 95 of 100 requests of its size, a second one runs beside it,
// and the first answer is used. n bytes at the beginning of p are good, also with an error.
func (f *Files) hedged(ctx context.Context, s store, of object, p []byte, off int64) (n int, err error) {
	pace := &f.host.pace[classOf(len(p))]
	wait, known := pace.slow()
	if !known {
		return f.attempt(ctx, s, of, p, off)
	}
	type result struct {
		n   int
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, second := make(chan result, 1), make(chan result, 1)
	go func() {
		n, err := f.attempt(ctx, s, of, p, off)
		first <- result{n, err}
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case r := <-first:
		return r.n, r.err
	case <-timer.C:
	}
	if !f.counts.mayHedge() {
		r := <-first
		return r.n, r.err
	}
	other := make([]byte, len(p))
	go func() {
		n, err := f.attempt(ctx, s, of, other, off)
		second <- result{n, err}
	}()
	select {
	case r := <-first:
		if r.err == nil {
			return r.n, nil
		}
		r = <-second
		return copy(p, other[:r.n]), r.err
	case r := <-second:
		if r.err != nil {
			r = <-first
			return r.n, r.err
		}
		cancel()
		<-first // it writes to p until then
		return copy(p, other), nil
	}
}

// attempt is one request of a range.
func (f *Files) attempt(ctx context.Context, s store, of object, p []byte, off int64) (n int, err error) {
	select {
	case f.host.slots <- struct{}{}:
		defer func() { <-f.host.slots }()
	case <-ctx.Done():
		return 0, ofTransport(ctx.Err())
	}
	f.counts.requests.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := time.AfterFunc(f.host.idle, cancel) // a body that sends no more bytes
	defer watch.Stop()
	began := time.Now()
	body, err := s.read(ctx, of, off, int64(len(p)))
	if err != nil {
		return 0, ofTransport(err)
	}
	defer body.Close()
	for n < len(p) {
		got, err := body.Read(p[n:])
		n += got
		f.counts.fetched.Add(int64(got))
		if n == len(p) {
			break
		}
		if err == nil && got == 0 {
			continue
		}
		if errors.Is(err, io.EOF) {
			return n, &failure{cause: outage, err: errors.New("the answer ends early")}
		}
		if err != nil {
			return n, ofTransport(err)
		}
		watch.Reset(f.host.idle)
	}
	f.host.pace[classOf(len(p))].note(time.Since(began))
	return n, nil
}

// sizeClasses is the number of classes of requests by their size: the time of a request depends on it.
const sizeClasses = 4

func classOf(n int) int {
	switch {
	case n <= 64<<10:
		return 0
	case n <= 512<<10:
		return 1
	case n <= 2<<20:
		return 2
	}
	return 3
}

// pace knows the times of the newest requests of one class.
type pace struct {
	mu    sync.Mutex
	times [128]time.Duration
	count int
	limit time.Duration // 0: not known yet
}

const (
	paceLeast = 32 // requests before the limit is known
	paceEvery = 16 // requests between two looks at the times
	slowLeast = 20 * time.Millisecond
)

func (p *pace) note(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times[p.count%len(p.times)] = d
	p.count++
	if p.count < paceLeast || p.count%paceEvery != 0 {
		return
	}
	sorted := slices.Clone(p.times[:min(p.count, len(p.times))])
	slices.Sort(sorted)
	p.limit = max(sorted[len(sorted)*95/100], slowLeast)
}

// slow returns the time that 95 of 100 requests do not exceed.
func (p *pace) slow() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit, p.limit > 0
}

// counts are the counters of a source.
type counts struct {
	requests, retries, hedges, fetched, used, hits, misses atomic.Int64
}

// hedgePart is the least number of requests for each hedge.
const hedgePart = 25

// mayHedge counts a second request for a slow one, unless there were too many.
func (c *counts) mayHedge() bool {
	n := c.hedges.Load()
	return (n+1)*hedgePart <= c.requests.Load() && c.hedges.CompareAndSwap(n, n+1)
}

// fetches returns the counters of now.
func (c *counts) fetches() activity.Fetches {
	return activity.Fetches{Fetched: c.fetched.Load(), Used: c.used.Load(), Requests: c.requests.Load(),
		Retries: c.retries.Load(), Hedges: c.hedges.Load(), Hits: c.hits.Load(), Misses: c.misses.Load()}
}
