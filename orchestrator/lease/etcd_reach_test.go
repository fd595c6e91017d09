package lease_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"millrace"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/etcdtest"
)

// TestExplain: the reason of a call without an answer names each member that cannot be reached, and the cure.
func TestExplain(t *testing.T) {
	files, stranger := etcdtest.Certificates(t, "millrace"), etcdtest.Certificates(t, "stranger")
	open, closed := etcdtest.Start(t, 1, nil), etcdtest.Start(t, 1, files)
	open.AwaitHealthy()
	plain, encrypted := open.URLs()[0], closed.URLs()[0]
	swapped := strings.NewReplacer("https:", "http:", "http:", "https:").Replace
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and nobody reads them
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	mute := "http://" + silent.Addr().String()
	for want, c := range map[string]lease.EtcdConfig{
		"http://127.0.0.1:1: connection refused: start etcd": {Endpoints: []string{"http://127.0.0.1:1", plain}},
		"look up the host":               {Endpoints: []string{"https://no-such-host.invalid:2379"}},
		"it is not encrypted":            {Endpoints: []string{swapped(plain)}, CA: files.CA},
		"if it is encrypted, write http": {Endpoints: []string{swapped(encrypted)}},
		"it wants a certificate":         {Endpoints: []string{encrypted}, CA: files.CA},
		"a CA that is not in " + stranger.CA: {Endpoints: []string{encrypted}, CA: stranger.CA, Cert: files.Cert,
			Key: files.Key},
		"it refuses " + stranger.Cert: {Endpoints: []string{encrypted}, CA: files.CA, Cert: stranger.Cert,
			Key: stranger.Key},
		mute + ": it accepts connections, and says nothing": {Endpoints: []string{mute}},
		"its members accept connections":                    {Endpoints: []string{plain}},
		"half are gone": {Endpoints: []string{encrypted}, CA: files.CA, Cert: files.Cert,
			Key: files.Key},
	} {
		got := c.Explain(t.Context(), context.DeadlineExceeded)
		for since := time.Now(); !strings.Contains(got, want) && time.Since(since) < 30*time.Second; { // a busy machine
			got = c.Explain(t.Context(), context.DeadlineExceeded)
		}
		if !strings.Contains(got, want) || !strings.HasPrefix(got, "etcd does not answer") {
			t.Errorf("%v: %q, want %q", c.Endpoints, got, want)
		}
	}
}

// TestAMemberThatIsAwayIsTriedOften: a client finds a member soon after it is back, however long it was away. gRPC's
// own pauses grow to two minutes: eight attempts would take 40 s.
func TestAMemberThatIsAwayIsTriedOften(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := lease.Dial(t.Context(), lease.EtcdConfig{Run: "run", Stream: millrace.Train, Host: "host",
		Endpoints: []string{"http://" + l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	asked := make(chan struct{})
	go func() { // ends with the client
		defer close(asked)
		_, _ = client.Get(client.Ctx(), "a key")
	}()
	begin := time.Now()
	if err := l.(*net.TCPListener).SetDeadline(begin.Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		conn, err := l.Accept()
		if err != nil {
			t.Fatalf("after %d attempts: %v", i, err)
		}
		conn.Close()
	}
	t.Logf("eight attempts within %v", time.Since(begin))
	client.Close()
	<-asked
}

const proxiedEnv = "MILLRACE_TEST_PROXIED"

// TestProxiesAreIgnored: a candidate does not ask the proxy of the environment for etcd. Proxies exempt the name
// "localhost", and not "localhost.". A process reads the variables once, so the candidate has a process of its own.
func TestProxiesAreIgnored(t *testing.T) {
	if os.Getenv(proxiedEnv) != "" {
		x := &bench{T: t}
		c := lease.EtcdConfig{Endpoints: []string{"https://localhost.:1"}, Run: "proxied", Stream: "train",
			TTL: 2 * time.Second}
		within, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, _, _ = x.candidate(c).Acquire(within, 0)
		return
	}
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxiesAreIgnored$")
	child.Env = append(os.Environ(), proxiedEnv+"=1", "NO_PROXY=", "no_proxy=")
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"} {
		child.Env = append(child.Env, name+"=http://"+proxy.Addr().String())
	}
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_ = proxy.(*net.TCPListener).SetDeadline(time.Now().Add(100 * time.Millisecond))
	if c, err := proxy.Accept(); err == nil {
		c.Close()
		t.Error("the candidate asked the proxy")
	}
}
