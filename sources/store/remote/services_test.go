package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/sources"
	"millrace/sources/find"
)

// hubHandler imitates the routes of the hub for one dataset with one file, whose bytes another host serves.
func hubHandler(t *testing.T, want []byte, bytesAt string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/datasets/org/name/revision/main", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"sha": "c0ffee"}`)
	})
	mux.HandleFunc("/api/datasets/org/name/tree/c0ffee/data", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hf_secret" {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode([]hubFile{{Type: "directory", Path: "data/x"},
			{Type: "file", Path: "data/a.jsonl", OID: "1234", Size: int64(len(want))}})
	})
	mux.HandleFunc("/datasets/org/name/resolve/c0ffee/data/a.jsonl", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, bytesAt+"/a.jsonl", http.StatusFound)
	})
	return mux
}

// TestServices: the hub, Google's service and a web server give the bytes of a file, and find it by its pattern.
func TestServices(t *testing.T) {
	want := content(300 << 10)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("another host sees the token")
		}
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(want))
	}))
	defer web.Close()
	at := strings.Replace(web.URL, "127.0.0.1", "localhost", 1)
	hub := httptest.NewServer(hubHandler(t, want, at))
	defer hub.Close()
	gcs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		about := gcsObject{Name: "data/a.jsonl", Size: fmt.Sprint(len(want)), Generation: "7"}
		switch {
		case r.URL.Query().Get("alt") == "media" && r.URL.Query().Get("ifGenerationMatch") == "7":
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(want))
		case strings.HasSuffix(r.URL.Path, "/o"):
			_ = json.NewEncoder(w).Encode(map[string]any{"items": []gcsObject{about}})
		case strings.HasSuffix(r.URL.Path, "/o/data/a.jsonl"):
			_ = json.NewEncoder(w).Encode(about)
		default:
			http.NotFound(w, r)
		}
	}))
	defer gcs.Close()
	t.Setenv("HF_TOKEN", "hf_secret")
	t.Setenv("HF_ENDPOINT", hub.URL)
	for _, c := range []struct {
		pattern string
		Storage
	}{
		{"hf://datasets/org/name/data/*.jsonl", Storage{}},
		{"hf://datasets/org/name@main/data/a.jsonl", Storage{}},
		{"gs://bucket/data/*.jsonl", Storage{Endpoint: gcs.URL, Anonymous: true}},
		{"gs://bucket/data/a.jsonl", Storage{Endpoint: gcs.URL, Anonymous: true}},
		{web.URL + "/data/{a,a}.jsonl", Storage{}},
	} {
		files := NewHost(Options{}).Files("web", c.Storage)
		found, err := find.Resolve(files, find.Query{Base: "/", Patterns: []string{c.pattern}, Format: "jsonl"})
		if err != nil || len(found.Files) != 1 || found.Files[0].Name != "a.jsonl" {
			t.Errorf("%s: got %v, %v", c.pattern, found, err)
			continue
		}
		f := open(t, files, found.Files[0].Path)
		got := make([]byte, f.Size()-1000)
		if err := sources.ReadFull(f, got, 1000); err != nil || !bytes.Equal(got, want[1000:]) {
			t.Errorf("%s: %v, or other bytes", c.pattern, err)
		}
	}
	for _, url := range []string{"https://user:pass@h/a", "https://h/a?X-Amz-Signature=1", "hf://models/a/b"} {
		_, err := NewHost(Options{}).Files("web", Storage{}).Open(url)
		if err == nil || strings.Contains(err.Error(), "pass@") {
			t.Errorf("%s: got %v", url, err)
		}
	}
}
