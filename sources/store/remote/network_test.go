package remote

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"millrace/sources"
)

// storeHost is a name that no resolver knows: only a proxy reaches it.
const storeHost = "store.test"

// TestProxyAndAuthority: a process reads a store through a proxy, and trusts the authority that its environment names,
// for S3 and for web servers. Without the authority it refuses the store, and says so. It reads the hosts of NO_PROXY
// without the proxy. The environment is read once for
// each process, so each case is a process of its own.
func TestProxyAndAuthority(t *testing.T) {
	if url := os.Getenv("MILLRACE_TEST_URL"); url != "" {
		readInChild(t, url)
		return
	}
	backend := s3mem.New()
	if err := backend.CreateBucket("data"); err != nil {
		t.Fatal(err)
	}
	want := []byte(`{"text": "behind a proxy"}`)
	if _, err := backend.PutObject("data", "a.jsonl", nil, bytes.NewReader(want), int64(len(want)), nil); err != nil {
		t.Fatal(err)
	}
	store := httptest.NewUnstartedServer(gofakes3.New(backend).Server())
	authority := ownAuthority(t, store)
	store.StartTLS()
	defer store.Close()
	var tunnels atomic.Int64
	proxy := httptest.NewServer(tunnel(t, store.Listener.Addr().String(), &tunnels))
	defer proxy.Close()
	open := httptest.NewUnstartedServer(store.Config.Handler)
	open.Start()
	defer open.Close()
	// the same machine, under an address that proxies serve: they never serve 127.0.0.1
	plain := strings.Replace(open.URL, "127.0.0.1", "0.0.0.0", 1)
	https := "https://" + storeHost + "/data/a.jsonl"
	for _, c := range []struct {
		name, url string
		env       []string
		says      string // empty: the file is read
		direct    bool   // without the proxy
	}{
		{"web, SSL_CERT_FILE", https, []string{"SSL_CERT_FILE=" + authority}, "", false},
		{"s3, SSL_CERT_FILE", "s3://data/a.jsonl", []string{"SSL_CERT_FILE=" + authority}, "", false},
		{"s3, AWS_CA_BUNDLE", "s3://data/a.jsonl", []string{"AWS_CA_BUNDLE=" + authority}, "", false},
		{"s3, no authority", "s3://data/a.jsonl", nil, "name the authority that signed", false},
		{"web, no authority", https, nil, "name the authority that signed", false},
		{"web, NO_PROXY", plain + "/data/a.jsonl", []string{"NO_PROXY=0.0.0.0"}, "", true},
		{"s3, NO_PROXY", "s3://data/a.jsonl", []string{"NO_PROXY=0.0.0.0", "MILLRACE_TEST_ENDPOINT=" + plain}, "",
			true},
		{"web, NO_PROXY of another", plain + "/data/a.jsonl", []string{"NO_PROXY=other.test"}, "405", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := tunnels.Load()
			child := exec.Command(os.Args[0], "-test.run=^TestProxyAndAuthority$", "-test.v")
			child.Env = append([]string{"MILLRACE_TEST_URL=" + c.url, "HTTPS_PROXY=" + proxy.URL,
				"HTTP_PROXY=" + proxy.URL, "MILLRACE_TEST_ENDPOINT=https://" + storeHost,
				"AWS_ACCESS_KEY_ID=AKIASECRETKEYID", "AWS_SECRET_ACCESS_KEY=verysecretkey",
				"AWS_EC2_METADATA_DISABLED=true", "HOME=" + t.TempDir()}, c.env...)
			out, err := child.CombinedOutput()
			if (err == nil) != (c.says == "") || !strings.Contains(string(out), c.says) {
				t.Errorf("%v\n%s", err, out)
			}
			if strings.Contains(string(out), "SECRETKEYID") || strings.Contains(string(out), "verysecret") {
				t.Errorf("a credential is in\n%s", out)
			}
			if isUsed := tunnels.Load() > before; c.says == "" && isUsed == c.direct {
				t.Errorf("the proxy was used: %v", isUsed)
			}
		})
	}
}

// readInChild reads a file of the store.
func readInChild(t *testing.T, url string) {
	h := NewHost(Options{})
	files := h.Files("web", Storage{Endpoint: os.Getenv("MILLRACE_TEST_ENDPOINT"), Region: "us-east-1"})
	f, err := files.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, f.Size())
	if err := sources.ReadFull(f, got, 0); err != nil || !strings.Contains(string(got), "behind a proxy") {
		t.Fatalf("got %q, %v", got, err)
	}
}

// ownAuthority gives a server a certificate for storeHost, and returns the file of the authority that signed it.
func ownAuthority(t *testing.T, s *httptest.Server) (path string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority of one's own"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, DNSNames: []string{storeHost}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	path = filepath.Join(t.TempDir(), "authority.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tunnel is a proxy that connects every name to one address.
func tunnel(t *testing.T, to string, count *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != storeHost+":443" {
			http.Error(w, "", http.StatusMethodNotAllowed)
			return
		}
		count.Add(1)
		far, err := net.Dial("tcp", to)
		if err != nil {
			t.Error(err)
			return
		}
		near, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(far, near)
			far.Close()
		}()
		_, _ = io.Copy(near, far)
		near.Close()
	})
}
