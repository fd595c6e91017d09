package kubernetes_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/needs"
)

// patience bounds a wait for Kubernetes, on a busy machine.
const patience = 120 * time.Second

// admin is the token of the user who may do everything.
const admin = "admin-of-this-test"

// cluster is a Kubernetes without kubelets: etcd, API server, controller manager and scheduler, and kwok, which plays
// the nodes and says that pods run. Its processes end with the test.
type cluster struct {
	t      *testing.T
	dir    string
	bin    string       // programs of tools/k8s.sh
	server string       // https://host:port
	ca     string       // file
	web    *http.Client // nil: not made yet
}

// startCluster returns a cluster that has nodes, or skips the test.
func startCluster(t *testing.T, nodes ...string) *cluster {
	t.Helper()
	bin, etcd := os.Getenv("MILLRACE_K8S"), os.Getenv("MILLRACE_ETCD")
	needs.Require(t, "MILLRACE_K8S")
	c := &cluster{t: t, dir: t.TempDir(), bin: bin, server: "https://" + freeAddress(t)}
	c.ca = filepath.Join(c.dir, "certs", "apiserver.crt")
	c.writeFiles()
	store, peers := "http://"+freeAddress(t), "http://"+freeAddress(t)
	c.start(etcd, "--data-dir", c.file("etcd-data"), "--listen-client-urls", store, "--advertise-client-urls", store,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers,
		"--unsafe-no-fsync", "--log-level", "warn")
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(c.server, "https://"))
	c.start(c.program("kube-apiserver"), "--etcd-servers", store, "--cert-dir", c.file("certs"), "--secure-port", port,
		"--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--service-cluster-ip-range", "10.97.0.0/24",
		"--service-account-issuer", "https://kubernetes.test", "--service-account-key-file", c.file("sa.key"),
		"--service-account-signing-key-file", c.file("sa.key"), "--token-auth-file", c.file("tokens.csv"),
		"--authorization-mode", "RBAC", "--endpoint-reconciler-type", "none")
	c.await("the API server", func() error {
		_, err := c.request(admin, http.MethodGet, "/readyz", "", nil)
		return err
	})
	kubeconfig := "--kubeconfig=" + c.file("kubeconfig")
	c.start(c.program("kwok"), kubeconfig, "--manage-all-nodes=true", "--cidr=10.244.0.0/16",
		"--node-lease-duration-seconds=40")
	for _, node := range nodes {
		c.create("/api/v1/nodes", fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":%q,"labels":{
			"kubernetes.io/hostname":%q}},"status":{
			"allocatable":{"cpu":"64","memory":"256Gi","pods":"110"},
			"capacity":{"cpu":"64","memory":"256Gi","pods":"110"}}}`, node, node))
	}
	c.start(c.program("kube-controller-manager"), kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--service-account-private-key-file", c.file("sa.key"), "--root-ca-file", c.ca,
		"--node-monitor-grace-period=5m") // kwok is late on a busy machine
	c.start(c.program("kube-scheduler"), kubeconfig, "--leader-elect=false", "--secure-port=0")
	return c
}

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) program(name string) string { return filepath.Join(c.bin, name) }

func (c *cluster) writeFiles() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		c.t.Fatal(err)
	}
	signing := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test",
		"clusters":[{"name":"test","cluster":{"server":%q,"certificate-authority":%q}}],
		"users":[{"name":"admin","user":{"token":%q}}],
		"contexts":[{"name":"test","context":{"cluster":"test","user":"admin"}}]}`, c.server, c.ca, admin)
	for name, content := range map[string][]byte{
		"sa.key": signing, "kubeconfig": []byte(kubeconfig),
		"tokens.csv": []byte(admin + ",admin,1,system:masters\n"),
	} {
		if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
}

// start starts a program that is killed at the end of the test. The last one is killed first. Its output is in the log
// of the test if that fails.
func (c *cluster) start(program string, args ...string) {
	c.t.Helper()
	log, err := os.Create(c.file(filepath.Base(program) + ".log"))
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	c.t.Cleanup(func() {
		select {
		case <-ended:
			c.t.Errorf("%s ended by itself", filepath.Base(program))
		default:
			_ = cmd.Process.Kill()
			<-ended
		}
		if c.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			c.t.Logf("%s:\n%s", filepath.Base(program), text[max(0, len(text)-4000):])
		}
		log.Close()
	})
}

// await waits until try returns no error.
func (c *cluster) await(what string, try func() error) {
	c.t.Helper()
	if err := within(patience, try); err != nil {
		c.t.Fatalf("%s: not within %v: %v", what, patience, err)
	}
}

func within(bound time.Duration, try func() error) error {
	for deadline := time.Now().Add(bound); ; time.Sleep(50 * time.Millisecond) {
		if err := try(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// client returns a client that trusts the API server. It keeps connections open.
func (c *cluster) client() *http.Client {
	if c.web == nil {
		pool := x509.NewCertPool()
		if authorities, err := os.ReadFile(c.ca); err != nil || !pool.AppendCertsFromPEM(authorities) {
			return &http.Client{Timeout: time.Second} // the API server has not written its certificate yet
		}
		c.web = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	}
	return c.web
}

// request sends a request as the user of a token. The error has the server's answer.
func (c *cluster) request(token, verb, path, kind string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, verb, c.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	response, err := c.client().Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", verb, path, response.Status, answer)
	}
	return answer, err
}

func (c *cluster) create(path, object string) {
	c.t.Helper()
	if _, err := c.request(admin, http.MethodPost, path, "application/json", []byte(object)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) get(path string, into any) {
	c.t.Helper()
	answer, err := c.request(admin, http.MethodGet, path, "", nil)
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// kubectl runs kubectl as the administrator, and returns its output.
func (c *cluster) kubectl(stdin string, args ...string) (string, error) {
	cmd := exec.Command(c.program("kubectl"), append([]string{"--kubeconfig", c.file("kubeconfig")}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+c.dir)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (c *cluster) must(args ...string) string {
	c.t.Helper()
	out, err := c.kubectl("", args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
