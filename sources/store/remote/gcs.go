package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// gcsStore reads a bucket of Google Cloud Storage by its JSON interface. The client library of Google would make the
// program larger by half.
type gcsStore struct {
	client *http.Client
	tokens oauth2.TokenSource // nil: anonymous
	bucket string
	root   string // URL of the service
}

var _ store = (*gcsStore)(nil)

// openGCS finds the credentials: GOOGLE_APPLICATION_CREDENTIALS, those of gcloud, or the machine's.
func openGCS(ctx context.Context, bucket string, s Storage) (store, error) {
	g := &gcsStore{client: newClient(), bucket: bucket, root: "https://storage.googleapis.com"}
	emulator := os.Getenv("STORAGE_EMULATOR_HOST")
	switch {
	case s.Endpoint != "":
		g.root = strings.TrimSuffix(s.Endpoint, "/")
	case emulator != "":
		if !strings.Contains(emulator, "://") {
			emulator = "http://" + emulator
		}
		g.root = strings.TrimSuffix(emulator, "/")
	}
	if s.Anonymous || s.Endpoint == "" && emulator != "" {
		return g, nil
	}
	ctx = context.WithValue(context.WithoutCancel(ctx), oauth2.HTTPClient, g.client)
	found, err := google.FindDefaultCredentials(ctx, "https://www.googleapis.com/auth/devstorage.read_only")
	if err != nil {
		return nil, &failure{cause: denied, err: errors.New("no credentials were found")}
	}
	g.tokens = oauth2.ReuseTokenSource(nil, found.TokenSource)
	return g, nil
}

// get sends a request. Its answer is good; the caller closes the body.
func (g *gcsStore) get(ctx context.Context, path string, query url.Values, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.root+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, &failure{cause: wrong, err: errors.New("the endpoint is no URL")}
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if g.tokens != nil {
		token, err := g.tokens.Token()
		if err != nil {
			return nil, ofToken(err)
		}
		token.SetAuthHeader(req)
	}
	return ask(g.client, req)
}

// ofToken returns the failure of a token that could not be fetched. Its text leaves the answer of the token's server
// out.
func ofToken(err error) error {
	var answer *oauth2.RetrieveError
	if errors.As(err, &answer) && answer.Response != nil && answer.Response.StatusCode < 500 {
		return &failure{cause: denied, err: errors.New("no token was given for the credentials")}
	}
	return &failure{cause: outage, err: errors.New("the server of tokens does not answer")}
}

// gcsObject is an object as the service describes it. The service writes numbers as strings.
type gcsObject struct {
	Name       string    `json:"name"`
	Size       string    `json:"size"`
	Generation string    `json:"generation"`
	Updated    time.Time `json:"updated"`
}

func (o *gcsObject) object() (object, error) {
	size, err := strconv.ParseInt(o.Size, 10, 64)
	if err != nil || size < 0 {
		return object{}, &failure{cause: wrong, err: errors.New("the store describes an object without a size")}
	}
	return object{key: o.Name, size: size, version: o.Generation, modified: o.Updated}, nil
}

const gcsFields = "name,size,generation,updated"

// mostAnswer bounds the bytes of an answer that is read as a whole.
const mostAnswer = 64 << 20

func decodeAnswer(resp *http.Response, into any) error {
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, mostAnswer)).Decode(into); err != nil {
		return &failure{cause: outage, err: errors.New("the answer is no JSON: " + err.Error())}
	}
	return nil
}

// list implements store.
func (g *gcsStore) list(ctx context.Context, prefix string, fn func(object) error) error {
	query := url.Values{"prefix": {prefix}, "fields": {"nextPageToken,items(" + gcsFields + ")"}}
	for seen := (pages{}); ; {
		resp, err := g.get(ctx, "/storage/v1/b/"+url.PathEscape(g.bucket)+"/o", query, nil)
		if err != nil {
			return err
		}
		var page struct {
			Items         []gcsObject `json:"items"`
			NextPageToken string      `json:"nextPageToken"`
		}
		if err := decodeAnswer(resp, &page); err != nil {
			return err
		}
		for i := range page.Items {
			o, err := page.Items[i].object()
			if err != nil {
				return err
			}
			if err := fn(o); err != nil {
				return err
			}
		}
		if page.NextPageToken == "" {
			return nil
		}
		if err := seen.turn(page.NextPageToken); err != nil {
			return err
		}
		query.Set("pageToken", page.NextPageToken)
	}
}

func (g *gcsStore) path(key string) string {
	return "/storage/v1/b/" + url.PathEscape(g.bucket) + "/o/" + url.PathEscape(key)
}

// stat implements store.
func (g *gcsStore) stat(ctx context.Context, key string) (object, error) {
	resp, err := g.get(ctx, g.path(key), url.Values{"fields": {gcsFields}}, nil)
	if err != nil {
		return object{}, err
	}
	var o gcsObject
	if err := decodeAnswer(resp, &o); err != nil {
		return object{}, err
	}
	return o.object()
}

// read implements store.
func (g *gcsStore) read(ctx context.Context, of object, off, n int64) (io.ReadCloser, error) {
	query := url.Values{"alt": {"media"}, "ifGenerationMatch": {of.version}}
	// the service unpacks objects with `Content-Encoding: gzip` for clients that do not accept it
	header := http.Header{"Range": {span(off, n)}, "Accept-Encoding": {"gzip"}}
	resp, err := g.get(ctx, g.path(of.key), query, header)
	if err != nil {
		return nil, err
	}
	now := of
	if generation := resp.Header.Get("X-Goog-Generation"); generation != "" {
		now.version = generation
	}
	return checked(resp.Body, of, now, resp.Header.Get("Content-Range"), off, n)
}

// credentials implements store.
func (g *gcsStore) credentials() string {
	return "GOOGLE_APPLICATION_CREDENTIALS, `gcloud auth application-default login`, or the account of the machine"
}
