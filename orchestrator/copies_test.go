package orchestrator

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"millrace/checkpoint"
	"millrace/checkpoint/disk/disktest"
	"millrace/internal/failpoint"
	"millrace/internal/seam"
	"millrace/orchestrator/follow"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/etcdtest"
	"millrace/proto"
)

// candidateEnv makes this test program a candidate on one host: it has a candidate as JSON.
const candidateEnv = "MILLRACE_TEST_CANDIDATE"

// candidate is the process of one host.
type candidate struct{ URL, Run, Host, Dir, Fail string }

func (c candidate) socket() string { return filepath.Join(c.Dir, "s") }

// election is the value of the election key.
type election struct{ Host, Address, Identity string }

// leaderOf reads the election key of a run.
func leaderOf(ctx context.Context, client *clientv3.Client, run string) (e election, err error) {
	got, err := client.Get(ctx, "millrace/"+run+"/train/leader")
	if err == nil && len(got.Kvs) == 0 {
		err = errors.New("nobody leads")
	}
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(got.Kvs[0].Value, &e)
}

func dialSocket(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///orchestrator", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (seam.SystemNet{}).Dial(ctx, path)
		}))
}

// TestCandidateProcess is a candidate, if this test program was started as one. It ends when it is killed.
func TestCandidateProcess(t *testing.T) {
	text := os.Getenv(candidateEnv)
	if text == "" {
		return // it is part of TestALeaderIsKilled
	}
	var c candidate
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	fail, err := failpoint.Parse(c.Fail, c.Host)
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.URL}})
	if err != nil {
		t.Fatal(err)
	}
	journal := checkpoint.Config{Dir: filepath.Join(c.Dir, "journal"), CreatedBy: "test", LockWait: time.Second,
		Fail: fail}
	f := follow.New(follow.Config{Journal: journal, Version: testVersion(), Host: c.Host, Identity: rand.Text(),
		Dial: func(ctx context.Context) (*grpc.ClientConn, error) {
			leader, err := leaderOf(ctx, client, c.Run)
			if err != nil {
				return nil, err
			}
			return dialSocket(leader.Address)
		}})
	e, err := lease.NewEtcd(lease.EtcdConfig{Endpoints: []string{c.URL}, Run: c.Run, Stream: "train", Host: c.Host,
		Line: c.Host, Address: c.socket(), Journal: f, TTL: 2 * time.Second,
		Frozen: func(why string) { fmt.Println(c.Host, "frozen:", why) }})
	if err != nil {
		t.Fatal(err)
	}
	grant, err := follow.Elect(t.Context(), e, f)
	if err != nil {
		t.Fatal(err)
	}
	store, err := checkpoint.Open(journal)
	if err != nil {
		t.Fatal(err)
	}
	cfg := newConfig(t, 1)
	cfg.Host = c.Host
	o, err := New(t.Context(), cfg, Options{Store: store, Lines: os.Stdout, Leaser: grant, Fail: fail, Snapshots: 20,
		Places: &follow.Places{}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (seam.SystemNet{}).Listen(c.socket())
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	proto.RegisterOrchestratorServer(server, NewServer(o))
	go server.Serve(listener) // ends with the process
	fmt.Println(c.Host, "leads:", o.Run(t.Context()))
	os.Exit(1)
}

// processes are the processes of a run on several hosts.
type processes struct {
	*testing.T
	client *clientv3.Client
	url    string
	run    string
	dirs   map[string]string
	live   map[string]*exec.Cmd
	logs   map[string]string
}

// start starts the candidate of a host.
func (h *processes) start(host, fail string) {
	h.Helper()
	if h.dirs[host] == "" {
		h.dirs[host] = h.TempDir()
	}
	text, err := json.Marshal(candidate{URL: h.url, Run: h.run, Host: host, Dir: h.dirs[host], Fail: fail})
	if err != nil {
		h.Fatal(err)
	}
	h.logs[host] = filepath.Join(h.dirs[host], "log")
	log, err := os.OpenFile(h.logs[host], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		h.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCandidateProcess$")
	cmd.Env = append(os.Environ(), candidateEnv+"="+string(text))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	h.live[host] = cmd
}

// kill kills the candidate of a host, which may be dead.
func (h *processes) kill(host string) {
	if cmd := h.live[host]; cmd != nil {
		_ = cmd.Process.Kill() // it may be dead
		_ = cmd.Wait()         // killed
		delete(h.live, host)
	}
}

// await waits until something holds.
func (h *processes) await(what string, holds func() bool) {
	h.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			text := ""
			for _, log := range h.logs {
				b, _ := os.ReadFile(log) // empty if it is not there
				text += string(b)
			}
			h.Fatalf("not within %v: %s\n%s", patience, what, text)
		}
	}
}

// leads waits until a host but one leads, and returns a connection to it.
func (h *processes) leads(but string) (leader string, l *life) {
	h.Helper()
	var e election
	h.await("a host leads", func() bool {
		var err error
		e, err = leaderOf(h.Context(), h.client, h.run)
		return err == nil && e.Host != but
	})
	conn, err := dialSocket(e.Address)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { conn.Close() })
	h.await(e.Host+" answers", func() bool {
		_, err := proto.NewOrchestratorClient(conn).Status(h.Context(), &proto.StatusRequest{})
		return err == nil
	})
	return e.Host, &life{t: h.T, conn: conn}
}

// listed waits until the copies of some hosts are listed, and no others.
func (h *processes) listed(names ...string) {
	h.Helper()
	h.await(fmt.Sprint(names, " are listed"), func() bool {
		got, err := h.client.Get(h.Context(), "millrace/"+h.run+"/train/journals")
		if err != nil || len(got.Kvs) == 0 {
			return false
		}
		text := string(got.Kvs[0].Value)
		for _, name := range names {
			if !strings.Contains(text, name) {
				return false
			}
		}
		return strings.Count(text, "host-") == len(names)
	})
}

// TestALeaderIsKilled kills the leader between each two of commit, shipping, acknowledgement, record in etcd, and
// publication. A host with a copy is elected. It adopts the plans that count, and derives the rest: every step has the
// digests of a run in which nothing was killed. The killed host comes back as a follower, and then the second leader is
// killed.
func TestALeaderIsKilled(t *testing.T) {
	const first, steps = 40, 80
	undisturbed := live(t, newConfig(t, 1), disktest.NewMemory())
	undisturbed.load(0)
	want := undisturbed.serve("fresh", 1, steps, quiet)
	want.reach(t, 1, steps)
	undisturbed.stop()
	<-want.over
	cluster := etcdtest.Start(t, 1, nil)
	for _, point := range []string{"checkpoint/commit/before", "checkpoint/feed/before", "orchestrator/copies/before",
		"orchestrator/copies/after", "orchestrator/lease/after", "orchestrator/publish/before",
		"orchestrator/publish/after"} {
		t.Run(strings.ReplaceAll(point, "/", "-"), func(t *testing.T) {
			h := &processes{T: t, client: cluster.Client(), url: cluster.URLs()[0],
				run:  strings.ReplaceAll(point, "/", "-"),
				dirs: map[string]string{}, live: map[string]*exec.Cmd{}, logs: map[string]string{}}
			t.Cleanup(func() {
				for host := range h.dirs {
					h.kill(host)
				}
			})
			same := func(got *host) {
				t.Helper()
				got.mu.Lock()
				defer got.mu.Unlock()
				for step, content := range got.contents {
					if was := want.contents[step]; was != "" && was != content {
						t.Errorf("step %d is %s, of an undisturbed run %s", step, content, was)
					}
				}
			}
			h.start("host-0", point+"=kill@35")
			h.leads("")
			h.start("host-1", "")
			h.start("host-2", "")
			h.listed("host-0", "host-1", "host-2")
			_, l := h.leads("")
			l.load(0)
			got := l.serve("fresh", 1, 1<<40, quiet)
			killed := h.live["host-0"].Wait()
			delete(h.live, "host-0")
			if killed == nil || killed.Error() != "signal: killed" {
				t.Fatalf("the leader ended with %v", killed)
			}
			<-got.over
			same(got)
			if len(got.contents) == 0 || len(got.contents) > first {
				t.Errorf("%d steps were published before the kill", len(got.contents))
			}
			second, l := h.leads("host-0")
			l.load(0)
			got = l.serve("latest", 1, first, quiet)
			got.reach(t, 1, first)
			same(got)
			h.start("host-0", "")
			h.listed("host-0", "host-1", "host-2")
			h.kill(second)
			<-got.over
			third, l := h.leads(second)
			l.load(0)
			got = l.serve("latest", 1, steps, quiet)
			got.reach(t, 1, steps)
			same(got)
			t.Logf("host-0, then %s, then %s", second, third)
		})
	}
}
