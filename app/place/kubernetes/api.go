package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/internal/seam"
)

const (
	tries      = 5
	tryWithin  = 5 * time.Second // of one request
	undoWithin = 10 * time.Second
	firstPause = 100 * time.Millisecond // doubles
	maxPause   = 5 * time.Second        // also for Retry-After
	maxAnswer  = 64 << 20
)

// inPod adds the API server and the service account of the pod in which the process runs.
func inPod(c Config) (Config, error) {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return c, errors.New("find the API server: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: " +
			"run this in a pod")
	}
	namespace, err := os.ReadFile(filepath.Join(account, "namespace"))
	if err != nil {
		return c, fmt.Errorf("find the pod's namespace: %w: set automountServiceAccountToken: true", err)
	}
	c.Server, c.Namespace = "https://"+net.JoinHostPort(host, port), strings.TrimSpace(string(namespace))
	c.Token, c.CA = filepath.Join(account, "token"), filepath.Join(account, "ca.crt")
	return c, nil
}

// api sends requests to an API server. Safe for concurrent use.
type api struct {
	server, token, ca string
	clock             seam.Clock

	mu      sync.Mutex
	trusted string // content of the file ca, for which client was made
	client  *http.Client
}

func newAPI(server, token, ca string) *api {
	return &api{server: server, token: token, ca: ca, clock: seam.System{}}
}

func (a *api) get(ctx context.Context, path string, into any) error {
	answer, err := a.try(ctx, http.MethodGet, path, nil)
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	return a.explain(err, "GET", path)
}

func (a *api) patch(ctx context.Context, path string, patch []byte) error {
	_, err := a.try(ctx, http.MethodPatch, path, patch)
	return a.explain(err, "PATCH", path)
}

// try sends a request until the server answers for good. Each request has the same effect once or several times.
func (a *api) try(ctx context.Context, verb, path string, body []byte) (answer []byte, err error) {
	pause := firstPause
	for n := range tries {
		if n > 0 {
			// The processes that were refused together come again at different times.
			wait := pause + rand.N(pause)
			if r := new(refusal); errors.As(err, &r) {
				wait = min(max(wait, r.after), maxPause)
			}
			select {
			case <-a.clock.After(wait):
			case <-ctx.Done():
				return nil, errors.Join(ctx.Err(), err)
			}
			pause *= 2
		}
		answer, err = a.once(ctx, verb, path, body)
		// A caller that leaves while a refusal is on its way gets both errors, above.
		r := new(refusal)
		mayPass := ctx.Err() == nil
		if errors.As(err, &r) {
			mayPass = r.mayPass()
		}
		if err == nil || !mayPass {
			break
		}
	}
	return answer, err
}

// once sends a request, and returns a *refusal if the server answered with an error.
func (a *api) once(ctx context.Context, verb, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	client, err := a.trusting()
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(a.token)
	if err != nil {
		return nil, fmt.Errorf("read the token of the service account: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, verb, a.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "millrace")
	if body != nil {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case len(answer) > maxAnswer:
		return nil, &refusal{code: http.StatusRequestEntityTooLarge, text: "the answer has more than 64 MiB"}
	case response.StatusCode/100 != 2:
		return nil, refused(response, answer)
	}
	return answer, nil
}

// trusting returns a client that trusts the authorities that are in the file now. Connections stay open between
// requests, until the file changes.
func (a *api) trusting() (*http.Client, error) {
	text, err := os.ReadFile(a.ca)
	if err != nil {
		return nil, fmt.Errorf("read the authorities of the API server: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client != nil && a.trusted == string(text) {
		return a.client, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the authorities of the API server: %s has no certificate in PEM form", a.ca)
	}
	if a.client != nil {
		a.client.CloseIdleConnections()
	}
	a.trusted, a.client = string(text), &http.Client{
		// No proxy: the server is inside the cluster, and the token is for it alone.
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
			IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 2,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return a.client, nil
}

// refusal is an answer of the API server that is no success.
type refusal struct {
	code  int
	text  string
	after time.Duration // the server asks for this pause
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s", http.StatusText(r.code), r.text) }

// mayPass reports whether the same request may succeed later.
func (r *refusal) mayPass() bool {
	return r.code == http.StatusConflict || r.code == http.StatusTooManyRequests || r.code >= 500
}

func refused(response *http.Response, answer []byte) *refusal {
	var status struct{ Message string }
	_ = json.Unmarshal(answer, &status) // a proxy may answer with another text
	r := &refusal{code: response.StatusCode, text: status.Message}
	if r.text == "" {
		r.text = strconv.Quote(string(answer[:min(len(answer), 200)]))
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.after = time.Duration(seconds) * time.Second
	}
	return r
}

// explain names the request in its error, and the cure.
func (a *api) explain(err error, verb, path string) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	cure := "see that the API server answers"
	if r := new(refusal); errors.As(err, &r) {
		switch r.code {
		case http.StatusUnauthorized:
			cure = "give the pods of the orchestrators a service account with a token"
		case http.StatusForbidden:
			cure = "bind the Role of deploy/kubernetes/placer.yaml to the service account of the orchestrators"
		case http.StatusNotFound:
			cure = "apply deploy/kubernetes, or name the StatefulSet that there is"
		}
	} else if errors.Is(err, os.ErrNotExist) {
		cure = "set automountServiceAccountToken: true in the pods of the orchestrators"
	}
	object, _, _ := strings.Cut(path, "?")
	return fmt.Errorf("%s %s%s: %w: %s", verb, a.server, object, err, cure)
}
