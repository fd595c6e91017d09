// Package etcdtest runs etcd clusters of real processes for tests, and relays that disturb the way to them.
package etcdtest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"millrace/internal/needs"
)

// patience bounds the waits for a cluster.
const patience = 60 * time.Second

// Program returns the path of etcd's server, or skips the test. tools/etcd.sh builds it.
func Program(t testing.TB) string {
	needs.Require(t, "etcd")
	if named := os.Getenv("MILLRACE_ETCD"); named != "" {
		return named
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	built, _ := filepath.Glob(filepath.Join(cache, "millrace", "etcd-*", "etcd")) // the pattern is valid
	return built[len(built)-1]
}

// Cluster is a cluster whose members are processes on this host. They die with the test.
type Cluster struct {
	t        testing.TB
	program  string
	dir      string
	security []string // flags
	scheme   string
	Members  []*Member
}

// Member is one member of a cluster.
type Member struct {
	URL     string // for clients
	Address string // of URL
	peer    string
	name    string
	cmd     *exec.Cmd // nil: it does not run
}

// Start starts a cluster and waits until it serves. files may have the PEM files of Certificates; then clients need
// certificates.
func Start(t testing.TB, members int, files *Files) *Cluster {
	t.Helper()
	c := &Cluster{t: t, program: Program(t), dir: t.TempDir(), scheme: "http"}
	if files != nil {
		c.scheme = "https"
		c.security = []string{"--cert-file", files.Cert, "--key-file", files.Key, "--trusted-ca-file", files.CA,
			"--client-cert-auth"}
	}
	for i := range members {
		address := freeAddress(t)
		c.Members = append(c.Members, &Member{name: fmt.Sprintf("m%d", i), Address: address,
			URL: c.scheme + "://" + address, peer: "http://" + freeAddress(t)})
	}
	t.Cleanup(func() {
		for i := range c.Members {
			c.Kill(i)
		}
	})
	for i := range c.Members {
		c.Restart(i)
	}
	if files == nil {
		c.AwaitHealthy()
	}
	return c
}

// freeAddress returns an address of this host at which no process listens.
func freeAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// URLs returns the client URLs of all members.
func (c *Cluster) URLs() (out []string) {
	for _, m := range c.Members {
		out = append(out, m.URL)
	}
	return out
}

// Restart starts a member that does not run.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	var all []string
	for _, m := range c.Members {
		all = append(all, m.name+"="+m.peer)
	}
	m := c.Members[i]
	log, err := os.OpenFile(filepath.Join(c.dir, m.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	m.cmd = exec.Command(c.program, append([]string{"--name", m.name, "--data-dir", filepath.Join(c.dir, m.name),
		"--listen-client-urls", m.URL, "--advertise-client-urls", m.URL,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
		"--initial-cluster", strings.Join(all, ","), "--log-level", "warn", "--unsafe-no-fsync"}, c.security...)...)
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
}

// Kill kills a member.
func (c *Cluster) Kill(i int) {
	m := c.Members[i]
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill() // it may have ended
	_ = m.cmd.Wait()         // killed
	m.cmd = nil
}

// Signal sends a member a signal, such as SIGSTOP.
func (c *Cluster) Signal(i int, s syscall.Signal) {
	c.t.Helper()
	if err := c.Members[i].cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// Client returns a client of all members, which the test need not close.
func (c *Cluster) Client() *clientv3.Client {
	c.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.URLs(), Logger: zap.NewNop()})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { client.Close() })
	return client
}

// AwaitWatches waits until clients of an unencrypted member have a number of watches.
func (c *Cluster) AwaitWatches(i, want int) {
	c.t.Helper()
	c.await(fmt.Sprintf("member %d has %d watches", i, want), func(_ *clientv3.Client, ctx context.Context) bool {
		return c.metric(ctx, i, "etcd_debugging_mvcc_watcher_total") == strconv.Itoa(want)
	})
}

// metric returns the value of a metric without labels that a member serves; "": it serves none now.
func (c *Cluster) metric(ctx context.Context, i int, name string) string {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Members[i].URL+"/metrics", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	ask.Close = true // no connection stays
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return value
		}
	}
	return ""
}

// AwaitHealthy waits until every member runs, knows a leader and answers.
func (c *Cluster) AwaitHealthy() {
	c.t.Helper()
	for i := range c.Members {
		c.await(fmt.Sprintf("member %d answers", i), func(client *clientv3.Client, ctx context.Context) bool {
			client.SetEndpoints(c.Members[i].URL)
			_, err := client.Get(ctx, "health") // linearizable: it needs the leader
			return err == nil
		})
	}
}

// Leader returns the member that leads.
func (c *Cluster) Leader() (leader int) {
	c.t.Helper()
	c.await("a member leads", func(client *clientv3.Client, ctx context.Context) bool {
		for i, m := range c.Members {
			s, err := client.Status(ctx, m.URL)
			if err == nil && s.Leader == s.Header.MemberId {
				leader = i
				return true
			}
		}
		return false
	})
	return leader
}

// await waits until a question is answered with yes.
func (c *Cluster) await(what string, ask func(*clientv3.Client, context.Context) bool) {
	c.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.URLs(), Logger: zap.NewNop()})
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		yes := ask(client, ctx)
		cancel()
		if yes {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("%s: not within %v\n%s", what, patience, c.logs())
		}
	}
}

// logs returns the logs of all members.
func (c *Cluster) logs() string {
	var b strings.Builder
	for _, m := range c.Members {
		text, _ := os.ReadFile(filepath.Join(c.dir, m.name+".log")) // empty if it is not there
		fmt.Fprintf(&b, "%s:\n%s\n", m.name, text)
	}
	return b.String()
}
