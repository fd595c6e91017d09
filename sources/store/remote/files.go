package remote

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"millrace"
	"millrace/sources"
	"millrace/sources/facts/identity"
	"millrace/sources/find"
)

// Files are the files of stores. Paths are URLs; paths without a scheme are files of the operating system.
type Files struct {
	host    *Host
	counts  *counts
	storage Storage
}

var (
	_ sources.FS = (*Files)(nil)
	_ find.Tree  = (*Files)(nil)
)

// seenFor is the time for which the version of an object is not asked for again. Reads name the version, so only bytes
// that are cached can be of an older one.
const seenFor = 15 * time.Second

// sight is a version of an object at a time.
type sight struct {
	object
	at time.Time
}

// seenKey names an object of a place.
type seenKey struct {
	url string
	Storage
}

// mostSeen bounds the remembered versions. A survey looks at each object right after its listing.
const mostSeen = 1 << 20

func (h *Host) remember(s Storage, url string, o object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.seen) >= mostSeen {
		clear(h.seen)
	}
	h.seen[seenKey{url, s}] = sight{o, time.Now()}
}

func (h *Host) recall(s Storage, url string) (sight, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen, ok := h.seen[seenKey{url, s}]
	return seen, ok
}

// Fetched returns the bytes that came from the stores of the source so far.
func (f *Files) Fetched() int64 { return f.counts.fetched.Load() }

// at returns the store and the key of a URL.
func (f *Files) at(url string) (store, location, error) {
	l, err := parse(url)
	if err != nil {
		return nil, l, err
	}
	s, err := f.host.storeOf(l, f.storage)
	if err != nil {
		return nil, l, describe("open", url, noStore(l.scheme), err)
	}
	return s, l, nil
}

// stat returns the newest version of an object. If the store does not answer now, it is the version that was seen last.
func (f *Files) stat(url string) (store, object, error) {
	s, l, err := f.at(url)
	if err != nil {
		return nil, object{}, err
	}
	seen, known := f.host.recall(f.storage, url)
	if known && time.Since(seen.at) < seenFor {
		return s, seen.object, nil
	}
	tries, patience := lookTries, answerWait
	if known {
		tries, patience = 1, 2*time.Second
	}
	var o object
	err = f.retry(context.Background(), tries, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		o, err = s.stat(ctx, l.key)
		if err != nil {
			return ofTransport(err)
		}
		return nil
	})
	var failed *failure
	if known && errors.As(err, &failed) && failed.cause == outage {
		return s, seen.object, nil
	}
	if err != nil {
		return nil, object{}, describe("read", url, s, err)
	}
	f.host.remember(f.storage, url, o)
	return s, o, nil
}

// Identity implements sources.FS.
func (f *Files) Identity(path string) (identity.File, error) {
	if !find.IsURL(path) {
		return sources.OSFS().Identity(path)
	}
	_, o, err := f.stat(path)
	if err != nil {
		return identity.File{}, err
	}
	return o.identity(), nil
}

// identity returns the identity of a version, the zero value if the store reports no version and no time.
func (o object) identity() identity.File {
	if o.version == "" && o.modified.IsZero() {
		return identity.File{}
	}
	modified := int64(0)
	if !o.modified.IsZero() {
		modified = o.modified.UnixNano()
	}
	return identity.OfObject(o.size, modified, xxh3.HashString(o.version))
}

// Open implements sources.FS.
func (f *Files) Open(path string) (sources.OpenFile, error) {
	if !find.IsURL(path) {
		return sources.OSFS().Open(path)
	}
	s, o, err := f.stat(path)
	if err != nil {
		return nil, err
	}
	return newFile(f, s, path, o), nil
}

// Walk implements find.Tree.
func (f *Files) Walk(prefix string, fn func(url string) error) error {
	s, l, err := f.at(prefix)
	if err != nil {
		return err
	}
	var found []object
	err = f.retry(context.Background(), lookTries, func(ctx context.Context) error {
		found = found[:0]
		return s.list(ctx, l.key, func(o object) error {
			if !strings.HasSuffix(o.key, "/") { // a marker of a directory
				found = append(found, o)
			}
			return nil
		})
	})
	if err != nil {
		return describe("list", prefix, s, err)
	}
	for _, o := range found {
		f.host.remember(f.storage, l.url(o.key), o)
		if err := fn(l.url(o.key)); err != nil {
			return err
		}
	}
	return nil
}

// Exists implements find.Tree.
func (f *Files) Exists(url string) (bool, error) {
	_, _, err := f.stat(url)
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, millrace.ErrInvalid) {
		return false, nil
	}
	return err == nil, err
}

// Read implements find.Tree.
func (f *Files) Read(url string, most int64) ([]byte, error) {
	file, err := f.Open(url)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if file.Size() > most {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read %s: it has %d bytes, at most %d are read", url,
			file.Size(), most)
	}
	b := make([]byte, file.Size())
	return b, sources.ReadFull(file, b, 0)
}

// noStore stands for a store that could not be opened.
func noStore(scheme string) store {
	switch scheme {
	case schemeS3:
		return (*s3Store)(nil)
	case schemeGS:
		return (*gcsStore)(nil)
	case schemeAZ:
		return (*azureStore)(nil)
	}
	return (*webStore)(nil)
}
