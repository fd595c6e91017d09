package kubernetes

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/secure"
	"millrace/internal/secure/issue"
	"millrace/orchestrator/placer"
)

// server is an HTTPS server that answers as the API server does.
type server struct {
	mu       sync.Mutex
	asked    []string // verb, path and body of each request
	replicas map[string]int
	answer   func(n int, verb, path string) (code int, body string) // of request n; 0: as the API server
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	s.asked = append(s.asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
	if s.answer != nil {
		if code, text := s.answer(len(s.asked), r.Method, r.URL.Path); code != 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","message":%q}`, text)
			return
		}
	}
	set := strings.Split(r.URL.Path, "/")[7]
	if r.Method == http.MethodPatch {
		var n int
		_, _ = fmt.Sscanf(string(body), `{"spec":{"replicas":%d}}`, &n)
		s.replicas[set] = n
	}
	fmt.Fprintf(w, `{"metadata":{"name":%q},"spec":{"replicas":%d,"selector":{"matchLabels":{"role":%q}},
		"template":{"metadata":{"labels":{"role":%q}},"spec":{"containers":[
		{"name":"a","resources":{"requests":{"cpu":"500m","memory":"1Gi"}}},
		{"name":"b","resources":{"limits":{"cpu":"1","memory":"1Gi"}}}]}}}}`, set, s.replicas[set], set, set)
}

// instant is a clock whose waits end at once. It notes them.
type instant struct {
	mu    sync.Mutex
	waits []time.Duration
}

func (i *instant) Now() time.Time  { return time.Time{} }
func (i *instant) Boottime() int64 { return 0 }
func (i *instant) After(d time.Duration) <-chan time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waits = append(i.waits, d)
	done := make(chan time.Time, 1)
	done <- time.Time{}
	return done
}

func start(t *testing.T, s *server) (*Placer, *instant, Config) {
	t.Helper()
	s.replicas = map[string]int{"loader": 1, "shadow": 1}
	web := httptest.NewTLSServer(s)
	t.Cleanup(web.Close)
	c := Config{Server: web.URL, Namespace: "train", Token: filepath.Join(t.TempDir(), "token"),
		CA: filepath.Join(t.TempDir(), "ca"), Sets: map[string]string{"loader": "loader", "shadow": "shadow"}}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	if err := errors.Join(os.WriteFile(c.CA, ca, 0o600), os.WriteFile(c.Token, []byte("secret\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	clock := &instant{}
	p.api.clock = clock
	return p, clock, c
}

func want(roles ...placer.Wanted) placer.Desired { return placer.Desired{Roles: roles} }

func TestAGoalIsTriedAgain(t *testing.T) {
	for _, code := range []int{http.StatusConflict, http.StatusTooManyRequests, 500, 503, 504} {
		s := &server{answer: func(n int, _, _ string) (int, string) {
			if n == 1 || n == 3 {
				return code, "not now"
			}
			return 0, ""
		}}
		p, clock, _ := start(t, s)
		if err := p.Apply(t.Context(), want(placer.Wanted{Role: "loader", Count: 3})); err != nil {
			t.Errorf("%d: %v", code, err)
		}
		if s.replicas["loader"] != 3 || len(s.asked) != 4 {
			t.Errorf("%d: %v", code, s.asked)
		}
		if len(clock.waits) != 2 || clock.waits[0] < time.Second { // Retry-After: 1
			t.Errorf("%d: waits %v", code, clock.waits)
		}
	}
}

func TestItGivesUp(t *testing.T) {
	s := &server{answer: func(int, string, string) (int, string) { return 503, "etcd is away" }}
	p, clock, _ := start(t, s)
	err := p.Apply(t.Context(), want(placer.Wanted{Role: "loader", Count: 3}))
	if err == nil || !strings.Contains(err.Error(), "etcd is away") || len(s.asked) != tries ||
		len(clock.waits) != tries-1 {
		t.Errorf("%v, %v", err, s.asked)
	}
}

// TestErrorsNameTheRequestAndTheCure, and are not tried again.
func TestErrorsNameTheRequestAndTheCure(t *testing.T) {
	for code, cure := range map[int]string{401: "a service account with a token",
		403: "bind the Role of deploy/kubernetes", 404: "name the StatefulSet", 302: "see that"} {
		s := &server{answer: func(_ int, verb, _ string) (int, string) {
			if verb == "PATCH" {
				return code, "cannot patch"
			}
			return 0, ""
		}}
		p, _, c := start(t, s)
		err := p.Apply(t.Context(), want(placer.Wanted{Role: "loader", Count: 3}))
		for _, words := range []string{"kubernetes: role loader: ", "cannot patch", cure,
			"PATCH " + c.Server + "/apis/apps/v1/namespaces/train/statefulsets/loader/scale: "} {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%d: %v does not say %q", code, err, words)
			}
		}
		if len(s.asked) != 2 {
			t.Errorf("%d: %v", code, s.asked)
		}
	}
}

// TestAHalfGoalIsTakenBack: the second role is refused, so the first one gets its replicas again.
func TestAHalfGoalIsTakenBack(t *testing.T) {
	s := &server{answer: func(_ int, verb, path string) (int, string) {
		if verb == "PATCH" && strings.Contains(path, "shadow") {
			return 403, "no"
		}
		return 0, ""
	}}
	p, _, _ := start(t, s)
	err := p.Apply(t.Context(), want(placer.Wanted{Role: "loader", Count: 3}, placer.Wanted{Role: "shadow", Count: 3}))
	if err == nil || s.replicas["loader"] != 1 {
		t.Errorf("%v: %v", err, s.replicas)
	}
}

// TestAGoalBeyondThePodsIsRefused: a pod has 1.5 CPUs and 2 GiB, and nothing keeps it apart.
func TestAGoalBeyondThePodsIsRefused(t *testing.T) {
	s := &server{}
	p, _, _ := start(t, s)
	for cure, w := range map[string]placer.Wanted{
		"raise resources.requests.cpu to 1501m":         {CPU: 1501},
		"raise resources.requests.memory to 2147483649": {Memory: 2<<30 + 1},
		"give its template a required podAntiAffinity":  {Apart: "shadow"},
		"ask for loader or shadow":                      {Apart: "sidecar"},
	} {
		w.Role, w.Count = "loader", 4
		if err := p.Apply(t.Context(), want(w)); err == nil || !strings.Contains(err.Error(), cure) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	w := placer.Wanted{Role: "loader", Count: 4, CPU: 1500, Memory: 2 << 30, Near: "sidecar"}
	if err := p.Apply(t.Context(), want(w)); err != nil || s.replicas["loader"] != 4 {
		t.Errorf("%v: %v", err, s.replicas)
	}
}

// TestFilesAreReadAgain: the kubelet renews the token, and an authority may be replaced.
func TestFilesAreReadAgain(t *testing.T) {
	p, _, c := start(t, &server{})
	ca, err := os.ReadFile(c.CA)
	if err != nil {
		t.Fatal(err)
	}
	goal := want(placer.Wanted{Role: "loader", Count: 2})
	for file, content := range map[string]string{c.Token: "secret", c.CA: string(ca)} {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		err := p.Apply(t.Context(), goal)
		if err == nil || !strings.Contains(err.Error(), "automountServiceAccountToken: true") {
			t.Error(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.Apply(t.Context(), goal); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(c.CA, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(t.Context(), goal); err == nil || !strings.Contains(err.Error(), "no certificate in PEM form") {
		t.Error(err)
	}
}

func TestAServerOfAnotherAuthorityIsRefused(t *testing.T) {
	s := &server{}
	p, _, _ := start(t, s)
	other, err := issue.Issue(issue.Request{Dir: t.TempDir(), Hosts: []string{"127.0.0.1"}, Roles: secure.Roles(),
		Days: 1, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	p.api.ca = other.CA
	_, err = p.Observe(t.Context())
	if err == nil || !strings.Contains(err.Error(), "certificate") || len(s.asked) > 0 {
		t.Errorf("%v, %v", err, s.asked)
	}
}

func TestACallerWhoLeaves(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, _, _ := start(t, &server{answer: func(int, string, string) (int, string) {
		cancel()
		return 503, "not now"
	}})
	if err := p.Apply(ctx, want(placer.Wanted{Role: "loader", Count: 3})); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestOutsideAPod: the error names the missing variables.
func TestOutsideAPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := New(Config{}); err == nil || !strings.HasSuffix(err.Error(), "run this in a pod") {
		t.Error(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "::1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "automountServiceAccountToken: true") {
		t.Error(err)
	}
}

func TestQuantities(t *testing.T) {
	for text, n := range map[string]int64{"": 0, "1": 1000, "500m": 500, "1.5": 1500, "0.0005": 0, "2k": 2_000_000,
		"1Gi": 1000 << 30, "2e3": 2_000_000, "250u": 0, "-1": -1000} {
		if got, err := quantity(text, milli); got != n || err != nil {
			t.Errorf("%q: %d, %v, want %d", text, got, err, n)
		}
	}
	for _, text := range []string{"x", "1/2", "0x1", "1_0", "9E", "Gi", "1e999999999", "1p2"} {
		if got, err := quantity(text, milli); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}
