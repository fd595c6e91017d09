package follow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"millrace"
	"millrace/checkpoint"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/etcdtest"
	"millrace/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const within = 30 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until something holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// bench is a run in etcd.
type bench struct {
	*testing.T
	cluster *etcdtest.Cluster
	client  *clientv3.Client
	run     string
	why     sync.Map // the newest reason why a candidate waits, by its host
}

func (x *bench) etcd(host string, journal lease.Standing, further ...lease.Part) *lease.Etcd {
	x.Helper()
	e, err := lease.NewEtcd(lease.EtcdConfig{Endpoints: x.cluster.URLs(), Run: x.run, Stream: "train", Host: host,
		TTL: 2 * time.Second, Journal: journal, Further: further, Frozen: func(why string) { x.why.Store(host, why) }})
	must(x, err)
	return e
}

// waitsFor waits until the reason why a host's candidate waits has some words.
func (x *bench) waitsFor(host, words string) {
	x.Helper()
	eventually(x, host+" says: "+words, func() bool {
		why, _ := x.why.Load(host)
		text, _ := why.(string)
		return strings.Contains(text, words)
	})
}

// listed returns the list of journals in etcd.
func (x *bench) listed() string {
	x.Helper()
	return x.listedOf("train")
}

func (x *bench) listedOf(stream string) string {
	x.Helper()
	got, err := x.client.Get(x.Context(), "millrace/"+x.run+"/"+stream+"/journals")
	must(x, err)
	if len(got.Kvs) == 0 {
		return ""
	}
	return string(got.Kvs[0].Value)
}

// service serves a leader as the orchestrator does.
type service struct {
	proto.UnimplementedOrchestratorServer
	leader  *Leader
	stopped chan struct{}
}

func (s *service) Follow(stream proto.Orchestrator_FollowServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	return s.leader.Serve(first.GetHello(), stream, s.stopped)
}

// host is a host of the run with its journal, its socket and a relay on the way to it.
type host struct {
	x       *bench
	name    string
	journal checkpoint.Config
	socket  string
	places  *Places // of the process, if it leads
	clock   seam.Clock

	store   *checkpoint.Store
	leader  *Leader
	lease   lease.Lease
	service *service
	server  *grpc.Server
}

func (x *bench) host(name string) *host {
	dir := x.TempDir()
	return &host{x: x, name: name, socket: filepath.Join(dir, "s"), places: &Places{}, clock: seam.System{},
		journal: checkpoint.Config{Dir: filepath.Join(dir, "journal"), CreatedBy: "test", LockWait: within}}
}

// lead opens the journal under a grant, and serves.
func (h *host) lead(ctx context.Context, l lease.Leaser) {
	h.x.Helper()
	var err error
	h.store, err = checkpoint.Open(h.journal)
	must(h.x, err)
	h.lease, _, err = l.Acquire(ctx, 0)
	must(h.x, err)
	h.leader = NewLeader(h.store, h.lease.(lease.Keeper), h.name, h.clock, h.places)
	must(h.x, h.leader.Begin(ctx))
	listener, err := (seam.SystemNet{}).Listen(h.socket)
	must(h.x, err)
	h.service = &service{leader: h.leader, stopped: make(chan struct{})}
	h.server = grpc.NewServer(grpc.WaitForHandlers(true))
	proto.RegisterOrchestratorServer(h.server, h.service)
	go h.server.Serve(listener) // ends with Stop
}

// leave ends a leader. Its journal stays.
func (h *host) leave() {
	h.x.Helper()
	close(h.service.stopped)
	h.server.Stop()
	h.lease.Release()
	must(h.x, h.store.Close())
}

// commit commits a step as the orchestrator does before it publishes.
func (h *host) commit(c checkpoint.Commit) {
	h.x.Helper()
	_, err := h.store.Commit(c)
	must(h.x, err)
	must(h.x, h.leader.Settle(h.x.Context()))
}

// dial connects to the socket of a host through a pipe that may be stopped.
func dialTo(h *host, way *way) Dial {
	return func(context.Context) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///leader", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				c, err := (seam.SystemNet{}).Dial(ctx, h.socket)
				return &slowConn{c, way}, err
			}))
	}
}

// way is the way to a leader: while it is closed, nothing is sent to the leader.
type way struct{ sync.RWMutex }

type slowConn struct {
	net.Conn
	way *way
}

func (c *slowConn) Write(b []byte) (int, error) {
	c.way.RLock()
	defer c.way.RUnlock()
	return c.Conn.Write(b)
}

// follows makes a host follow until the returned function is called. That function returns its journal closed.
func (h *host) follows(leader *host, w *way) (f *Follower, end func()) {
	f = h.follower(leader, w)
	ctx, cancel := context.WithCancel(h.x.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.run(ctx) })
	return f, sync.OnceFunc(func() { cancel(); wg.Wait() })
}

// follower returns the journal of a candidate. It follows a leader; nil: nobody.
func (h *host) follower(leader *host, w *way) *Follower {
	c := Config{Journal: h.journal, Host: h.name, Identity: h.name + " process"}
	if leader != nil {
		c.Dial = dialTo(leader, w)
	}
	return New(c)
}

// dump returns everything in a closed journal.
func (h *host) dump() string {
	h.x.Helper()
	s, err := checkpoint.Open(h.journal)
	must(h.x, err)
	defer s.Close()
	r, err := s.Verify()
	must(h.x, err)
	if !r.OK() {
		h.x.Fatalf("the journal of %s does not verify: %v", h.name, r.Problems)
	}
	return dump(h.x, s)
}

func dump(t testing.TB, s *checkpoint.Store) string {
	t.Helper()
	var b bytes.Buffer
	must(t, s.Dump(&b, checkpoint.DumpOptions{}))
	return b.String()
}

func step(n uint64, size int) checkpoint.Commit {
	return checkpoint.Commit{
		Records: []checkpoint.Record{{Step: int64(n), Kind: 3, Body: bytes.Repeat([]byte{byte(n)}, size)}},
		Plans: []checkpoint.Plan{{Key: checkpoint.StepKey{Stream: "train", Attempt: 1, Step: n},
			Body: bytes.Repeat([]byte{byte(n + 1)}, size), Digest: []byte{byte(n)}}},
	}
}

// TestCopies tests leaders and followers with a lease in etcd.
func TestCopies(t *testing.T) {
	cluster := etcdtest.Start(t, 1, nil)
	client := cluster.Client()
	for name, test := range map[string]func(*bench){
		"any history":               (*bench).anyHistory,
		"a slow follower":           (*bench).slow,
		"one of two is slow":        (*bench).oneOfTwo,
		"a third follower":          (*bench).third,
		"a candidate is elected":    (*bench).elected,
		"a leader that is deposed":  (*bench).deposed,
		"an ordinary run":           (*bench).ordinary,
		"places of several streams": (*bench).places,
		"a candidate of streams":    (*bench).streams,
	} {
		t.Run(name, func(t *testing.T) {
			test(&bench{T: t, cluster: cluster, client: client, run: strings.ReplaceAll(name, " ", "-")})
		})
	}
}

// anyHistory: random commits, snapshots and truncations, while followers are lost and come back at random moments. At
// the end both copies equal the journal, and at every moment the listed ones have all that was settled.
func (x *bench) anyHistory() {
	rng := rand.New(rand.NewPCG(11, 11))
	leader := x.host("host-0")
	leader.lead(x.Context(), x.etcd("host-0", nil))
	hosts := []*host{x.host("host-1"), x.host("host-2")}
	ends := make([]func(), len(hosts))
	lost := 0
	for n := uint64(1); n <= 400; n++ {
		i := rng.IntN(len(hosts))
		switch {
		case ends[i] == nil:
			_, ends[i] = hosts[i].follows(leader, &way{})
		case rng.IntN(25) == 0:
			lost++
			ends[i]()
			ends[i] = nil
		}
		leader.commit(step(n, rng.IntN(20000)))
		must(x, leader.leader.Admit(x.Context()))
		_, last := leader.store.Bounds()
		switch rng.IntN(20) {
		case 0:
			must(x, leader.store.SaveSnapshot(last, int64(n), bytes.Repeat([]byte("s"), rng.IntN(3<<20))))
			must(x, leader.store.Truncate(last-rng.Uint64N(3)))
			must(x, leader.store.DropSnapshots(last))
		case 1:
			must(x, leader.store.DropPlans("train", n-min(n, 50)))
		}
	}
	for i, h := range hosts {
		if ends[i] == nil {
			_, ends[i] = h.follows(leader, &way{})
		}
	}
	leader.commit(step(401, 100))
	eventually(x, "both copies are listed", func() bool {
		must(x, leader.leader.Admit(x.Context()))
		return leader.places.Copies() == 3 && strings.Count(x.listed(), "host-") == 3
	})
	must(x, leader.leader.Settle(x.Context()))
	want := dump(x, leader.store)
	for i, h := range hosts {
		ends[i]()
		if h.dump() != want {
			x.Errorf("the journal of %s differs from the leader's", h.name)
		}
	}
	x.Logf("followers were lost %d times", lost)
	leader.leave()
}

// slow: a listed follower that does not answer is removed from the list before the leader goes on. It comes back when
// it is in step. One for which too many bytes wait begins again.
func (x *bench) slow() {
	leader, h := x.host("host-0"), x.host("host-1")
	leader.lead(x.Context(), x.etcd("host-0", nil))
	w := &way{}
	f, end := h.follows(leader, w)
	defer end()
	leader.commit(step(1, 100))
	eventually(x, "the copy is listed", func() bool {
		must(x, leader.leader.Admit(x.Context()))
		return strings.Contains(x.listed(), "host-1")
	})
	id, err := f.ID()
	must(x, err)
	if !strings.Contains(x.listed(), id) {
		x.Errorf("the list is %s, the copy %s", x.listed(), id)
	}
	w.Lock() // its acknowledgements do not arrive
	began := time.Now()
	leader.commit(step(2, 100))
	if took := time.Since(began); took < patience || took > 20*patience {
		x.Errorf("a follower that does not answer held a commit up for %v", took)
	}
	if strings.Contains(x.listed(), "host-1") {
		x.Errorf("the list is %s", x.listed())
	}
	fastest := patience
	for n := range uint64(5) { // a busy machine holds some of them up
		began = time.Now()
		leader.commit(step(3+n, 100))
		fastest = min(fastest, time.Since(began))
	}
	if fastest == patience {
		x.Error("a follower that is not listed holds commits up")
	}
	w.Unlock()
	began = time.Now()
	eventually(x, "the copy is listed again", func() bool {
		must(x, leader.leader.Admit(x.Context()))
		return strings.Contains(x.listed(), id)
	})
	if took := time.Since(began); took < pause/2 {
		x.Errorf("a slow follower is back after %v", took)
	}
	leader.leave()
}

// patient is a clock that knows no end of the leader's patience.
type patient struct{ seam.System }

func (c patient) After(d time.Duration) <-chan time.Time {
	if d == patience {
		return nil
	}
	return c.System.After(d)
}

// oneOfTwo: when one follower has a batch and the other lags behind, the leader goes on without the other. There are
// two copies then. While neither has it, both stay in the list, and the leader waits.
func (x *bench) oneOfTwo() {
	leader := x.host("host-0")
	leader.clock = patient{}
	leader.lead(x.Context(), x.etcd("host-0", nil))
	ways := []*way{{}, {}}
	for i, w := range ways {
		_, end := x.host(fmt.Sprint("host-", i+1)).follows(leader, w)
		defer end()
	}
	leader.commit(step(1, 100))
	eventually(x, "both copies are listed", func() bool {
		must(x, leader.leader.Admit(x.Context()))
		return strings.Count(x.listed(), "host-") == 3
	})
	for _, w := range ways {
		w.Lock() // its acknowledgements do not arrive
	}
	defer ways[1].Unlock()
	_, err := leader.store.Commit(step(2, 100))
	must(x, err)
	ctx, cancel := context.WithTimeout(x.Context(), within)
	defer cancel()
	settled := make(chan error, 1)
	go func() { settled <- leader.leader.Settle(ctx) }() // ends with ctx
	select {
	case err := <-settled:
		x.Errorf("the leader goes on with one copy, error %v, the list is %s", err, x.listed())
	case <-time.After(3 * lag):
	}
	if list := x.listed(); strings.Count(list, "host-") != 3 {
		x.Errorf("no follower has the batch, and the list is %s", list)
	}
	ways[0].Unlock()
	must(x, <-settled)
	if list := x.listed(); !strings.Contains(list, "host-1") || strings.Contains(list, "host-2") {
		x.Errorf("host-1 alone has the batch, and the list is %s", list)
	}
	leader.leave()
}

// third: a leader serves two followers. A third one gets the place of one that is lost.
func (x *bench) third() {
	leader := x.host("host-0")
	leader.lead(x.Context(), x.etcd("host-0", nil))
	leader.commit(step(1, 100))
	var ends []func()
	list := func(names ...string) {
		x.Helper()
		eventually(x, fmt.Sprint(names, " are listed"), func() bool {
			must(x, leader.leader.Settle(x.Context()))
			must(x, leader.leader.Admit(x.Context()))
			text := x.listed()
			for _, name := range names {
				if !strings.Contains(text, name) {
					return false
				}
			}
			return strings.Count(text, "host-") == len(names)+1
		})
	}
	for i := 1; i <= 3; i++ {
		_, end := x.host(fmt.Sprint("host-", i)).follows(leader, &way{})
		defer end()
		ends = append(ends, end)
		if i <= 2 {
			list([]string{"host-1", "host-2"}[:i]...)
		}
	}
	eventually(x, "the third follower waits", func() bool {
		leader.leader.mu.Lock()
		defer leader.leader.mu.Unlock()
		return len(leader.leader.followers) == 3
	})
	list("host-1", "host-2")
	ends[0]()
	list("host-2", "host-3")
	leader.leave()
}

// elected: when the leader is gone, the host with a listed copy is elected and has everything. A host whose copy was
// removed from the list waits, although it is there first.
func (x *bench) elected() {
	leader, listed, stale := x.host("host-0"), x.host("host-1"), x.host("host-2")
	leader.lead(x.Context(), x.etcd("host-0", nil))
	_, end := stale.follows(leader, &way{})
	leader.commit(step(1, 100))
	eventually(x, "host-2 is listed", func() bool {
		must(x, leader.leader.Admit(x.Context()))
		return strings.Contains(x.listed(), "host-2")
	})
	end()
	for n := uint64(2); n < 10; n++ {
		leader.commit(step(n, 1000))
	}
	late, f := stale.follower(nil, nil), listed.follower(leader, &way{})
	grants := make(chan *lease.Grant, 2)
	ctx, cancel := context.WithCancel(x.Context())
	var wg sync.WaitGroup
	elect := func(f *Follower, host string) {
		wg.Go(func() {
			g, err := Elect(ctx, x.etcd(host, f), f)
			if err == nil {
				grants <- g
			} else if !errors.Is(err, context.Canceled) {
				x.Errorf("elect %s: %v", host, err)
			}
		})
	}
	elect(late, "host-2")
	elect(f, "host-1")
	eventually(x, "host-1 is listed", func() bool {
		must(x, leader.leader.Admit(x.Context()))
		return strings.Contains(x.listed(), "host-1")
	})
	leader.commit(step(10, 1000))
	if strings.Contains(x.listed(), "host-2") {
		x.Fatalf("the list is %s", x.listed())
	}
	want := dump(x, leader.store)
	leader.leave()
	g := <-grants
	listed.lead(x.Context(), g)
	if got := dump(x, listed.store); got != want {
		x.Errorf("the elected host lacks something: it has\n%s\nwant\n%s", got, want)
	}
	if text := x.listed(); !strings.Contains(text, "host-1") || strings.Count(text, "host-") != 1 {
		x.Errorf("the new leader lists %s", text)
	}
	listed.commit(step(11, 100))
	x.waitsFor("host-2", "on host-1 has it")
	select {
	case <-grants:
		x.Error("the host with a stale copy was elected, too")
	default:
	}
	listed.leave()
	x.waitsFor("host-2", "this host's journal lacks steps") // nobody leads, and it is the only candidate
	select {
	case <-grants:
		x.Error("the host with a stale copy was elected while a listed one exists")
	default:
	}
	cancel()
	wg.Wait()
}

// deposed: a leader that lost the lease changes no list, and its Settle and Admit say so.
func (x *bench) deposed() {
	leader, h := x.host("host-0"), x.host("host-1")
	leader.lead(x.Context(), x.etcd("host-0", nil))
	_, end := h.follows(leader, &way{})
	leader.commit(step(1, 100))
	eventually(x, "the copy is listed", func() bool {
		must(x, leader.leader.Admit(x.Context()))
		return strings.Contains(x.listed(), "host-1")
	})
	before := x.listed()
	_, err := x.client.Delete(x.Context(), "millrace/"+x.run+"/train/leader")
	must(x, err)
	end()
	_, err = leader.store.Commit(step(2, 100))
	must(x, err)
	if err := leader.leader.Settle(x.Context()); !errors.Is(err, millrace.ErrFenced) {
		x.Errorf("a deposed leader settles: %v", err)
	}
	if after := x.listed(); after != before {
		x.Errorf("a deposed leader made the list %s, it was %s", after, before)
	}
	leader.leave()
}

// TestPieces: batches of any size arrive whole and in order. A gap, a repeat, a flipped bit and a batch of another
// number are noticed.
func TestPieces(t *testing.T) {
	var sent []*proto.JournalBytes
	send := func(p *proto.JournalPart) error { sent = append(sent, p.GetBytes()); return nil }
	var a assembly
	a.await(7)
	for i, size := range []int{0, 1, pieceSize, pieceSize + 1, 3*pieceSize + 5} {
		batch := bytes.Repeat([]byte{byte(i + 1)}, size)
		sent = nil
		must(t, sendBatch(send, 7+uint64(i), batch))
		var got []byte
		for n, p := range sent {
			wrong := []*proto.JournalBytes{
				{Number: p.Number + 1, Bytes: p.Bytes, More: p.More, Crc: p.Crc},
				{Number: p.Number - 1, Bytes: p.Bytes, More: p.More, Crc: p.Crc},
				{Number: p.Number, Bytes: p.Bytes, More: p.More, Crc: p.Crc ^ 1},
				{Number: p.Number, Bytes: append(bytes.Clone(p.Bytes), 0), More: p.More, Crc: p.Crc},
			}
			if n > 0 {
				wrong = append(wrong, sent[n-1]) // a repeat of a piece
			}
			for _, w := range wrong {
				b := a
				b.batch = bytes.Clone(a.batch)
				if _, err := b.add(w); err == nil {
					t.Fatalf("batch of %d bytes, piece %d: a wrong one is taken", size, n)
				}
			}
			out, err := a.add(p)
			must(t, err)
			if (out == nil) != p.More && size > 0 {
				t.Fatalf("piece %d of %d: a batch of %d bytes", n, len(sent), len(out))
			}
			got = out
		}
		if !bytes.Equal(got, batch) {
			t.Fatalf("%d bytes arrived of %d", len(got), size)
		}
	}
}

// TestTheQueueIsBounded: a follower for which too many bytes wait is given up, and its bytes are let go.
func TestTheQueueIsBounded(t *testing.T) {
	q, never := newQueue(1000), make(chan struct{})
	q.Batch(1, make([]byte, 5000)) // alone it may be larger
	n, err := q.next(t.Context(), never)
	if err != nil || n.number != 1 || len(n.batch) != 5000 {
		t.Fatalf("%d, %v", n.number, err)
	}
	q.done(n)
	for i := range uint64(10) {
		q.Batch(2+i, make([]byte, 100))
	}
	if n, err = q.next(t.Context(), never); err != nil || n.number != 2 {
		t.Fatalf("%d, %v", n.number, err)
	}
	q.Batch(12, make([]byte, 1)) // the one that is being sent counts
	if q.bytes != 0 || q.waiting != nil {
		t.Errorf("%d bytes wait", q.bytes)
	}
	q.Batch(13, nil)
	if _, err := q.next(t.Context(), never); !errors.Is(err, millrace.ErrInvalid) {
		t.Errorf("the slow follower gets: %v", err)
	}
	stopped := make(chan struct{})
	close(stopped)
	q = newQueue(1000)
	q.Batch(1, []byte("last"))
	if n, err = q.next(t.Context(), stopped); err != nil || string(n.batch) != "last" {
		t.Errorf("a stopped leader sends %q, %v", n.batch, err)
	}
	if _, err = q.next(t.Context(), stopped); !errors.Is(err, errStopped) {
		t.Errorf("then: %v", err)
	}
}

// warnings counts the warnings of a follower.
type warnings struct {
	slog.Handler
	lines chan string
}

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		r.Attrs(func(a slog.Attr) bool { w.lines <- a.String(); return true })
	}
	return nil
}

// ordinary: a candidate is there before its leader, and after it. It has nothing to warn of.
func (x *bench) ordinary() {
	leader, h := x.host("host-0"), x.host("host-1")
	told := warnings{slog.NewTextHandler(io.Discard, nil), make(chan string, 100)}
	var dials atomic.Int64
	dial := func(ctx context.Context) (*grpc.ClientConn, error) {
		dials.Add(1)
		return dialTo(leader, &way{})(ctx)
	}
	f := New(Config{Journal: h.journal, Host: h.name, Identity: h.name, Dial: dial, Log: slog.New(told)})
	ctx, cancel := context.WithCancel(x.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.run(ctx) })
	triesTwice := func() {
		before := dials.Load()
		eventually(x, "it tries again, twice", func() bool { return dials.Load() >= before+2 })
	}
	triesTwice()
	leader.lead(x.Context(), x.etcd("host-0", nil))
	leader.commit(step(1, 100))
	eventually(x, "it follows", func() bool {
		must(x, leader.leader.Admit(x.Context()))
		return strings.Contains(x.listed(), "host-1")
	})
	leader.leave()
	triesTwice()
	cancel()
	wg.Wait()
	select {
	case line := <-told.lines:
		x.Errorf("it warns: %s", line)
	default:
	}
}

// TestATroubleIsToldOnce: people are told at once that a leader refuses a follower, and after a while that none is
// there.
func TestATroubleIsToldOnce(t *testing.T) {
	began := time.Unix(1000, 0)
	x := trouble{since: began}
	away := status.Error(codes.Unavailable, "no host plans it now")
	stopped := wire.FromStatus(wire.ToStatus(millrace.Mark(errStopped, context.Canceled)))
	for i, c := range []struct {
		err   error
		after time.Duration
		want  bool
	}{
		{away, 0, false}, {stopped, time.Second, false}, {away, absence - 1, false}, {away, absence, true},
		{away, absence + 1, false}, {millrace.Errorf(millrace.ErrInvalid, "another version"), 0, true},
		{millrace.Errorf(millrace.ErrInvalid, "another version"), absence, false},
		{wire.FromStatus(wire.ToStatus(errors.New("a damaged batch"))), 0, true},
	} {
		if got := x.isNews(c.err, began.Add(c.after)); got != c.want {
			t.Errorf("%d, %v after %v: %v", i, c.err, c.after, got)
		}
	}
}
