package arena

import (
	"cmp"
	"log/slog"
	"math/bits"
	"slices"
	"sync"
)

const (
	leastTokens = 64 << 10 // of an arena
	spareArenas = 8        // free ones that are kept for a peer
)

// Pool holds the owner's arenas, by the peer that writes to them. It uses them again, and bounds their memory. It is
// safe for concurrent use.
type Pool struct {
	space Space // nil: it has none
	limit int64 // bytes
	log   *slog.Logger

	mu    sync.Mutex
	peers map[string]*peer
	bytes int64 // of all arenas
}

// peer is one process that writes to arenas.
type peer struct {
	free []*Arena
	gone []string // names that it may forget
}

// NewPool returns a pool of at most limit bytes. If space is nil, it never has an arena.
func NewPool(space Space, limit int64, log *slog.Logger) *Pool {
	return &Pool{space: space, limit: limit, log: log, peers: map[string]*peer{}}
}

// Lease is the use of one arena, for one request to a peer.
type Lease struct {
	*Arena
	pool *Pool
	peer string
}

// Take returns an arena with room for that many tokens, or nil if the pool has none: then the tokens have to come
// another way.
func (p *Pool) Take(to string, tokens int) *Lease {
	if p.space == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.peers[to]
	if of == nil {
		of = &peer{}
		p.peers[to] = of
	}
	best := -1
	for i, a := range of.free {
		if n := len(a.Tokens); n >= tokens && (best < 0 || n < len(of.free[best].Tokens)) {
			best = i
		}
	}
	if best >= 0 {
		a := of.free[best]
		of.free = slices.Delete(of.free, best, best+1)
		return &Lease{a, p, to}
	}
	size := max(leastTokens, 1<<bits.Len(uint(max(tokens, 1)-1)))
	for p.bytes+4*int64(size) > p.limit && p.dropFree() {
		continue
	}
	if p.bytes+4*int64(size) > p.limit {
		return nil
	}
	a, err := p.space.Create(size)
	if err != nil {
		p.log.Debug("fetch tokens without shared memory", "reason", err)
		return nil
	}
	p.bytes += 4 * int64(size)
	return &Lease{a, p, to}
}

// dropFree closes the largest free arena. It returns false if there is none. The caller holds the lock.
func (p *Pool) dropFree() bool {
	var of *peer
	at, largest := 0, 0
	for _, x := range p.peers {
		for i, a := range x.free {
			if n := len(a.Tokens); n > largest || n == largest && of != nil && a.Name < of.free[at].Name {
				of, at, largest = x, i, n
			}
		}
	}
	if of == nil {
		return false
	}
	a := of.free[at]
	of.free = slices.Delete(of.free, at, at+1)
	p.drop(of, a)
	return true
}

// drop closes an arena. The peer may forget it. The caller holds the lock.
func (p *Pool) drop(of *peer, a *Arena) {
	if of != nil {
		of.gone = append(of.gone, a.Name)
	}
	p.bytes -= 4 * int64(len(a.Tokens))
	if err := a.Close(); err != nil {
		p.log.Warn("close shared memory", "arena", a.Name, "error", err)
	}
}

// Return ends the use of an arena. If the peer may still write to it, it is never used again.
func (l *Lease) Return(mayBeWritten bool) {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.peers[l.peer]
	if of == nil || mayBeWritten {
		p.drop(of, l.Arena)
		return
	}
	of.free = append(of.free, l.Arena)
	if len(of.free) > spareArenas {
		smallest := slices.MinFunc(of.free, func(a, b *Arena) int { return cmp.Compare(len(a.Tokens), len(b.Tokens)) })
		of.free = slices.DeleteFunc(of.free, func(a *Arena) bool { return a == smallest })
		p.drop(of, smallest)
	}
}

// Gone returns the names of arenas that a peer may forget. It repeats them until Forgotten.
func (p *Pool) Gone(by string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.peers[by]; of != nil {
		return slices.Clone(of.gone)
	}
	return nil
}

// Forgotten notes that a peer has learned of names of Gone.
func (p *Pool) Forgotten(by string, names []string) {
	if len(names) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.peers[by]; of != nil {
		of.gone = slices.DeleteFunc(of.gone, func(name string) bool { return slices.Contains(names, name) })
	}
}

// KeepOnly closes the free arenas of all other peers. Theirs that are in use are closed when they come back.
func (p *Pool) KeepOnly(peers []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, of := range p.peers {
		if slices.Contains(peers, name) {
			continue
		}
		delete(p.peers, name)
		for _, a := range of.free {
			p.drop(nil, a)
		}
	}
}
