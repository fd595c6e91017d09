package remote

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"
)

// Storage sets the place of a source's store, as `storage:` of the mixture file.
type Storage struct {
	Endpoint  string // URL of the service; empty: the provider's own
	Region    string // of s3; empty: as the environment says
	Anonymous bool   // send no credentials
}

// object is one version of a stored file.
type object struct {
	key      string
	size     int64
	version  string    // ETag without quotes, or generation; empty: the store has none
	modified time.Time // zero: unknown
}

// isVersion reports whether two answers are about the same version of an object.
func (o object) isVersion(of object) bool {
	if o.size != of.size {
		return false
	}
	if o.version != "" && of.version != "" {
		return o.version == of.version
	}
	return o.modified.Equal(of.modified)
}

// store is one bucket of one service. Its errors are of the type failure. Its methods are safe for concurrent use. It
// tries nothing twice.
type store interface {
	// list calls fn for every object whose key begins with a prefix.
	list(ctx context.Context, prefix string, fn func(object) error) error
	// stat returns the newest version of an object.
	stat(ctx context.Context, key string) (object, error)
	// read opens the bytes off … off+n of exactly this version. The caller closes the body, which may end early.
	read(ctx context.Context, of object, off, n int64) (body io.ReadCloser, err error)
	// credentials names the places in which credentials are looked for, for errors.
	credentials() string
}

// pages has the tokens of the pages that a list has asked for.
type pages map[string]bool

// turn notes the token of the next page. A token that came before is a failure: the list would never end.
func (p pages) turn(token string) error {
	if p[token] {
		return &failure{cause: wrong, err: errors.New("its list gives the same page twice, so it has no end")}
	}
	p[token] = true
	return nil
}

// plainVersion returns an ETag without its quotes.
func plainVersion(etag string) string { return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`) }

// span returns the value of a Range header.
func span(off, n int64) string {
	return "bytes=" + decimal(off) + "-" + decimal(off+n-1)
}
