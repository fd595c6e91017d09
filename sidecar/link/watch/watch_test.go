package watch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"millrace"
	"millrace/internal/heartbeat"
	"millrace/internal/heartbeat/heartbeattest"
	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/proto"
	"millrace/sources/read/loader"
)

// childEnv names a directory for a process that plays a loader; burnEnv is the number of its busy goroutines.
const (
	childEnv = "MILLRACE_TEST_LOADER"
	burnEnv  = "MILLRACE_TEST_BURN"
)

// patience is how long a test waits for an expected event.
const patience = time.Minute

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		serve(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// serve runs a loader that serves other hosts on a port of the loopback device. It prints the address. No orchestrator
// comes.
func serve(dir string) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	remote := free.Addr().String()
	free.Close()
	page, err := heartbeat.Files{}.Create(heartbeat.Path(dir, "loader-0", os.Getpid()))
	if err != nil {
		panic(err)
	}
	burning, _ := strconv.Atoi(os.Getenv(burnEnv))
	for range burning {
		go burn(nil)
	}
	err = loader.New(loader.Config{
		Name: "loader-0", Address: filepath.Join(dir, "loader.sock"), Remote: remote,
		Orchestrator: filepath.Join(dir, "none.sock"), Beat: page, Memory: 1 << 20, Net: seam.SystemNet{},
		Clock: seam.System{}, Log: slog.New(slog.DiscardHandler), Ready: func() { fmt.Println(remote) },
		Term: func(millrace.Term) {},
	}).Run(context.Background())
	panic(err)
}

// burn keeps a processor busy until the channel is closed.
func burn(until <-chan struct{}) {
	for x := uint64(1); ; x = x*6364136223846793005 + 1 {
		if x&0xffff == 1 {
			select {
			case <-until:
				return
			default:
				runtime.KeepAlive(x)
			}
		}
	}
}

// start starts a process that plays a loader of another host, and returns its address.
func start(t testing.TB, burning int) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+t.TempDir(), burnEnv+"="+strconv.Itoa(burning))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, line[:len(line)-1]
}

// dial connects to an address of this machine.
func dial(address string) (*grpc.ClientConn, error) {
	var here *secure.Credentials
	return grpc.NewClient(secure.Target, here.Client(seam.SystemNet{}, address, secure.Loader)...)
}

// connect returns a connection that ends with the test.
func connect(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// patrolling returns a watcher that looks until the test ends.
func patrolling(t testing.TB, to *grpc.ClientConn) *Watcher {
	w := New(Config{
		Pages: heartbeattest.NewMemory(seam.System{}), Clock: seam.System{}, Log: slog.New(slog.DiscardHandler),
		Dial: func(string) (*grpc.ClientConn, error) { return to, nil },
	})
	ctx, leave := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { w.Patrol(ctx); close(ended) }() // the cleanup waits for it
	t.Cleanup(func() { leave(); <-ended; w.Retain(nil) })
	return w
}

// await returns the time until a loader is judged dead, or d if it is not.
func await(w *Watcher, x *Watched, d time.Duration) (time.Duration, bool) {
	began := time.Now()
	select {
	case <-w.Silence(x):
		return time.Since(began), true
	case <-time.After(d):
		return d, false
	}
}

// beatsOf returns the number of signs of life of a loader.
func beatsOf(x *Watched) uint64 { return x.beats.wire.Sample().Beats }

// eventually waits until ok returns true.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}

// relay forwards bytes between this process and an address until it is cut. Then both ends see nothing, and no reset.
type relay struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
	group sync.WaitGroup
}

// newRelay returns the address at which it forwards to another one.
func newRelay(t testing.TB, to string) (*relay, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, to: to}
	r.group.Go(r.accept)
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			c.Close()
		}
		r.mu.Unlock()
		r.group.Wait()
	})
	return r, l.Addr().String()
}

func (r *relay) accept() {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", r.to)
		if err != nil {
			near.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, near, far)
		r.mu.Unlock()
		r.group.Go(func() { r.forward(far, near) })
		r.group.Go(func() { r.forward(near, far) })
	}
}

func (r *relay) forward(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if r.hides() {
			_, _ = io.Copy(io.Discard, from) // until the test ends
			return
		}
		if _, e := to.Write(buf[:n]); err != nil || e != nil {
			to.Close()
			return
		}
	}
}

func (r *relay) hides() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isCut
}

// cut makes the other end disappear.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isCut = true
}

// TestARemoteProcessIsJudgedByItsBeats: it is killed, or stopped, or its host disappears without a reset.
func TestARemoteProcessIsJudgedByItsBeats(t *testing.T) {
	for _, how := range []string{"killed", "stopped", "cut"} {
		t.Run(how, func(t *testing.T) {
			cmd, address := start(t, 0)
			wire, near := newRelay(t, address)
			w := patrolling(t, connect(t, near))
			far := Process{Name: "loader-0", Address: address, IsRemote: true}
			x := w.Attend(far)
			eventually(t, func() bool { return beatsOf(x) > 10 })
			select {
			case <-w.Silence(x):
				t.Fatal("while it beats it is ", w.Judged(x))
			default:
			}
			switch how {
			case "killed":
				_ = cmd.Process.Kill()
			case "stopped":
				_ = cmd.Process.Signal(syscall.SIGSTOP)
			case "cut":
				wire.cut()
			}
			if after, ok := await(w, x, patience); !ok || after < heartbeat.Every || w.Judged(x) != "silent" {
				t.Fatalf("%s: it is %s after %v", how, w.Judged(x), after)
			}
			if how != "stopped" {
				return
			}
			_ = cmd.Process.Signal(syscall.SIGCONT)
			was := beatsOf(x)
			eventually(t, func() bool { return beatsOf(x) > was })
			w.Detach(x)
			if again := w.Attend(far); again != x || w.Judged(x) != "alive" {
				t.Errorf("a new request finds it %s", w.Judged(x))
			}
			if _, ok := await(w, x, 300*time.Millisecond); ok {
				t.Error("after it goes on it is judged dead")
			}
		})
	}
}

// TestAStreamOfBeatsLastsAsLongAsRequests: it opens with the first one, and closes some time after the last one. A
// loader that cannot be reached at all is silent, too.
func TestAStreamOfBeatsLastsAsLongAsRequests(t *testing.T) {
	_, address := start(t, 0)
	w := patrolling(t, connect(t, address))
	far := Process{Name: "loader-0", Address: address, IsRemote: true}
	x := w.Attend(far)
	eventually(t, func() bool { return beatsOf(x) > 0 })
	w.Detach(x)
	began := time.Now()
	isOpen := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return x.beats.cancel != nil
	}
	eventually(t, func() bool { return !isOpen() })
	if after := time.Since(began); after < lingerBeats-10*heartbeat.Look {
		t.Errorf("the stream closed %v after the last request, want %v", after, lingerBeats)
	}
	was := beatsOf(x)
	w.Attend(far)
	eventually(t, func() bool { return isOpen() && beatsOf(x) > was })
	w.Detach(x)
	nobody, err := net.Listen("tcp", "127.0.0.1:0") // accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	w = patrolling(t, connect(t, nobody.Addr().String()))
	x = w.Attend(Process{Name: "loader-1", Address: nobody.Addr().String(), IsRemote: true})
	if _, ok := await(w, x, patience); !ok {
		t.Error("a loader that does not answer is not judged")
	}
	w.Detach(x)
}

// TestALoaderThatAnswersIsNotAskedForBeats: its replies are signs of life. It is asked when one is owed.
func TestALoaderThatAnswersIsNotAskedForBeats(t *testing.T) {
	now := time.Unix(1000, 0)
	b := &beats{}
	b.begin(now, true)
	for range 1000 {
		b.wire.Live()
		now = now.Add(askAfter - heartbeat.Look)
		if b.look(now); !b.needed.IsZero() {
			t.Fatal("beats are needed, though replies come")
		}
	}
	now = now.Add(askAfter)
	if b.look(now); b.needed != now {
		t.Error("beats are not needed, though no reply comes")
	}
	b.wire.Hear(now, heartbeat.Beat{})
	now = now.Add(heartbeat.Look)
	if b.look(now); b.needed != now {
		t.Error("beats are not needed, though they alone come")
	}
}

// clock stands until a test moves it.
type clock struct {
	seam.Clock
	at time.Time
}

func (c *clock) Now() time.Time { return c.at }

// looking returns a watcher that a test moves, and one request to a loader of another host.
func looking() (w *Watcher, of *clock, far Process, x *Watched) {
	of = &clock{at: time.Unix(1000, 0)}
	w = New(Config{Clock: of, Log: slog.New(slog.DiscardHandler)})
	far = Process{Name: "loader-0", Address: "far", IsRemote: true}
	return w, of, far, w.Attend(far)
}

// pass looks for a time. Beats come meanwhile if the loader lives.
func (c *clock) pass(w *Watcher, x *Watched, d time.Duration, isAlive bool) {
	for end := c.at.Add(d); c.at.Before(end); {
		if c.at = c.at.Add(heartbeat.Look); isAlive {
			w.take(x, heartbeat.Beat{Slow: 1})
		}
		w.look()
	}
}

// TestAHedgeHidesNoSilence: requests of a lost loader end early, because its standby is asked as well and answers. The
// loader is judged by the time since the first of them.
func TestAHedgeHidesNoSilence(t *testing.T) {
	const request = 50 * time.Millisecond
	w, now, far, x := looking()
	x.beats.cancel = func() {} // as tend opens it
	x.beats.wire.Opening(now.at, true)
	began := now.at
	for w.Judged(x) == "alive" {
		if now.pass(w, x, request, false); now.at.Sub(began) > time.Second {
			t.Fatal("it stays alive")
		}
		w.Detach(x)
		if w.look() == 0 {
			t.Fatal("between requests nobody looks")
		}
		now.pass(w, x, 2*heartbeat.Look, false)
		w.Attend(far)
	}
	if after := now.at.Sub(began); after > 4*request {
		t.Errorf("it is judged %v after the first request", after)
	}
	select {
	case <-w.Silence(x):
	default:
		t.Error("the request that begins after the verdict does not learn it")
	}
	w.take(x, heartbeat.Beat{Slow: 1})
	w.Attend(far)
	if got := w.Judged(x); got != "alive" {
		t.Errorf("a new request after a beat finds it %s", got)
	}
}

// TestAVerdictLastsAsLongAsTheStream of beats: without one, a new request begins a new judgement.
func TestAVerdictLastsAsLongAsTheStream(t *testing.T) {
	w, now, far, x := looking()
	x.beats.cancel = func() {}
	now.pass(w, x, time.Second, false)
	w.Detach(x)
	if w.Attend(far); w.Judged(x) != "silent" {
		t.Errorf("while the stream is open, a new request finds it %s", w.Judged(x))
	}
	x.beats.isOver = true
	if w.Attend(far); w.Judged(x) != "alive" {
		t.Errorf("after the stream, a new request finds it %s", w.Judged(x))
	}
}

// TestAnAnswerEndsTheJudgement: nobody looks after it, and the next request begins another one, so that beats cost no
// more.
func TestAnAnswerEndsTheJudgement(t *testing.T) {
	w, now, far, x := looking()
	x.beats.cancel = func() {}
	now.pass(w, x, 2*askAfter, true)
	x.beats.wire.Live()
	if w.Detach(x); w.look() != 0 {
		t.Error("after the reply it is still judged")
	}
	now.at = now.at.Add(time.Hour)
	w.Attend(far)
	now.pass(w, x, askAfter/2, false)
	if got := w.Judged(x); got != "alive" || now.at.Sub(x.beats.needed) < time.Hour {
		t.Errorf("a new request finds it %s, and beats were needed %v ago", got, now.at.Sub(x.beats.needed))
	}
	w.Detach(x)
	w.Attend(far)
	if now.pass(w, x, heartbeat.Look, true); now.at.Sub(x.beats.needed) < time.Hour {
		t.Error("beats are needed before a reply is owed for long")
	}
	now.pass(w, x, askAfter/2, true)
	if x.beats.needed != now.at {
		t.Error("a request that ended without a reply does not count for the time in which one is owed")
	}
}

// TestAMistakeIsAboutOneLoader: beats that come back soon raise the limit of that loader, also of its next process.
func TestAMistakeIsAboutOneLoader(t *testing.T) {
	w, now, far, x := looking()
	silent := func(x *Watched) time.Duration {
		began := now.at
		for w.Judged(x) == "alive" && now.at.Sub(began) < time.Second {
			now.pass(w, x, heartbeat.Look, false)
		}
		return now.at.Sub(began)
	}
	x.beats.wire.Opening(now.at, true)
	first := silent(x)
	w.take(x, heartbeat.Beat{Slow: 1})
	far.Address = "next"
	next, other := w.Attend(far), w.Attend(Process{Name: "loader-1", Address: "other", IsRemote: true})
	for _, each := range []*Watched{next, other} {
		each.beats.wire.Opening(now.at, true)
	}
	began := now.at
	if after := silent(other); after > first {
		t.Errorf("another loader is judged after %v, want %v", after, first)
	}
	silent(next)
	if after := now.at.Sub(began); after <= first+first/2 || after >= time.Second {
		t.Errorf("the next process of the name is judged after %v; a mistake was made after %v", after, first)
	}
}

// TestAStarvedHostsLoadersAreWaitedFor, also before they were heard. Those of other hosts are not.
func TestAStarvedHostsLoadersAreWaitedFor(t *testing.T) {
	w, now, _, other := looking()
	x := w.Attend(Process{Name: "loader-1", Address: "there", IsRemote: true, Up: "up-1"})
	for _, each := range []*Watched{x, other} {
		each.beats.wire.Opening(now.at, true)
	}
	w.Starve(map[string]time.Duration{"up-1": time.Second})
	now.pass(w, x, time.Second, false)
	if got := w.Judged(x) + ", " + w.Judged(other); got != "alive, silent" {
		t.Errorf("a loader of a starved host and another one are %s after a second", got)
	}
	now.pass(w, x, 3*time.Second, false)
	if got := w.Judged(x); got != "silent" {
		t.Errorf("after much more than its host's delays it is %s", got)
	}
	w.Starve(nil)
	w.take(x, heartbeat.Beat{Slow: 1})
	w.Attend(Process{Name: "loader-1", Address: "there", IsRemote: true, Up: "up-1"})
	if now.pass(w, x, time.Second, false); w.Judged(x) != "silent" {
		t.Error("it is waited for, though its host starves no more")
	}
}

// mute is a loader without a heartbeat.
type mute struct {
	proto.UnimplementedLoaderServer
}

// TestALoaderWithoutBeatsIsNotJudged: only the end of a stream shows that it is dead.
func TestALoaderWithoutBeatsIsNotJudged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var here *secure.Credentials
	server := grpc.NewServer(here.Server()...)
	proto.RegisterLoaderServer(server, mute{})
	go server.Serve(l) // ends with Stop
	defer server.Stop()
	w := patrolling(t, connect(t, l.Addr().String()))
	x := w.Attend(Process{Name: "loader-0", Address: l.Addr().String(), IsRemote: true})
	defer w.Detach(x)
	if after, ok := await(w, x, time.Second); ok {
		t.Errorf("it is %s after %v", w.Judged(x), after)
	}
}

// TestAWatcherSleepsWithoutRequests for a loader of this host.
func TestAWatcherSleepsWithoutRequests(t *testing.T) {
	pages := heartbeattest.NewMemory(seam.System{})
	page, err := pages.Create("l0.beat")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	w := New(Config{Pages: pages, Clock: seam.System{}, Log: slog.New(slog.DiscardHandler)})
	x := w.Attend(Process{Name: "loader-0", Address: "l0", Beat: "l0.beat"})
	if w.look() == 0 {
		t.Error("with a request in flight it does not look")
	}
	if w.Detach(x); w.look() != 0 {
		t.Error("with nothing in flight it still looks")
	}
	if x := w.Attend(Process{Name: "loader-1", Address: "l1", Beat: "l1.beat"}); x != nil {
		t.Error("a loader without a page is watched")
	}
}
