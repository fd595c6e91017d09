package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestListsEnd: a list that gives the token of a page twice is an error, not a request without end.
func TestListsEnd(t *testing.T) {
	for url, page := range map[string]string{
		"s3://data/web/*.jsonl": `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>again` +
			`</NextContinuationToken><Contents><Key>web/a.jsonl</Key><Size>3</Size></Contents></ListBucketResult>`,
		"gs://data/web/*.jsonl": `{"items": [{"name": "web/a.jsonl", "size": "3"}], "nextPageToken": "again"}`,
		"az://data/web/*.jsonl": `<EnumerationResults><Blobs><Blob><Name>web/a.jsonl</Name><Properties>` +
			`<Content-Length>3</Content-Length></Properties></Blob></Blobs><NextMarker>again</NextMarker>` +
			`</EnumerationResults>`,
		"hf://datasets/org/name@main/web/*.jsonl": `[{"type": "file", "path": "web/a.jsonl", "size": 3}]`,
	} {
		var requests atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) > 10 || strings.Contains(r.URL.Path, "/revision/") {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Link", `</again>; rel="next"`)
			fmt.Fprint(w, page)
		}))
		_, err := listed(s.URL, url)
		s.Close()
		if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "the same page twice") {
			t.Errorf("%s: got %v after %d requests", url, err, requests.Load())
		}
	}
}

// listed returns the files below the first wildcard of a URL, from a service at a place.
func listed(at, url string) (found []string, err error) {
	files := NewHost(Options{}).Files("web", Storage{Endpoint: at, Region: "us-east-1", Anonymous: true})
	err = files.Walk(url[:strings.IndexByte(url, '*')], func(url string) error {
		found = append(found, url)
		return nil
	})
	return found, err
}
