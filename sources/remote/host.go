package remote

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"millrace"
)

// mostRequests bounds the requests in flight of a process.
const mostRequests = 64

// Options are the means of a process.
type Options struct {
	Ahead int64        // bytes of memory for read-ahead, over all files; default 64 MiB
	Cache Cache        // of file ranges on a local disk; nil: none
	Log   *slog.Logger // default: none
}

// Cache keeps blocks of objects. It is safe for concurrent use.
type Cache interface {
	// Read fills p with a block of the object with this key, and returns false if the cache has no good copy of it.
	Read(key millrace.Digest, block int64, p []byte) bool
	// Write keeps a block, if it can.
	Write(key millrace.Digest, block int64, p []byte)
	// Close closes its files.
	Close() error
}

// BlockBytes is the size of a block of a Cache. The last block of an object is shorter.
const BlockBytes = 256 << 10

// Host has the means of a process for reading stores. It is safe for concurrent use.
type Host struct {
	cache   Cache
	slots   chan struct{} // one for each request in flight
	room    *room         // of read-ahead
	retries quota
	pace    [sizeClasses]pace
	counts  counts
	log     *slog.Logger

	idle time.Duration // the longest silence of a body; a test makes it shorter

	mu     sync.Mutex
	stores map[storeKey]store
	seen   map[seenKey]sight
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
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Host{cache: o.Cache, slots: make(chan struct{}, mostRequests), room: &room{free: o.Ahead / pageBytes},
		idle: stalled, log: o.Log, stores: map[storeKey]store{}, seen: map[seenKey]sight{},
		retries: quota{left: quotaMost}}
}

// Close closes the cache.
func (h *Host) Close() error {
	if h.cache == nil {
		return nil
	}
	return h.cache.Close()
}

// Files returns the files of the stores at a place. Paths without a scheme are those of the operating system.
func (h *Host) Files(s Storage) *Files { return &Files{host: h, storage: s} }

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
