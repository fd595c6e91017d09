package remote

import (
	"context"
	"encoding/binary"
	"io"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sources"
	"millrace/sources/facts/identity"
	"millrace/sources/store/cache"
)

// partBytes is the largest range of one request. Longer reads are several requests at the same time.
const partBytes = 4 << 20

// file is one version of an object. It is safe for concurrent use.
type file struct {
	files *Files
	host  *Host
	store store
	url   string
	of    object
	key   millrace.Digest // of the version, in the cache

	ctx    context.Context // ends with the file
	cancel context.CancelFunc

	mu           sync.Mutex
	streams      [mostStreams]*stream
	pages        map[int64]*page
	expectations []*expectation
}

var (
	_ sources.OpenFile = (*file)(nil)
	_ sources.Expecter = (*file)(nil)
)

func newFile(files *Files, s store, url string, of object) *file {
	f := &file{files: files, host: files.host, store: s, url: url, of: of, pages: map[int64]*page{}}
	key := binary.LittleEndian.AppendUint64([]byte(url+"\x00"+of.version+"\x00"), uint64(of.size))
	f.key = xxh3.Hash128(binary.LittleEndian.AppendUint64(key, uint64(of.modified.UnixNano()))).Bytes()
	for i := range f.streams {
		f.streams[i] = &stream{}
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Name implements sources.File.
func (f *file) Name() string { return f.url }

// Size implements sources.File.
func (f *file) Size() int64 { return f.of.size }

// Identity implements sources.OpenFile. Every request names the version, so the open file never changes.
func (f *file) Identity() (identity.File, error) { return f.of.identity(), nil }

// Close implements io.Closer.
func (f *file) Close() error {
	f.cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := range f.pages {
		f.drop(at)
	}
	for _, p := range f.expectations {
		f.endExpectation(p)
	}
	return nil
}

// ReadAt implements io.ReaderAt. A read that follows an earlier one makes the file read ahead.
func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	if off >= f.of.size || len(p) == 0 {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	short := int64(len(p)) > f.of.size-off
	if short {
		p = p[:f.of.size-off]
	}
	if err := f.fill(p, off); err != nil {
		return 0, describe("read", f.url, f.store, err)
	}
	f.files.counts.used.Add(int64(len(p)))
	if short {
		return len(p), io.EOF
	}
	return len(p), nil
}

// fill fills p with bytes of the file, from ranges that were expected and from pages that were read ahead if there are
// any.
func (f *file) fill(p []byte, off int64) error {
	n, err := f.expected(p, off)
	if err != nil || n == len(p) {
		return err
	}
	p, off = p[n:], off+int64(n)
	at := f.ahead(off, int64(len(p)))
	for len(p) > 0 {
		n := int64(len(p))
		if pg := at[off/pageBytes]; pg != nil {
			n = min(n, pageBytes-off%pageBytes)
			if err := pg.copy(f.ctx, p[:n], off%pageBytes); err == nil {
				p, off = p[n:], off+n
				continue
			}
			// a failed page is not used again: the range is read by itself
			f.forget(off / pageBytes)
		} else {
			n = f.gap(at, off, n)
		}
		if err := f.load(f.ctx, p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// gap returns the length of the range from off on, at most n, that no page has.
func (f *file) gap(at map[int64]*page, off, n int64) int64 {
	for next := (off/pageBytes + 1) * pageBytes; next < off+n; next += pageBytes {
		if at[next/pageBytes] != nil {
			return next - off
		}
	}
	return n
}

// load reads a range from the cache, and the rest from the store: blocks that follow each other as one request, at most
// partBytes of them. Each part has its own place in p.
func (f *file) load(ctx context.Context, p []byte, off int64) error {
	if f.host.cache == nil {
		return f.loadParts(ctx, p, off)
	}
	n := f.kept(p, off)
	if n == len(p) {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	for p, off = p[n:], off+int64(n); len(p) > 0; p, off = p[n:], off+int64(n) {
		part, from := p[:f.missing(off, len(p))], off
		group.Go(func() error { return f.loadBlocks(ctx, part, from) })
		p, off = p[len(part):], off+int64(len(part))
		n = f.kept(p, off)
	}
	return group.Wait()
}

// kept fills the beginning of p from the cache, and returns the number of bytes.
func (f *file) kept(p []byte, off int64) int {
	n := f.host.cache.ReadAt(f.key, p, off, f.of.size)
	f.files.counts.hits.Add(blocksOf(off, n))
	return n
}

// blocksOf returns the number of blocks that have a byte of a range.
func blocksOf(off int64, n int) int64 {
	if n == 0 {
		return 0
	}
	return (off+int64(n)-1)/cache.BlockBytes - off/cache.BlockBytes + 1
}

// missing returns the length of the range from off on, at most n, whose blocks one request fetches. The cache lacks the
// first block.
func (f *file) missing(off int64, n int) int {
	first := off / cache.BlockBytes
	for end := first + 1; ; end++ {
		if at := end * cache.BlockBytes; at >= off+int64(n) {
			return n
		} else if (end-first)*cache.BlockBytes >= partBytes || f.host.cache.Has(f.key, at, 1) {
			return int(at - off)
		}
	}
}

// loadBlocks reads a range whose blocks the cache lacked a moment ago.
func (f *file) loadBlocks(ctx context.Context, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := f.loadSome(ctx, p, off)
		if err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// loadSome reads the beginning of a range: the blocks that no other reader fetches now, or those that another one has
// fetched after a wait.
func (f *file) loadSome(ctx context.Context, p []byte, off int64) (n int, err error) {
	first := off / cache.BlockBytes
	mine, others := f.host.claim(f.key, first, blocksOf(off, len(p)))
	if mine > 0 {
		defer f.host.unclaim(f.key, first, mine)
	} else {
		select {
		case <-others:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		mine = 1
	}
	if n := f.kept(p, off); n > 0 {
		return n, nil
	}
	p = p[:min(int64(len(p)), (first+mine)*cache.BlockBytes-off)]
	return len(p), f.fetchBlocks(ctx, p, off)
}

// fetchBlocks reads a range from the store, together with the rest of its first and last block, and keeps the blocks.
func (f *file) fetchBlocks(ctx context.Context, p []byte, off int64) error {
	blocks := blocksOf(off, len(p))
	f.files.counts.misses.Add(blocks)
	from := off / cache.BlockBytes * cache.BlockBytes
	all, end := p, min(from+blocks*cache.BlockBytes, f.of.size)
	if from != off || end != off+int64(len(p)) {
		all = make([]byte, end-from)
	}
	if err := f.files.fetch(ctx, f.store, f.of, all, from); err != nil {
		return err
	}
	for at := int64(0); at < int64(len(all)); at += cache.BlockBytes {
		block := all[at:min(at+cache.BlockBytes, int64(len(all)))]
		f.host.cache.Write(f.key, (from+at)/cache.BlockBytes, block)
	}
	if len(all) > len(p) {
		copy(p, all[off-from:])
	}
	return nil
}

// loadParts reads a range from the store.
func (f *file) loadParts(ctx context.Context, p []byte, off int64) error {
	if len(p) <= partBytes {
		return f.files.fetch(ctx, f.store, f.of, p, off)
	}
	group, ctx := errgroup.WithContext(ctx)
	for at := 0; at < len(p); at += partBytes {
		part := p[at:min(at+partBytes, len(p))]
		group.Go(func() error { return f.files.fetch(ctx, f.store, f.of, part, off+int64(at)) })
	}
	return group.Wait()
}
