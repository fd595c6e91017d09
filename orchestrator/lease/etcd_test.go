package lease_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"millrace"
	"millrace/internal/seam"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/etcdtest"
	"millrace/orchestrator/lease/leasetest"
)

// holderEnv makes this test program a process that holds a lease: it has the endpoints.
const holderEnv = "MILLRACE_TEST_HOLDER"

func TestMain(m *testing.M) {
	if endpoints := os.Getenv(holderEnv); endpoints != "" {
		if err := beHolder(strings.Split(endpoints, ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// beHolder takes the lease, prints its term, and commits the plan of each step that it reads.
func beHolder(endpoints []string) error {
	e, err := lease.NewEtcd(lease.EtcdConfig{Endpoints: endpoints, Run: "paused", Stream: "train", TTL: pausedTTL})
	if err != nil {
		return err
	}
	l, _, err := e.Acquire(context.Background(), 0)
	if err != nil {
		return err
	}
	defer l.Release()
	fmt.Println("term", l.Term())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var step, content uint64
		if _, err := fmt.Sscan(in.Text(), &step, &content); err != nil {
			return err
		}
		switch err := l.Commit(context.Background(), []lease.Plan{plan(step, byte(content))}); {
		case errors.Is(err, millrace.ErrFenced):
			fmt.Println("fenced")
		case err != nil:
			fmt.Println("failed", err)
		default:
			fmt.Println("committed")
		}
	}
	return nil
}

func plan(step uint64, content byte) lease.Plan {
	return lease.Plan{Attempt: 1, Step: millrace.Step(step), Content: millrace.Digest{content}}
}

// TestEtcd tests the lease in a cluster of three processes. Tests that leave the cluster as it is wait beside each
// other.
func TestEtcd(t *testing.T) {
	x := &bench{T: t, cluster: etcdtest.Start(t, 3, nil)}
	x.client = x.cluster.Client()
	t.Run("beside others", func(t *testing.T) {
		for name, test := range map[string]func(*bench){
			"a holder is paused":           (*bench).holderPaused,
			"a key is changed by force":    (*bench).forced,
			"a slow link":                  (*bench).slowLink,
			"a renewal takes long":         (*bench).lateAnswer,
			"a holder has stopped":         (*bench).stopped,
			"a holder of 2 s lives on":     func(x *bench) { x.livesOn(2 * time.Second) },
			"a holder of 5 s lives on":     func(x *bench) { x.livesOn(5 * time.Second) },
			"the list of journals changes": (*bench).listChanges,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(&bench{T: t, cluster: x.cluster, client: x.client})
			})
		}
	})
	for name, test := range map[string]func(*bench){
		"contract":                       (*bench).contract,
		"a leader is killed":             (*bench).leaderKilled,
		"the quorum is lost":             (*bench).quorumLost,
		"a watch meets a compaction":     (*bench).compaction,
		"a member hangs":                 (*bench).memberHangs,
		"a host slept":                   (*bench).slept,
		"a commit is whole":              (*bench).whole,
		"digests of old steps go":        (*bench).oldSteps,
		"a released lease leaves no key": (*bench).clean,
		"etcd is full":                   (*bench).full,
		"a successor does not wait":      (*bench).successor,
		"another has a listed journal":   (*bench).anotherLeads,
	} {
		t.Run(name, func(t *testing.T) { test(&bench{T: t, cluster: x.cluster, client: x.client}) })
	}
}

// bench is a test with a cluster.
type bench struct {
	*testing.T
	cluster *etcdtest.Cluster
	client  *clientv3.Client
}

// config returns the configuration of a run that is named after the test.
func (x *bench) config() lease.EtcdConfig {
	_, name, _ := strings.Cut(x.Name(), "/")
	return lease.EtcdConfig{Endpoints: x.cluster.URLs(), Run: strings.NewReplacer("/", ".", "_", "-").Replace(name),
		Stream: "train", Host: "host-1"}
}

func (x *bench) candidate(c lease.EtcdConfig) *lease.Etcd {
	x.Helper()
	e, err := lease.NewEtcd(c)
	if err != nil {
		x.Fatal(err)
	}
	return e
}

func (x *bench) acquire(c lease.EtcdConfig) (lease.Lease, context.Context) {
	x.Helper()
	ctx, cancel := context.WithCancel(x.Context())
	late := time.AfterFunc(30*time.Second, cancel)
	l, held, err := x.candidate(c).Acquire(ctx, 0)
	if err != nil {
		x.Fatal(err)
	}
	late.Stop()
	x.Cleanup(func() { l.Release(); cancel() })
	return l, held
}

func (x *bench) commits(l lease.Lease, mark error, plans ...lease.Plan) {
	x.Helper()
	if err := l.Commit(x.Context(), plans); !errors.Is(err, mark) {
		x.Fatalf("commit: %v, want %v", err, mark)
	}
}

// leader returns the key and the modification revision of a run's election key; 0: there is none.
func (x *bench) leader(c lease.EtcdConfig) (string, int64) {
	x.Helper()
	key := "millrace/" + c.Run + "/train/leader"
	got, err := x.client.Get(x.Context(), key)
	if err != nil {
		x.Fatal(err)
	}
	if len(got.Kvs) == 0 {
		return key, 0
	}
	return key, got.Kvs[0].ModRevision
}

func (x *bench) contract() {
	leasetest.Contract(x.T, func(t *testing.T) leasetest.Run {
		x := &bench{T: t, cluster: x.cluster, client: x.client}
		c := x.config()
		return func() *leasetest.Process {
			has := &named{}
			c := c
			c.Journal = has
			return &leasetest.Process{
				Has:     has.set,
				Leaser:  x.candidate(c),
				Journal: func(...lease.Plan) {},
				Depose: func() {
					key, _ := x.leader(c)
					if _, err := x.client.Delete(t.Context(), key); err != nil {
						t.Error(err)
					}
				},
				Exit: func() {},
			}
		}
	})
}

// named is a journal that only has a name.
type named struct {
	mu      sync.Mutex
	id      string
	stands  func() // called when it is to stand; may be nil
	yielded int
}

func (n *named) set(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.id = id
}

func (n *named) ID() (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id, nil
}

func (n *named) Stand() (string, error) {
	if n.stands != nil {
		n.stands()
	}
	return n.ID()
}

func (n *named) Yield() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.yielded++
}

// listChanges: a list that changes after a candidate has read it ends the candidate's claim. A candidate that waits for
// its journal to be listed says whose journal is.
func (x *bench) listChanges() {
	c := x.config()
	c.Address = "127.0.0.1:7000"
	l, _ := x.acquire(c)
	keeper := l.(lease.Keeper)
	both := []lease.Journal{{ID: "a", Host: "host-1"}, {ID: "b", Host: "host-2"}}
	if err := keeper.List(x.Context(), both); err != nil {
		x.Fatal(err)
	}
	key, _ := x.leader(c)
	got, err := x.client.Get(x.Context(), key)
	if err != nil || !strings.Contains(string(got.Kvs[0].Value), `"address":"127.0.0.1:7000"`) {
		x.Errorf("the election key is %v (%v)", got, err)
	}
	l.Release()
	journals := "millrace/" + c.Run + "/train/journals"
	var lines reasons
	n := &named{id: "b"}
	n.stands = func() {
		if _, err := x.client.Put(x.Context(), journals, `[{"journal":"a","host":"host-1"}]`); err != nil {
			x.Error(err)
		}
	}
	c.Journal, c.Frozen = n, lines.add
	ctx, cancel := context.WithTimeout(x.Context(), 1500*time.Millisecond)
	defer cancel()
	if _, err := x.candidate(c).Elect(ctx); !errors.Is(err, context.DeadlineExceeded) {
		x.Errorf("a candidate that was removed from the list before its claim: %v", err)
	}
	if n.yielded == 0 {
		x.Error("the candidate's journal still stands")
	}
	if text := lines.text(); !strings.Contains(text, "this host's journal lacks steps that host-1 has") {
		x.Errorf("the reasons are %q", text)
	}
}

// anotherLeads: a candidate that stands by and lacks a listed journal waits for nothing once another one leads.
func (x *bench) anotherLeads() {
	c := x.config()
	if _, err := x.client.Put(x.Context(), "millrace/"+c.Run+"/train/journals", `[{"journal":"a"}]`); err != nil {
		x.Fatal(err)
	}
	told, lacks := make(chan string, 16), c
	lacks.Journal, lacks.StandsBy, lacks.Frozen = &named{id: "b"}, true, func(why string) { told <- why }
	ctx, cancel := context.WithCancel(x.Context())
	waiting := make(chan error, 1)
	go func() { // read below
		_, err := x.candidate(lacks).Elect(ctx)
		waiting <- err
	}()
	if why := <-told; !strings.Contains(why, "this host's journal lacks steps") {
		x.Errorf("the first reason is %q", why)
	}
	c.Journal = &named{id: "a"}
	held, err := x.candidate(c).Elect(ctx)
	if err != nil {
		x.Fatal(err)
	}
	defer held.Release()
	select {
	case why := <-told:
		if why != "" {
			x.Errorf("the reason after the election is %q", why)
		}
	case <-time.After(20 * time.Second):
		x.Error("the candidate that stands by still says that it waits")
	}
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		x.Errorf("the candidate that stands by got: %v", err)
	}
	x.isCalm(lacks)
}

// isCalm fails unless a candidate that finds another leader says that it waits for nothing. The process before it may
// have waited.
func (x *bench) isCalm(c lease.EtcdConfig) {
	x.Helper()
	var said reasons
	ctx, cancel := context.WithTimeout(x.Context(), 60*time.Second)
	defer cancel()
	c.Frozen = func(why string) {
		if said.add(why); why == "" {
			cancel()
		}
	}
	if _, err := x.candidate(c).Elect(ctx); !errors.Is(err, context.Canceled) || said.newest() != "" {
		x.Errorf("a candidate that finds another leader says %q: %v", said.text(), err)
	}
}

// leaderKilled: the holder goes on committing, and nobody else gets the lease.
func (x *bench) leaderKilled() {
	c := x.config()
	c.TTL = 10 * time.Second // this host may be busy: an election may take seconds
	l, held := x.acquire(c)
	ctx, cancel := context.WithCancel(x.Context())
	defer cancel()
	rival := make(chan error, 1)
	go func() { // read below
		_, _, err := x.candidate(c).Acquire(ctx, 0)
		rival <- err
	}()
	leader := x.cluster.Leader()
	slowest := time.Duration(0)
	for step := range uint64(200) {
		if step == 50 {
			x.cluster.Kill(leader)
		}
		began := time.Now()
		x.commits(l, nil, plan(step, 1))
		slowest = max(slowest, time.Since(began))
	}
	x.Logf("the slowest of 200 commits took %v", slowest)
	x.cluster.Restart(leader)
	x.cluster.AwaitHealthy()
	x.commits(l, nil, plan(200, 1))
	if held.Err() != nil {
		x.Errorf("the lease was lost: %v", context.Cause(held))
	}
	cancel()
	if err := <-rival; !errors.Is(err, context.Canceled) {
		x.Errorf("the rival got: %v", err)
	}
}

// quorumLost: the holder stops by itself, and the lease is granted again once a quorum is back.
func (x *bench) quorumLost() {
	c := x.config()
	var lines reasons
	c.TTL, c.Frozen = 4*time.Second, lines.add
	l, held := x.acquire(c)
	x.commits(l, nil, plan(0, 1))
	granted := make(chan struct{})
	third := x.standBy(c, granted)
	x.cluster.Kill(0)
	x.cluster.Kill(1)
	lost := time.Now()
	x.commits(l, millrace.ErrFenced, plan(1, 1))
	<-held.Done()
	took := time.Since(lost)
	x.Logf("the holder stopped %v after the loss", took)
	if took > c.TTL { // the promise is seven tenths; the rest is for a busy machine
		x.Errorf("the holder stopped %v after the loss of the quorum, TTL %v", took, c.TTL)
	}
	next := c
	next.Host = "host-2"
	got := make(chan lease.Lease, 1)
	go func() { // read below
		again, _, err := x.candidate(next).Acquire(x.Context(), l.Term())
		if err != nil {
			x.Error(err)
		}
		got <- again
	}()
	select {
	case <-got:
		x.Fatal("a lease was granted without a quorum")
	case <-time.After(time.Second):
	}
	third(false)
	x.cluster.Restart(0)
	x.cluster.Restart(1)
	x.cluster.AwaitHealthy()
	again := <-got
	if again == nil {
		return
	}
	defer again.Release()
	if again.Term() <= l.Term() {
		x.Errorf("term %d after %d", again.Term(), l.Term())
	}
	x.commits(again, millrace.ErrMismatch, plan(0, 2))
	x.commits(again, nil, plan(1, 1)) // whether etcd took it from the last holder or not
	x.commits(again, millrace.ErrMismatch, plan(1, 2))
	x.commits(l, millrace.ErrFenced, plan(1, 1))
	if text := lines.text(); !strings.Contains(text, "ends in ") || !strings.Contains(text, "does not answer") {
		x.Errorf("the reasons are %q", text)
	}
	close(granted)
	third(true)
}

// standBy starts a candidate that stands by for the holder, and stands for the election when granted is closed. await
// fails the test unless the newest reason of the candidate is that etcd does not answer, or, if it is calm again, none.
func (x *bench) standBy(c lease.EtcdConfig, granted <-chan struct{}) (await func(isCalm bool)) {
	var said reasons
	ctx, cancel := context.WithCancel(x.Context())
	c.Host, c.StandsBy, c.Frozen = "host-3", true, said.add
	c.Journal = &named{stands: func() {
		select {
		case <-granted:
		case <-ctx.Done():
		}
	}}
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		if l, _, err := x.candidate(c).Acquire(ctx, 0); err == nil {
			l.Release()
		}
	}()
	x.Cleanup(func() { cancel(); <-done })
	return func(isCalm bool) {
		x.Helper()
		over := time.Now().Add(20 * time.Second)
		for strings.Contains(said.newest(), "does not answer") == isCalm && time.Now().Before(over) {
			time.Sleep(20 * time.Millisecond)
		}
		if now := said.newest(); strings.Contains(now, "does not answer") == isCalm || isCalm && now != "" {
			x.Errorf("a candidate that stands by said %q, and it is %v that it should be calm", said.text(), isCalm)
		}
	}
}

// reasons collects the reasons why a lease holds decisions up.
type reasons struct {
	mu    sync.Mutex
	lines []string
}

func (n *reasons) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *reasons) newest() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.lines) == 0 {
		return ""
	}
	return n.lines[len(n.lines)-1]
}

func (n *reasons) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.lines, "\n")
}

const pausedTTL = 2 * time.Second

// holderPaused: a process that is stopped past the end of its lease commits nothing when it goes on.
func (x *bench) holderPaused() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+strings.Join(x.cluster.URLs(), ","))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		x.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		x.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		x.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	hears := func(want string) {
		x.Helper()
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
			x.Fatalf("the holder says %q, want %q", lines.Text(), want)
		}
	}
	hears("term ")
	fmt.Fprintln(in, "0 1")
	hears("committed")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		x.Fatal(err)
	}
	for !isStopped(x.T, cmd.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
	fmt.Fprintln(in, "1 1") // read as soon as it goes on
	c := lease.EtcdConfig{Endpoints: x.cluster.URLs(), Run: "paused", Stream: "train"}
	next, _ := x.acquire(c) // once etcd has ended the lease
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		x.Fatal(err)
	}
	hears("fenced")
	x.commits(next, nil, plan(1, 2)) // nothing is there
	fmt.Fprintln(in, "2 1")
	hears("fenced")
	in.Close()
	if err := cmd.Wait(); err != nil {
		x.Error(err)
	}
	x.commits(next, nil) // the end of the old holder did not touch the new one
}

// isStopped reports whether all threads of a process are stopped.
func isStopped(t *testing.T, pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err == nil && !strings.Contains(string(stat), ") T ") {
			return false
		}
	}
	return true
}

// forced: a key that somebody removes or writes ends the lease, also if nothing is committed.
func (x *bench) forced() {
	c := x.config()
	for _, force := range []func(key string) error{
		func(key string) error { _, err := x.client.Delete(x.Context(), key); return err },
		func(key string) error { _, err := x.client.Put(x.Context(), key, "somebody"); return err },
	} {
		l, held := x.acquire(c)
		x.commits(l, nil, plan(0, 1))
		key, _ := x.leader(c)
		if err := force(key); err != nil {
			x.Fatal(err)
		}
		select {
		case <-held.Done():
		case <-time.After(3 * time.Second):
			x.Error("an idle holder does not notice that its key is gone")
		}
		x.commits(l, millrace.ErrFenced, plan(0, 1))
		l.Release()
		if _, err := x.client.Delete(x.Context(), key); err != nil {
			x.Fatal(err)
		}
	}
}

// compaction: a candidate whose watch resumes at a compacted revision looks at the key again.
func (x *bench) compaction() {
	c := x.config()
	l, _ := x.acquire(c)
	x.cluster.AwaitWatches(0, 0) // those of the tests before have ended
	relay := etcdtest.NewRelay(x, x.cluster.Members[0])
	far := c
	far.Endpoints = []string{relay.URL}
	got := make(chan error, 1)
	go func() { // read below
		next, _, err := x.candidate(far).Acquire(x.Context(), 0)
		if err == nil {
			next.Release()
		}
		got <- err
	}()
	x.cluster.AwaitWatches(0, 2) // of the election key and of the list of journals
	relay.Cut(true)
	relay.Drop()
	l.Release()
	var last int64
	for range 10 {
		put, err := x.client.Put(x.Context(), "other", "value")
		if err != nil {
			x.Fatal(err)
		}
		last = put.Header.Revision
	}
	if _, err := x.client.Compact(x.Context(), last); err != nil {
		x.Fatal(err)
	}
	relay.Cut(false)
	began := time.Now()
	select {
	case err := <-got:
		x.Logf("acquired %v after the link was back", time.Since(began))
		if err != nil {
			x.Error(err)
		}
	case <-time.After(8 * time.Second):
		x.Error("the candidate is stuck after a compaction")
		<-got
	}
}

// slowLink: the deadline counts from the sending of a renewal. On a cut link, the holder stops before etcd ends the
// lease.
func (x *bench) slowLink() {
	relay := etcdtest.NewRelay(x, x.cluster.Members[0])
	relay.Delay(150 * time.Millisecond)
	c := x.config()
	c.Endpoints, c.TTL = []string{relay.URL}, 3*time.Second
	l, held := x.acquire(c)
	x.commits(l, nil, plan(0, 1))
	select {
	case <-held.Done():
		x.Fatalf("the lease was lost on a slow link: %v", context.Cause(held))
	case <-time.After(c.TTL):
	}
	x.commits(l, nil, plan(1, 1))
	relay.Cut(true)
	cut := time.Now()
	<-held.Done()
	took := time.Since(cut)
	_, revision := x.leader(c)
	if revision != int64(l.Term()) {
		x.Errorf("etcd ended the lease before the holder stopped, %v after the cut", took)
	}
	if took > c.TTL {
		x.Errorf("the holder stopped %v after the cut", took)
	}
	x.commits(l, millrace.ErrFenced, plan(2, 1))
	relay.Cut(false)
	relay.Delay(0)
}

// stopped: a candidate waits for the holder's own deadline, 7 s after its last renewal, and not for etcd's 10 s.
func (x *bench) stopped() {
	c := x.config()
	granted, err := x.client.Grant(x.Context(), 10)
	if err != nil {
		x.Fatal(err)
	}
	_, err = x.client.Put(x.Context(), lease.LeaderKey(c), `{"host": "host-2"}`, clientv3.WithLease(granted.ID))
	if err != nil {
		x.Fatal(err)
	}
	renewed := make(chan time.Time, 1)
	time.AfterFunc(2*time.Second, func() {
		at := time.Now()
		if _, err := x.client.KeepAliveOnce(x.Context(), granted.ID); err == nil {
			renewed <- at
		}
	})
	x.acquire(c)
	waited := time.Since(<-renewed)
	x.Logf("elected %v after the last renewal", waited)
	if waited < 7*time.Second || waited >= 10*time.Second {
		x.Errorf("elected %v after the last renewal", waited)
	}
}

// livesOn: a candidate that waits takes nothing from a holder that renews its lease.
func (x *bench) livesOn(ttl time.Duration) {
	c := x.config()
	c.TTL = ttl
	l, held := x.acquire(c)
	x.standBy(c, make(chan struct{}))
	select {
	case <-held.Done():
		x.Fatalf("the lease of %v was lost: %v", ttl, context.Cause(held))
	case <-time.After(2 * ttl):
	}
	x.commits(l, nil, plan(0, 1))
}

// memberHangs: a member that is stopped, and so keeps its connections, costs no lease.
func (x *bench) memberHangs() {
	follower := (x.cluster.Leader() + 1) % 3
	l, held := x.acquire(x.config())
	x.cluster.Signal(follower, syscall.SIGSTOP)
	defer x.cluster.Signal(follower, syscall.SIGCONT)
	began := time.Now()
	for step := uint64(0); time.Since(began) < 5*time.Second; step++ {
		x.commits(l, nil, plan(step, 1))
		time.Sleep(50 * time.Millisecond)
	}
	if held.Err() != nil {
		x.Errorf("the lease was lost: %v", context.Cause(held))
	}
}

// sleeper is a clock of a host that slept.
type sleeper struct {
	seam.System
	slept atomic.Int64
}

func (s *sleeper) Boottime() int64 { return s.System.Boottime() + s.slept.Load() }

// slept: after a sleep, the first commit is refused, although no timer has fired and etcd still has the key.
func (x *bench) slept() {
	clock := &sleeper{}
	c := x.config()
	c.Clock, c.TTL = clock, 30*time.Second
	l, held := x.acquire(c)
	x.commits(l, nil, plan(0, 1))
	clock.slept.Store(int64(21 * time.Second))
	x.commits(l, millrace.ErrFenced, plan(1, 1))
	if held.Err() == nil {
		x.Error("the context goes on")
	}
	if _, revision := x.leader(c); revision != int64(l.Term()) {
		x.Error("etcd has another key already")
	}
}

// lateAnswer: an answer does not prolong the life of a lease from the time of its arrival.
func (x *bench) lateAnswer() {
	relay := etcdtest.NewRelay(x, x.cluster.Members[0])
	clock := &sleeper{}
	c := x.config()
	c.Endpoints, c.Clock, c.TTL = []string{relay.URL}, clock, 10*time.Second
	l, held := x.acquire(c)
	relay.Cut(true)
	for !relay.Holds() { // until a renewal is on its way: one is sent every 1.67 s, and waits for 2 s
		time.Sleep(time.Millisecond)
	}
	clock.slept.Store(int64(8 * time.Second))
	relay.Cut(false)
	select {
	case <-held.Done():
	case <-time.After(4 * time.Second):
		x.Error("the holder goes on, 8 s after it sent a renewal that holds for 7 s")
	}
	x.commits(l, millrace.ErrFenced, plan(0, 1))
}

// successor: a process of the same line takes the lease of its predecessor at once. A live predecessor is fenced.
func (x *bench) successor() {
	c := x.config()
	c.TTL, c.Line = 60*time.Second, "up-1"
	first, held := x.acquire(c)
	x.commits(first, nil, plan(0, 1))
	began := time.Now()
	second, _ := x.acquire(c)
	if took := time.Since(began); took > 10*time.Second {
		x.Errorf("the successor waited for %v", took)
	}
	x.commits(first, millrace.ErrFenced, plan(1, 1))
	if second.Term() <= first.Term() || held.Err() == nil {
		x.Errorf("terms %d and %d, the first holder's context: %v", first.Term(), second.Term(), held.Err())
	}
	first.Release() // has no hold on the second
	x.commits(second, nil, plan(1, 2))
	c.Line = "up-2"
	ctx, cancel := context.WithTimeout(x.Context(), 500*time.Millisecond)
	defer cancel()
	if _, _, err := x.candidate(c).Acquire(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		x.Errorf("a process of another line: %v", err)
	}
}

// whole: if one plan of a commit differs, none is recorded.
func (x *bench) whole() {
	l, _ := x.acquire(x.config())
	x.commits(l, nil, plan(5, 1))
	x.commits(l, millrace.ErrMismatch, plan(4, 1), plan(5, 2), plan(6, 1))
	x.commits(l, nil, plan(4, 2), plan(5, 1), plan(6, 2))
}

// oldSteps: the number of keys is bounded.
func (x *bench) oldSteps() {
	c := x.config()
	l, _ := x.acquire(c)
	var batch []lease.Plan
	began := time.Now()
	for step := range uint64(12000) {
		if batch = append(batch, plan(step, 1)); len(batch) == 500 {
			x.commits(l, nil, batch...)
			batch = nil
		}
	}
	x.Logf("12,000 plans in %v", time.Since(began))
	x.commits(l, millrace.ErrMismatch, plan(12000-4096, 2))
	count := func() int64 {
		got, err := x.client.Get(x.Context(), "millrace/"+c.Run+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			x.Fatal(err)
		}
		return got.Count
	}
	if n := count(); n < 4096 || n > 4096+256+64+1 {
		x.Errorf("%d keys", n)
	}
	next := plan(256, 1)
	next.Attempt = 2
	x.commits(l, nil, next)
	if n := count(); n != 2 {
		x.Errorf("%d keys after the next attempt began", n)
	}
}

// full: while etcd has no room, the holder keeps the lease, commits without plans succeed, and others wait.
func (x *bench) full() {
	c := x.config()
	var lines reasons
	c.Frozen = lines.add
	l, _ := x.acquire(c)
	x.commits(l, nil, plan(0, 1))
	alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}
	if _, err := pb.NewMaintenanceClient(x.client.ActiveConnection()).Alarm(x.Context(), alarm); err != nil {
		x.Fatal(err)
	}
	defer x.client.AlarmDisarm(x.Context(), &clientv3.AlarmMember{Alarm: pb.AlarmType_NOSPACE}) // again does no harm
	x.commits(l, nil)
	done := make(chan error, 1)
	go func() { done <- l.Commit(x.Context(), []lease.Plan{plan(1, 1)}) }() // read below
	select {
	case err := <-done:
		x.Fatalf("a commit into a full etcd: %v", err)
	case <-time.After(5 * time.Second): // longer than the lease lives without renewals
	}
	if _, err := x.client.AlarmDisarm(x.Context(), &clientv3.AlarmMember{Alarm: pb.AlarmType_NOSPACE}); err != nil {
		x.Fatal(err)
	}
	if err := <-done; err != nil {
		x.Error(err)
	}
	if text := lines.text(); !strings.Contains(text, "records no plans") || !strings.HasSuffix(text, "\n") {
		x.Errorf("the reasons are %q", text)
	}
}

// clean: only digests stay in etcd.
func (x *bench) clean() {
	before, err := x.client.Leases(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	c := x.config()
	l, _ := x.acquire(c)
	x.commits(l, nil, plan(0, 1))
	l.Release()
	if _, revision := x.leader(c); revision != 0 {
		x.Error("the election key is there")
	}
	after, err := x.client.Leases(x.Context())
	if err != nil || len(after.Leases) > len(before.Leases) {
		x.Errorf("%d leases, %d before, %v", len(after.Leases), len(before.Leases), err)
	}
}

// TestEtcdEncrypted: members and clients show each other certificates.
func TestEtcdEncrypted(t *testing.T) {
	files := etcdtest.Certificates(t, "millrace")
	x := &bench{T: t, cluster: etcdtest.Start(t, 1, files)}
	c := x.config()
	c.Run, c.CA, c.Cert, c.Key = "tls", files.CA, files.Cert, files.Key
	l, _ := x.acquire(c)
	x.commits(l, nil, plan(0, 1))
	l.Release()

	stranger := etcdtest.Certificates(t, "stranger")
	for want, wrong := range map[string]lease.EtcdConfig{
		"it wants a certificate":       {CA: files.CA},
		"it refuses " + stranger.Cert:  {CA: files.CA, Cert: stranger.Cert, Key: stranger.Key},
		"a CA that is not in":          {CA: stranger.CA, Cert: files.Cert, Key: files.Key},
		"this host does not know: nam": {Cert: files.Cert, Key: files.Key},
	} {
		c.CA, c.Cert, c.Key = wrong.CA, wrong.Cert, wrong.Key
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		var lines reasons
		c.Frozen = func(why string) {
			lines.add(why)
			if strings.Contains(why, want) {
				cancel()
			}
		}
		if _, _, err := x.candidate(c).Acquire(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("want the reason %q: %v after %q", want, err, lines.text())
		}
		cancel()
	}
	c.CA = files.Key
	if _, _, err := x.candidate(c).Acquire(t.Context(), 0); !errors.Is(err, millrace.ErrInvalid) {
		t.Errorf("a file without a certificate: %v", err)
	}
	c.CA, c.Cert, c.Key = files.CA, files.CA, files.Key
	if _, _, err := x.candidate(c).Acquire(t.Context(), 0); !errors.Is(err, millrace.ErrInvalid) {
		t.Errorf("a key of another certificate: %v", err)
	}
}

// TestEtcdPassword: a user has the keys of one run.
func TestEtcdPassword(t *testing.T) {
	x := &bench{T: t, cluster: etcdtest.Start(t, 1, nil)}
	admin := x.cluster.Client()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	must(admin.UserAdd(ctx, "root", "secret"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.RoleAdd(ctx, "run-1"))
	must(admin.RoleGrantPermission(ctx, "run-1", "millrace/run-1/", "millrace/run-10",
		clientv3.PermissionType(clientv3.PermReadWrite)))
	must(admin.UserAdd(ctx, "loader", "word"))
	must(admin.UserGrantRole(ctx, "loader", "run-1"))
	must(admin.AuthEnable(ctx))

	c := x.config()
	c.Run, c.User, c.Password, c.TTL = "run-1", "loader", "word", 5*time.Second
	l, held := x.acquire(c)
	x.commits(l, nil, plan(0, 1), plan(256, 1))
	select {
	case <-held.Done():
		t.Errorf("the lease was lost: %v", context.Cause(held))
	case <-time.After(5500 * time.Millisecond): // the lease was renewed
	}
	x.commits(l, nil, plan(257, 1))
	l.Release()
	for want, c := range map[string]lease.EtcdConfig{
		"read and write the keys below millrace/run-2/": {Run: "run-2", User: "loader", Password: "word"},
		"correct user and password_file":                {Run: "run-1", User: "loader", Password: "wrong"},
		"write user and password_file":                  {Run: "run-1"},
	} {
		c.Endpoints, c.Stream = x.cluster.URLs(), "train"
		within, cancel := context.WithTimeout(ctx, 30*time.Second)
		if _, _, err := x.candidate(c).Acquire(within, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
		cancel()
	}
}

// TestEtcdWithoutACluster: without etcd, a candidate waits and says so, and a signal ends the wait.
func TestEtcdWithoutACluster(t *testing.T) {
	for name, c := range map[string]lease.EtcdConfig{"": {}, " and a user": {User: "loader", Password: "word"}} {
		var lines reasons
		c.Endpoints, c.Run, c.Stream = []string{"http://127.0.0.1:1"}, "run-1", "train"
		c.TTL, c.Frozen = 2*time.Second, lines.add
		e, err := lease.NewEtcd(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, _, err := e.Acquire(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without etcd%s: %v", name, err)
		}
		cancel()
		if text := lines.text(); strings.Count(text, "etcd does not answer") != 1 {
			t.Errorf("without etcd%s the reasons are %q", name, text)
		}
	}
}

func TestEtcdConfig(t *testing.T) {
	sound := lease.EtcdConfig{Endpoints: []string{"https://a:2379", "https://b:2379"}, Run: "run-17", Stream: "train"}
	if _, err := lease.NewEtcd(sound); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*lease.EtcdConfig){
		`name ""`:                       func(c *lease.EtcdConfig) { c.Run = "" },
		`name "a/b"`:                    func(c *lease.EtcdConfig) { c.Run = "a/b" },
		`stream "a b"`:                  func(c *lease.EtcdConfig) { c.Stream = "a b" },
		"there is no endpoint":          func(c *lease.EtcdConfig) { c.Endpoints = nil },
		`endpoint "a:2379"`:             func(c *lease.EtcdConfig) { c.Endpoints[1] = "a:2379" },
		`endpoint "https://a"`:          func(c *lease.EtcdConfig) { c.Endpoints[1] = "https://a" },
		`endpoint "https://u:xxxxx@a:1`: func(c *lease.EtcdConfig) { c.Endpoints[1] = "https://u:p@a:1" },
		"http://a:2379 is not encrypted, and not on this host": func(c *lease.EtcdConfig) {
			c.Endpoints[1] = "http://a:2379"
		},
		"http://127.0.0.1:2379 is not encrypted: use": func(c *lease.EtcdConfig) {
			c.Endpoints, c.CA = []string{"http://127.0.0.1:2379"}, "ca.pem"
		},
		"some endpoints are encrypted": func(c *lease.EtcdConfig) { c.Endpoints[1] = "http://127.0.0.1:2379" },
		"TTL 1s":                       func(c *lease.EtcdConfig) { c.TTL = time.Second },
		"TTL 2.5s":                     func(c *lease.EtcdConfig) { c.TTL = 2500 * time.Millisecond },
		"cert and key":                 func(c *lease.EtcdConfig) { c.Cert = "cert.pem" },
		"user and password":            func(c *lease.EtcdConfig) { c.User = "u" },
	} {
		c := sound
		c.Endpoints = []string{"https://a:2379", "https://b:2379"}
		change(&c)
		if _, err := lease.NewEtcd(c); !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
