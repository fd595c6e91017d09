package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// answerWait bounds the time up to the first byte of an answer.
const answerWait = 30 * time.Second

// newClient returns a client with the settings of all stores.
func newClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	tune(t)
	return &http.Client{Transport: t}
}

// ask sends a request and returns a good answer. The caller closes its body.
func ask(client *http.Client, req *http.Request) (*http.Response, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, ofTransport(err)
	}
	if err := ofStatus(resp.StatusCode, "", resp.Header); err != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// checked returns the body of an answer. It checks that the answer has the bytes off … off+n of the right version.
func checked(body io.ReadCloser, of, now object, contentRange string, off, n int64) (io.ReadCloser, error) {
	if contentRange == "" {
		if off != 0 || n < of.size {
			body.Close()
			return nil, &failure{cause: wrong, err: errors.New("the server does not serve ranges of files; " +
				"download the file")}
		}
	} else {
		from, total, ok := parseRange(contentRange)
		if !ok || from != off {
			body.Close()
			return nil, &failure{cause: outage, err: fmt.Errorf("the answer has the range %q, want byte %d on",
				contentRange, off)}
		}
		if total >= 0 {
			now.size = total
		}
	}
	if !now.isVersion(of) {
		body.Close()
		return nil, &failure{cause: replaced, err: fmt.Errorf("it had %d bytes and version %s, and has %d bytes "+
			"and version %s", of.size, of.version, now.size, now.version)}
	}
	return body, nil
}

// parseRange reads a Content-Range header: bytes 0-99/1234. total is -1 if it is not known.
func parseRange(text string) (from, total int64, ok bool) {
	rest, ok := strings.CutPrefix(text, "bytes ")
	place, size, ok2 := strings.Cut(rest, "/")
	first, _, ok3 := strings.Cut(place, "-")
	from, err := strconv.ParseInt(first, 10, 64)
	if !ok || !ok2 || !ok3 || err != nil {
		return 0, 0, false
	}
	if total, err = strconv.ParseInt(size, 10, 64); err != nil {
		total = -1
	}
	return from, total, true
}

// webStore reads files of a web server.
type webStore struct {
	client *http.Client
	root   string // scheme://host/
}

var _ store = (*webStore)(nil)

func openWeb(l location) store {
	return &webStore{client: newClient(), root: l.scheme + "://" + l.bucket + "/"}
}

// list implements store: web servers have no lists.
func (w *webStore) list(context.Context, string, func(object) error) error {
	return &failure{cause: wrong, err: errors.New("a web server lists no files; name each one, or use a brace list")}
}

func (w *webStore) request(ctx context.Context, method, key string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.root+key, nil)
	if err != nil {
		return nil, &failure{cause: wrong, err: errors.New("it is no URL")}
	}
	req.Header.Set("Accept-Encoding", "identity")
	return req, nil
}

// stat implements store.
func (w *webStore) stat(ctx context.Context, key string) (object, error) {
	req, err := w.request(ctx, http.MethodHead, key)
	if err != nil {
		return object{}, err
	}
	resp, err := ask(w.client, req)
	if err != nil {
		return object{}, err
	}
	resp.Body.Close()
	if resp.ContentLength < 0 {
		return object{}, &failure{cause: wrong, err: errors.New("the server does not tell the size of the file; " +
			"download the file")}
	}
	return ofHeader(key, resp.ContentLength, resp.Header), nil
}

// ofHeader returns the version of an object that an answer describes.
func ofHeader(key string, size int64, h http.Header) object {
	o := object{key: key, size: size, version: plainVersion(h.Get("ETag"))}
	if at, err := http.ParseTime(h.Get("Last-Modified")); err == nil {
		o.modified = at
	}
	return o
}

// read implements store.
func (w *webStore) read(ctx context.Context, of object, off, n int64) (io.ReadCloser, error) {
	req, err := w.request(ctx, http.MethodGet, of.key)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Range", span(off, n))
	resp, err := ask(w.client, req)
	if err != nil {
		return nil, err
	}
	size := of.size
	if resp.StatusCode == http.StatusOK && resp.ContentLength >= 0 {
		size = resp.ContentLength
	}
	return checked(resp.Body, of, ofHeader(of.key, size, resp.Header), resp.Header.Get("Content-Range"), off, n)
}

// credentials implements store.
func (w *webStore) credentials() string { return "web servers are read without credentials" }

// escaped returns a key as the path of a URL.
func escaped(key string) string { return (&url.URL{Path: key}).EscapedPath() }

// containsText reports whether the text of an error has one of some parts.
func containsText(err error, parts ...string) bool {
	text := err.Error()
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}
