package remote

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"millrace"
)

// FuzzAnswers gives the stores any answers: lists of objects, heads, and parts of files. Each answer is taken or is a
// failure. The second page of a list is always missing.
func FuzzAnswers(f *testing.F) {
	for kind, body := range []string{
		`<ListBucketResult><Contents><Key>a</Key><Size>3</Size><ETag>"x"</ETag></Contents></ListBucketResult>`,
		`{"items": [{"name": "a", "size": "3", "generation": "7"}], "nextPageToken": "x"}`,
		`<EnumerationResults><Blobs><Blob><Name>a</Name><Properties><Content-Length>3</Content-Length>` +
			`<Etag>0x8</Etag></Properties></Blob></Blobs><NextMarker>n</NextMarker></EnumerationResults>`,
		`[{"type": "file", "path": "a", "size": 3, "oid": "1", "lfs": {"oid": "2", "size": 3}}]`,
		`abc`,
	} {
		for act := range 3 {
			kind := uint8(kind + 5*act)
			f.Add(kind, []byte(body), `"x"`, "bytes 0-2/3", uint16(0))
			f.Add(kind, []byte(body), `</b>; rel="next"`, "bytes 7-2/*", uint16(6))
			f.Add(kind, []byte(`<Error><Code>SlowDown</Code></Error>`), "1", "NaN", uint16(303))
		}
	}
	var answer atomic.Pointer[http.HandlerFunc]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	f.Cleanup(s.Close)
	f.Setenv("HF_ENDPOINT", s.URL)
	f.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	stores := storesOf(f, s.URL)
	f.Fuzz(func(t *testing.T, kind uint8, body []byte, header, part string, status uint16) {
		requests := 0
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if requests++; requests > 2 {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			for _, name := range []string{"ETag", "Link", "Retry-After", "Last-Modified", "x-goog-generation"} {
				w.Header().Set(name, header)
			}
			w.Header().Set("Content-Range", part)
			w.WriteHeader(200 + int(status)%400)
			_, _ = w.Write(body)
		})
		answer.Store(&handler)
		st := stores[int(kind)%len(stores)]
		var found *failure
		check := func(what string, err error) {
			if err != nil && !errors.As(err, &found) && !errors.Is(err, millrace.ErrInvalid) {
				t.Errorf("%s: %v is no failure of the store", what, err)
			}
		}
		switch kind / 5 % 3 {
		case 0:
			check("list", st.list(t.Context(), "", func(o object) error {
				if o.size < 0 {
					t.Errorf("object %q has %d bytes", o.key, o.size)
				}
				return nil
			}))
		case 1:
			of, err := st.stat(t.Context(), "a")
			if check("stat", err); err == nil && of.size < 0 {
				t.Errorf("the object has %d bytes", of.size)
			}
		default:
			r, err := st.read(t.Context(), object{key: "a", size: 3, version: "x"}, 0, 3)
			if check("read", err); err == nil {
				_, _ = io.Copy(io.Discard, r)
				_ = r.Close()
			}
		}
	})
}

func storesOf(f *testing.F, url string) (all []store) {
	for _, text := range []string{"s3://data/a", "gs://data/a", "az://data/a", "hf://datasets/org/name/a", url + "/a"} {
		l, err := parse(text)
		if err != nil {
			f.Fatal(err)
		}
		st, err := openStore(f.Context(), l, Storage{Endpoint: url, Region: "x", Anonymous: true})
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, st)
	}
	return all
}

// FuzzURL splits URLs. No part of one with a password is kept.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"s3://b/k", "hf://datasets/o/n@refs/pr/1/x", "https://u:p@h/x", "az://c/{1..3}",
		"x://y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := parse(text)
		if err != nil {
			if !errors.Is(err, millrace.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if again, err := parse(l.url(l.key)); err != nil || again != l {
			t.Errorf("%q is %+v, then %+v: %v", text, l, again, err)
		}
	})
}
