package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"millrace"
	"millrace/checkpoint"
	"millrace/checkpoint/disk/disktest"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/ledger"
	"millrace/proto"
	"millrace/verify/sim/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// life is an orchestrator with its loop, its store and its server, from its start to its end.
type life struct {
	t      *testing.T
	o      *Orchestrator
	store  *checkpoint.Store
	net    *memnet.Net
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // of Run, once ended
	stop   func()
	conn   *grpc.ClientConn
}

func openStore(t *testing.T, disk *disktest.Disk) *checkpoint.Store {
	t.Helper()
	store, err := checkpoint.Open(checkpoint.Config{Dir: "journal", CreatedBy: "test", Disk: disk})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func live(t *testing.T, cfg Config, disk *disktest.Disk) *life { return liveUnder(t, nil, cfg, disk) }

// liveUnder is live with a lease of one's own.
func liveUnder(t *testing.T, leaser lease.Leaser, cfg Config, disk *disktest.Disk) *life {
	t.Helper()
	return liveWith(t, Options{Leaser: leaser}, cfg, disk)
}

// liveWith is live with options of one's own.
func liveWith(t *testing.T, opt Options, cfg Config, disk *disktest.Disk) *life {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{t: t, store: openStore(t, disk), net: memnet.New(), cancel: cancel, ended: make(chan struct{})}
	var err error
	opt.Store, opt.Lines = l.store, io.Discard
	if l.o, err = New(context.Background(), cfg, opt); err != nil {
		t.Fatal(err)
	}
	listener, err := l.net.Listen("orchestrator")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	proto.RegisterOrchestratorServer(server, NewServer(l.o))
	go server.Serve(listener) // ends with Stop
	go func() {
		l.err = l.o.Run(ctx)
		close(l.ended)
	}()
	l.conn, err = grpc.NewClient(
		"passthrough:///orchestrator",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return l.net.Dial(ctx, "orchestrator") }),
	)
	if err != nil {
		t.Fatal(err)
	}
	l.stop = sync.OnceFunc(func() {
		cancel()
		<-l.ended
		server.Stop()
		l.conn.Close()
		if err := l.store.Close(); err != nil && !errors.Is(err, checkpoint.ErrClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(l.stop)
	return l
}

// wait waits for the end of Run.
func (l *life) wait() error {
	l.t.Helper()
	select {
	case <-l.ended:
		return l.err
	case <-time.After(patience):
		l.t.Fatal("the loop does not end")
		return nil
	}
}

// ask looks at the machine inside the loop.
func (l *life) ask(f func(*Machine)) {
	l.t.Helper()
	if err := NewServer(l.o).ask(context.Background(), func(m *Machine) error { f(m); return nil }); err != nil {
		l.t.Fatal(err)
	}
}

// load plays the loader until its stream ends: it offers every wanted ordinal of both sources.
func (l *life) load(records uint64) {
	stream, err := proto.NewOrchestratorClient(l.conn).Load(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	say := func(term uint64, e *proto.LoaderEvent) {
		e.Fence = &proto.Fence{Stream: "train", Term: term}
		_ = stream.Send(e) // the end of the stream is seen by Recv
	}
	say(
		0,
		&proto.LoaderEvent{
			Event: &proto.LoaderEvent_Hello{Hello: &proto.LoaderHello{Version: testVersion(), Name: "loader-0"}},
		},
	)
	say(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Cache{Cache: &proto.CacheFigures{Store: "host:/tokens", Hits: 3,
		Held: 7, Limit: 9}}})
	next, terms := map[string]uint64{}, map[string]uint64{}
	go func() { // ends with the stream, which ends with its connection
		for {
			order, err := stream.Recv()
			if err != nil {
				return
			}
			switch o := order.Order.(type) {
			case *proto.LoaderOrder_Open:
				manifest := &proto.Manifest{Source: o.Open.Source, Fingerprint: make([]byte, 16)}
				say(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Manifest{Manifest: manifest}})
			case *proto.LoaderOrder_Read:
				next[o.Read.Source], terms[o.Read.Source] = o.Read.Ordinal, o.Read.Term
			case *proto.LoaderOrder_Reading:
				offered := &proto.Offered{}
				for i, source := range o.Reading.Source {
					m := &proto.Offers{Source: source, Term: terms[source]}
					for n := next[source]; n < o.Reading.Until[i]; n++ {
						if records > 0 && n >= records {
							m.End, m.EndOrdinal = true, records
							break
						}
						m.Ordinal, m.Epoch, m.Shard = append(m.Ordinal, n), append(m.Epoch, 0), append(m.Shard, 0)
						m.Record, m.Tokens = append(m.Record, n), append(m.Tokens, length(m.Source, n))
						next[source] = n + 1
					}
					offered.Stripes = append(offered.Stripes, m)
				}
				say(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Offered{Offered: offered}})
			}
		}
	}()
}

// host is a sidecar with its ranks, which consume every plan at once.
type host struct {
	mu       sync.Mutex
	contents map[uint64]string // of each step, in the newest attempt
	below    map[uint32]uint64 // answered commits of each rank
	ended    *proto.Ended
	failed   string
	over     chan struct{} // closed when the stream ends
	err      error         // why it ended
}

// serve plays a sidecar whose ranks declare their starts. onPlan sees every plan before it is consumed.
func (l *life) serve(start string, ranks uint32, until uint64, onPlan func(*proto.Plan)) *host {
	stream, err := proto.NewOrchestratorClient(l.conn).Serve(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	h := &host{contents: map[uint64]string{}, below: map[uint32]uint64{}, over: make(chan struct{})}
	say := func(e *proto.SidecarEvent) { _ = stream.Send(e) } // the end of the stream is seen by Recv
	say(
		&proto.SidecarEvent{
			Event: &proto.SidecarEvent_Hello{Hello: &proto.SidecarHello{Version: testVersion(), Name: "sidecar-0"}},
		},
	)
	warm := &proto.Gpu{Uuid: "GPU-1", Measured: true, Busy: 0.25, IdleData: 12, Throttled: []string{"heat"}}
	say(&proto.SidecarEvent{Event: &proto.SidecarEvent_Gpus{Gpus: &proto.GpuFigures{Gpus: []*proto.Gpu{warm}}}})
	for r := range ranks {
		say(
			&proto.SidecarEvent{
				Event: &proto.SidecarEvent_Join{Join: &proto.Join{Rank: r, Start: start, Call: uint64(r) + 1}},
			},
		)
	}
	go func() { // ends with the stream, which ends with its connection
		defer close(h.over)
		for {
			order, err := stream.Recv()
			if err != nil {
				h.err = err
				return
			}
			if p := order.GetPlan(); p != nil {
				onPlan(p)
				for r := range ranks {
					if p.Step < until {
						say(
							&proto.SidecarEvent{
								Event: &proto.SidecarEvent_Commit{
									Commit: &proto.Commit{Rank: r, Attempt: p.Fence.Attempt, Step: p.Step},
								},
							},
						)
					}
				}
			}
			h.hear(order)
		}
	}()
	return h
}

func (h *host) hear(order *proto.SidecarOrder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch o := order.Order.(type) {
	case *proto.SidecarOrder_Plan:
		h.contents[o.Plan.Step] = fmt.Sprintf("%x %x", o.Plan.Content, o.Plan.Placement)
	case *proto.SidecarOrder_Committed:
		h.below[o.Committed.Rank] = max(h.below[o.Committed.Rank], o.Committed.Below)
	case *proto.SidecarOrder_Ended:
		h.ended = o.Ended
	case *proto.SidecarOrder_Failed:
		h.failed = o.Failed.Reason
	}
}

// reach waits until every rank's commits below a step were answered.
func (h *host) reach(t *testing.T, ranks uint32, below uint64) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Microsecond) {
		h.mu.Lock()
		all := uint32(0)
		for _, b := range h.below {
			if b >= below {
				all++
			}
		}
		h.mu.Unlock()
		if all == ranks {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the ranks stand at %v, want %d", h.below, below)
		}
	}
}

func quiet(*proto.Plan) {}

// TestPowerCutsChangeNoPlan cuts the power at seeded moments of a run. The disk that is left goes on to the same plans.
func TestPowerCutsChangeNoPlan(t *testing.T) {
	const steps = 40
	disk, rng := disktest.NewMemory(), rand.New(rand.NewPCG(3, 3))
	var cuts []*disktest.Disk
	l := live(t, newConfig(t, 2), disk)
	l.load(0)
	h := l.serve("fresh", 2, steps, func(*proto.Plan) {
		if rng.IntN(3) == 0 {
			cuts = append(cuts, disktest.Crash(disk, rng.IntN(101), rng.Uint64()))
		}
	})
	h.reach(t, 2, steps)
	l.stop()
	<-h.over
	if len(cuts) < 8 {
		t.Fatalf("only %d power cuts", len(cuts))
	}
	for i, cut := range cuts {
		again := live(t, newConfig(t, 2), cut)
		if again.o.Term() != 2 {
			t.Errorf("cut %d: term %d", i, again.o.Term())
		}
		again.load(0)
		g := again.serve("latest", 2, steps, quiet)
		g.reach(t, 2, steps)
		again.stop()
		<-g.over
		for step, content := range g.contents {
			if was := h.contents[step]; was != "" && content != was {
				t.Fatalf("cut %d: step %d is %s, was %s", i, step, content, was)
			}
		}
	}
}

// TestSnapshotsReplaceTheJournal: over many steps the store holds the same state in less space, and plans only as far
// back as checkpoints need them.
func TestSnapshotsReplaceTheJournal(t *testing.T) {
	const steps = retention + 600
	for _, c := range []struct {
		saved uint64 // step whose checkpoint is the newest
		gone  bool   // whether the first plans are gone
	}{{0, true}, {40, false}} {
		disk := disktest.NewMemory()
		l := live(t, newConfig(t, 1), disk)
		l.load(0)
		h := l.serve("fresh", 1, steps, quiet)
		if c.saved > 0 {
			l.ask(func(m *Machine) { m.saves.observe(c.saved) })
		}
		h.reach(t, 1, steps)
		var now string
		var cut *disktest.Disk
		l.ask(func(m *Machine) {
			now = snapshotBytes(t, m.s)
			if m.s.Watermark < steps-1 {
				t.Errorf("watermark %d", m.s.Watermark)
			}
			cut = disktest.Crash(disk, 0, 1)
		})
		l.stop()
		<-h.over
		store := openStore(t, cut)
		s, records, err := facts.Read(store, millrace.Train, newConfig(t, 1).Spec)
		if err != nil {
			t.Fatal(err)
		}
		if snapshotBytes(t, s) != now {
			t.Errorf("the restored state differs: %s", s)
		}
		first, last := store.Bounds()
		if last < steps || last-first > 2*snapshotEvery || records > snapshotEvery {
			t.Errorf("the journal holds %d to %d, %d after the snapshot", first, last, records)
		}
		for step, gone := range map[uint64]bool{0: c.gone, 300: c.gone, steps - 1: false} {
			key := checkpoint.StepKey{Stream: "train", Attempt: 1, Step: step}
			if _, ok, err := ledger.ReadPlan(store, key); err != nil || ok == gone {
				t.Errorf("plan of step %d: there %v, %v", step, ok, err)
			}
			if e, ok, err := store.Entry(key); err != nil || !ok ||
				fmt.Sprintf("%x %x", e.Digest[:16], e.Digest[16:32]) != h.contents[step] {
				t.Errorf("the ledger entry of step %d: %v %v", step, ok, err)
			}
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheLastMessagesAreSent: the end of the stream, the answer to every commit, and a failure are sent before the
// streams end.
func TestTheLastMessagesAreSent(t *testing.T) {
	l := live(t, newConfig(t, 2), disktest.NewMemory())
	l.load(60)
	h := l.serve("fresh", 2, 1<<40, quiet)
	if err := l.wait(); err != nil {
		t.Fatal(err)
	}
	<-h.over
	if h.ended == nil || h.below[0] != h.ended.Steps || h.below[1] != h.ended.Steps || h.ended.Steps == 0 ||
		h.err == io.EOF {
		t.Errorf("ended %v, answered %v, stream ended with %v", h.ended, h.below, h.err)
	}
	if _, err := proto.NewOrchestratorClient(l.conn).Status(context.Background(), &proto.StatusRequest{}); err == nil ||
		!strings.Contains(err.Error(), "stopping") {
		t.Errorf("after the end: %v", err)
	}

	l = live(t, newConfig(t, 2), disktest.NewMemory())
	l.load(0)
	h = l.serve("fresh", 2, 7, quiet)
	h.reach(t, 2, 7)
	fatal := &proto.Fatal{Source: "web", Reason: "file a.jsonl changed"}
	l.ask(func(m *Machine) {
		m.SidecarEvent(nil, &proto.SidecarEvent{Event: &proto.SidecarEvent_Fatal{Fatal: fatal}})
	})
	if err := l.wait(); err == nil || err.Error() != "file a.jsonl changed" {
		t.Fatalf("the loop ended with %v", err)
	}
	<-h.over
	if h.failed != "file a.jsonl changed" {
		t.Errorf("the trainers heard %q", h.failed)
	}
}

func TestAStreamThatIsNotReadDelaysNobody(t *testing.T) {
	l := live(t, newConfig(t, 1), disktest.NewMemory())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	deaf, err := proto.NewOrchestratorClient(l.conn).Serve(ctx)
	if err != nil {
		t.Fatal(err)
	}
	hello := &proto.SidecarHello{Version: testVersion(), Name: "sidecar-9"}
	if err := deaf.Send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	l.load(0)
	l.serve("fresh", 1, 200, quiet).reach(t, 1, 200)
	l.ask(func(m *Machine) {
		if !isConnected(m, "sidecar-9") {
			t.Error("the other sidecar was not there")
		}
	})
	cancel()
	for gone := false; !gone; time.Sleep(time.Millisecond) {
		l.ask(func(m *Machine) { gone = !isConnected(m, "sidecar-9") })
	}
}

// TestASwitchIsPassedOnDuringATurn: a sidecar finds a loader dead while the loop waits for a disk. The others hear of
// it at once, and once: all of them may report it.
func TestASwitchIsPassedOnDuringATurn(t *testing.T) {
	l := live(t, newConfig(t, 1), disktest.NewMemory())
	const sidecars = 3
	said := make([]proto.Orchestrator_ServeClient, sidecars)
	heard := make([]chan *proto.SidecarOrder, sidecars)
	for k := range sidecars {
		stream, err := proto.NewOrchestratorClient(l.conn).Serve(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		hello := &proto.SidecarHello{Version: testVersion(), Name: fmt.Sprintf("sidecar-%d", k)}
		if err := stream.Send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Hello{Hello: hello}}); err != nil {
			t.Fatal(err)
		}
		said[k], heard[k] = stream, make(chan *proto.SidecarOrder, 100)
		go func() { // ends with the stream, which ends with its connection
			defer close(heard[k])
			for {
				order, err := stream.Recv()
				if err != nil {
					return
				}
				if order.GetSwitched() != nil {
					heard[k] <- order
				}
			}
		}()
	}
	for there := false; !there; time.Sleep(time.Millisecond) {
		l.ask(func(m *Machine) { there = isConnected(m, "sidecar-1") && isConnected(m, "sidecar-2") })
	}
	busy, free := make(chan struct{}), make(chan struct{})
	go func() { // ends with the loop's wait
		_ = l.o.post(context.Background(), func(*Machine) { close(busy); <-free })
	}()
	<-busy
	report := func(k int, term uint64) {
		s := &proto.Switched{Source: "web", Stripe: 1, Term: term, Reason: "it is silent"}
		if err := said[k].Send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Switched{Switched: s}}); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(k int, term uint64) {
		t.Helper()
		select {
		case order := <-heard[k]:
			if s := order.GetSwitched(); s.Source != "web" || s.Stripe != 1 || s.Term != term ||
				order.Fence.Term != uint64(l.o.Term()) {
				t.Errorf("sidecar %d heard %v, want term %d", k, order, term)
			}
		case <-time.After(patience):
			t.Fatalf("sidecar %d heard nothing", k)
		}
	}
	report(0, 9)
	hears(1, 9)
	hears(2, 9)
	report(1, 9)
	report(2, 8)
	report(2, 10)
	hears(0, 10)
	hears(1, 10)
	close(free)
	l.stop()
	for k := range sidecars {
		for order := range heard[k] {
			t.Errorf("sidecar %d heard %v, too", k, order)
		}
	}
}

func TestAStoreThatFailsEndsTheRun(t *testing.T) {
	l := live(t, newConfig(t, 1), disktest.NewMemory())
	l.load(0)
	h := l.serve("fresh", 1, 1<<40, quiet)
	h.reach(t, 1, 3)
	if err := l.store.Close(); err != nil {
		t.Fatal(err)
	}
	// The store is closed before a write, or between a write and the lease's look at it.
	if err := l.wait(); !errors.Is(err, checkpoint.ErrClosed) || !strings.Contains(err.Error(), "journal: ") {
		t.Fatalf("the loop ended with %v", err)
	}
}

func TestAnotherIdentityIsRefused(t *testing.T) {
	disk := disktest.NewMemory()
	live(t, newConfig(t, 1), disk).stop()
	cfg := newConfig(t, 1)
	cfg.Changed = func(stored []byte) ([]string, error) {
		if string(stored) != `{"seed":"1"}` {
			t.Errorf("the stored identity is %s", stored)
		}
		return []string{"seed: 1 -> 2", "sequence_length: 64 -> 128"}, nil
	}
	store := openStore(t, disk)
	defer store.Close()
	_, err := New(context.Background(), cfg, Options{Store: store, Lines: io.Discard})
	if !errors.Is(err, millrace.ErrMismatch) || !strings.Contains(err.Error(), "seed: 1 -> 2") ||
		!strings.Contains(err.Error(), "sequence_length: 64 -> 128") {
		t.Fatalf("got %v", err)
	}
}
