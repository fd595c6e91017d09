package remote

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// hubStore reads one revision of a dataset of the Hugging Face hub. A branch is resolved to its commit once, so the
// files of a process are of one commit.
type hubStore struct {
	client   *http.Client
	root     string // URL of the hub
	repo     string // datasets/ORG/NAME
	revision string // as the URL names it
	token    string // empty: anonymous

	mu     sync.Mutex
	commit string               // empty: not resolved yet
	direct map[string]directURL // by key: the places to which the hub has sent a request
}

var _ store = (*hubStore)(nil)

// directURL is the signed address of a file's bytes. Asking the hub again for each range would exhaust its rate limits.
type directURL struct {
	url   string
	until time.Time
}

// directFor is shorter than the validity of the hub's signed addresses.
const directFor = 10 * time.Minute

func openHub(bucket string, s Storage) store {
	repo, revision, _ := strings.Cut(bucket, "@")
	if plain, err := url.PathUnescape(revision); err == nil {
		revision = plain
	}
	h := &hubStore{client: newClient(), repo: repo, revision: cmp.Or(revision, "main"),
		direct: map[string]directURL{}}
	h.root = strings.TrimSuffix(cmp.Or(s.Endpoint, os.Getenv("HF_ENDPOINT"), "https://huggingface.co"), "/")
	if !s.Anonymous {
		h.token = hubToken()
	}
	return h
}

// hubToken returns the token of the environment, or the one that `hf auth login` has stored.
func hubToken() string {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if token := strings.TrimSpace(os.Getenv(name)); token != "" {
			return token
		}
	}
	file := os.Getenv("HF_TOKEN_PATH")
	if file == "" {
		home := os.Getenv("HF_HOME")
		if dir, err := os.UserHomeDir(); home == "" && err == nil {
			home = filepath.Join(dir, ".cache", "huggingface")
		}
		file = filepath.Join(home, "token")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// get sends a request to the hub.
func (h *hubStore) get(ctx context.Context, address string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, &failure{cause: wrong, err: errors.New("the endpoint is no URL")}
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if h.token != "" && strings.HasPrefix(address, h.root+"/") { // other hosts must not see it
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	return ask(h.client, req)
}

// pinned returns the commit of the revision. A hub without that question gets the revision itself.
func (h *hubStore) pinned(ctx context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.commit != "" {
		return h.commit, nil
	}
	resp, err := h.get(ctx, h.root+"/api/"+h.repo+"/revision/"+url.PathEscape(h.revision), nil)
	var f *failure
	switch {
	case errors.As(err, &f) && f.cause == gone:
		return h.revision, nil // the next request reports the missing part
	case err != nil:
		return "", err
	}
	var answer struct {
		SHA string `json:"sha"`
	}
	if err := decodeAnswer(resp, &answer); err != nil {
		return "", err
	}
	h.commit = cmp.Or(answer.SHA, h.revision)
	return h.commit, nil
}

// hubFile is an entry of a tree of the hub.
type hubFile struct {
	Type string `json:"type"` // file or directory
	Path string `json:"path"`
	Size int64  `json:"size"`
	OID  string `json:"oid"`
	LFS  *struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	} `json:"lfs"`
}

func (f *hubFile) object() object {
	o := object{key: f.Path, size: f.Size, version: f.OID}
	if f.LFS != nil {
		o.size, o.version = f.LFS.Size, f.LFS.OID
	}
	return o
}

// nextPage finds the address of the next page in a Link header.
var nextPage = regexp.MustCompile(`<([^>]*)>;\s*rel="next"`)

// tree calls fn for every file in a directory, also in those below if deep is true.
func (h *hubStore) tree(ctx context.Context, dir string, deep bool, fn func(object) error) error {
	commit, err := h.pinned(ctx)
	if err != nil {
		return err
	}
	address := h.root + "/api/" + h.repo + "/tree/" + url.PathEscape(commit)
	if dir != "" {
		address += "/" + escaped(dir)
	}
	if deep {
		address += "?recursive=true"
	}
	for seen := (pages{}); address != ""; {
		if err := seen.turn(address); err != nil {
			return err
		}
		resp, err := h.get(ctx, address, nil)
		if err != nil {
			return err
		}
		address = ""
		if next := nextPage.FindStringSubmatch(resp.Header.Get("Link")); next != nil {
			address = next[1]
			if strings.HasPrefix(address, "/") {
				address = h.root + address
			}
		}
		var page []hubFile
		if err := decodeAnswer(resp, &page); err != nil {
			return err
		}
		for i := range page {
			if page[i].Type != "file" {
				continue
			}
			if err := fn(page[i].object()); err != nil {
				return err
			}
		}
	}
	return nil
}

// list implements store.
func (h *hubStore) list(ctx context.Context, prefix string, fn func(object) error) error {
	dir := ""
	if slash := strings.LastIndexByte(prefix, '/'); slash >= 0 {
		dir = prefix[:slash]
	}
	err := h.tree(ctx, dir, true, func(o object) error {
		if !strings.HasPrefix(o.key, prefix) {
			return nil
		}
		return fn(o)
	})
	var f *failure
	if dir != "" && errors.As(err, &f) && f.cause == gone {
		return nil // the directory is not there, so no file is
	}
	return err
}

// stat implements store. The tree of the file's directory is the only answer that always has the file's digest.
func (h *hubStore) stat(ctx context.Context, key string) (found object, err error) {
	dir := path.Dir(key)
	if dir == "." {
		dir = ""
	}
	err = h.tree(ctx, dir, false, func(o object) error {
		if o.key == key {
			found = o
		}
		return nil
	})
	if err == nil && found.key == "" {
		err = &failure{cause: gone, err: errors.New("the revision has no such file")}
	}
	return found, err
}

// read implements store. The commit in the address fixes the version.
func (h *hubStore) read(ctx context.Context, of object, off, n int64) (io.ReadCloser, error) {
	commit, err := h.pinned(ctx)
	if err != nil {
		return nil, err
	}
	address, isDirect := h.root+"/"+h.repo+"/resolve/"+url.PathEscape(commit)+"/"+escaped(of.key), false
	h.mu.Lock()
	if d, ok := h.direct[of.key]; ok && time.Now().Before(d.until) {
		address, isDirect = d.url, true
	}
	h.mu.Unlock()
	header := http.Header{"Range": {span(off, n)}, "Accept-Encoding": {"identity"}}
	resp, err := h.get(ctx, address, header)
	if err != nil {
		var f *failure
		if isDirect && errors.As(err, &f) && f.cause != outage { // the signature may be over
			h.mu.Lock()
			delete(h.direct, of.key)
			h.mu.Unlock()
			f.cause = outage
		}
		return nil, err
	}
	if to := resp.Request.URL.String(); !isDirect && to != address {
		h.mu.Lock()
		h.direct[of.key] = directURL{to, time.Now().Add(directFor)}
		h.mu.Unlock()
	}
	return checked(resp.Body, of, of, resp.Header.Get("Content-Range"), off, n)
}

// credentials implements store.
func (h *hubStore) credentials() string {
	return "HF_TOKEN, or `hf auth login`; accept the dataset's terms first"
}
