package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"millrace"
	"millrace/internal/activity"
	"millrace/sources/store/cache"
)

// mostRequests bounds the requests in flight of a process.
const mostRequests = 64

// Options are the means of a process.
type Options struct {
	Ahead int64           // bytes of memory for read-ahead, over all files; default 64 MiB
	Cache *cache.Blocks   // of file ranges on a local disk; nil: none
	Meter *activity.Meter // shows the figures of each source; nil: nothing does
}

// Host has the means of a process for reading stores. It is safe for concurrent use.
type Host struct {
	cache   *cache.Blocks
	slots   chan struct{} // one for each request in flight
	room    *room         // of read-ahead
	retries quota
	pace    [sizeClasses]pace
	meter   *activity.Meter

	idle time.Duration // the longest silence of a body; a test makes it shorter

	mu     sync.Mutex
	counts map[string]*counts // by source
	stores map[storeKey]store
	seen   map[seenKey]sight
	claims map[blockKey]chan struct{} // blocks that a reader fetches now for the cache
}

// blockKey names a block of a file.
type blockKey struct {
	file  millrace.Digest
	block int64
}

// claim reserves the blocks from first on, at most n, up to one that another reader has claimed. The caller fetches
// them and calls unclaim. If the first block is claimed already, mine is 0, and others is closed when its reader ends.
func (h *Host) claim(file millrace.Digest, first, n int64) (mine int64, others <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := make(chan struct{})
	for ; mine < n; mine++ {
		k := blockKey{file, first + mine}
		if of := h.claims[k]; of != nil {
			return mine, of
		}
		h.claims[k] = ended
	}
	return mine, nil
}

// unclaim ends a claim.
func (h *Host) unclaim(file millrace.Digest, first, n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.claims[blockKey{file, first}])
	for i := range n {
		delete(h.claims, blockKey{file, first + i})
	}
}

type storeKey struct {
	scheme, bucket string
	Storage
}

// NewHost returns the means of a process. The caller closes them after all files.
func NewHost(o Options) *Host {
	if o.Ahead <= 0 {
		o.Ahead = 64 << 20
	}
	return &Host{cache: o.Cache, slots: make(chan struct{}, mostRequests), room: &room{free: o.Ahead},
		idle: stalled, meter: o.Meter, counts: map[string]*counts{}, stores: map[storeKey]store{},
		seen: map[seenKey]sight{}, claims: map[blockKey]chan struct{}{}, retries: quota{left: quotaMost}}
}

// Close closes the cache.
func (h *Host) Close() error {
	if h.cache == nil {
		return nil
	}
	return h.cache.Close()
}

// Files returns the files of a source in the stores at a place. Paths without a scheme are those of the operating
// system.
func (h *Host) Files(source string, s Storage) *Files {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.counts[source]
	if c == nil {
		c = &counts{}
		h.counts[source] = c
		h.meter.Source(source).Watch(c.fetches)
	}
	return &Files{host: h, counts: c, storage: s}
}

// storeOf returns the client of a bucket. It is made once.
func (h *Host) storeOf(l location, s Storage) (store, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := storeKey{l.scheme, l.bucket, s}
	if st := h.stores[key]; st != nil {
		return st, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	st, err := openStore(ctx, l, s)
	if err == nil {
		h.stores[key] = st
	}
	return st, err
}

func openStore(ctx context.Context, l location, s Storage) (store, error) {
	switch l.scheme {
	case schemeS3:
		return openS3(ctx, l.bucket, s)
	case schemeGS:
		return openGCS(ctx, l.bucket, s)
	case schemeAZ:
		return openAzure(l.bucket, s)
	case schemeHF:
		return openHub(l.bucket, s), nil
	case schemeHTTP, schemeHTTPS:
		return openWeb(l), nil
	}
	return nil, fmt.Errorf("open %s: no store has this scheme", l.scheme)
}
