package loader

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/internal/arena"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources"
	"millrace/sources/read/order"
	"millrace/verify/sim/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is the longest wait of a test.
const patience = time.Minute

// numbers is a format of tokens. Each line is the length of a record, or names its fault: `bad` shows before the offer,
// `late` when the tokens are read, `damaged` ends the source.
type numbers struct {
	reads *atomic.Int64 // records that were read
	index *atomic.Int64 // shards that were indexed
	gate  chan struct{} // indexing waits until it is closed
}

func (numbers) Name() string { return "jsonl" }

func (n numbers) Open(_ context.Context, f sources.File, _ sources.Field, _ sources.Limits,
	index []byte) (sources.Shard, error) {
	raw := make([]byte, f.Size())
	if err := sources.ReadFull(f, raw, 0); err != nil {
		return nil, err
	}
	s := &numberShard{numbers: n, indexed: index != nil}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		s.lines = append(s.lines, lines.Text())
	}
	return s, nil
}

type numberShard struct {
	numbers
	lines   []string
	indexed bool
}

func (s *numberShard) Count() (uint64, bool) { return uint64(len(s.lines)), s.gate == nil || s.indexed }
func (s *numberShard) Seekable() bool        { return true }
func (s *numberShard) Close() error          { return nil }

func (s *numberShard) Index(ctx context.Context, progress func(int64)) ([]byte, error) {
	s.index.Add(1)
	for at := int64(1); ; at++ {
		progress(at)
		select {
		case <-s.gate:
			return []byte("indexed"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// Abilities implements sources.Shard.
func (s *numberShard) Abilities() sources.Abilities { return sources.Abilities{Lengths: s} }

// Length implements sources.Lengther.
func (s *numberShard) Length(record uint64) (uint32, bool) {
	if s.lines[record] == "late" {
		return 7, true
	}
	n, err := strconv.ParseUint(s.lines[record], 10, 32)
	return uint32(n), err == nil
}

func (s *numberShard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	for i := from; i < uint64(len(s.lines)); i++ {
		if err := s.Read(ctx, []uint64{i}, fn); err != nil {
			return err
		}
	}
	return nil
}

func (s *numberShard) Read(_ context.Context, records []uint64, fn func(sources.Record) error) error {
	for _, i := range records {
		s.reads.Add(1)
		r := sources.Record{Number: i, Offset: int64(i), Raw: 1}
		switch s.lines[i] {
		case "damaged":
			return millrace.Errorf(millrace.ErrDamaged, "the disk is gone")
		case "bad", "late":
			r.Err = millrace.Errorf(millrace.ErrBadSample, "not a number")
		default:
			n, _ := s.Length(i)
			r.Tokens = make([]uint32, n)
			for t := range r.Tokens {
				r.Tokens[t] = uint32(i)<<16 ^ uint32(t)
			}
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// world is a loader between a scripted orchestrator and a constructor.
type world struct {
	t      *testing.T
	net    *memnet.Net
	format numbers
	dir    string
	spec   func(string) (sources.Spec, error)
	orch   *script
	stop   func() error // ends the loader
	left   func() error // waits until it ends by itself
	terms  atomic.Int64
	leave  <-chan struct{}
	role   func(bool)
	clock  seam.Clock
	arenas arena.Space
}

// still is a clock that stands.
type still struct{ seam.System }

func (still) Now() time.Time { return time.Unix(1, 0) }

const seed = 7

func newWorld(t *testing.T, lines ...string) *world {
	w := &world{
		t:      t,
		net:    memnet.New(),
		format: numbers{reads: &atomic.Int64{}, index: &atomic.Int64{}},
		dir:    t.TempDir(),
		clock:  seam.System{},
	}
	if err := os.WriteFile(filepath.Join(w.dir, "a.jsonl"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.spec = func(name string) (sources.Spec, error) {
		if name != "web" {
			return sources.Spec{}, millrace.Errorf(millrace.ErrInvalid, "source %s is not in the mixture", name)
		}
		return sources.Spec{
			Name:     name,
			Format:   w.format,
			Base:     w.dir,
			Patterns: []string{"."},
			Shuffle:  millrace.Global,
			Seed:     seed,
			Epochs:   1,
		}, nil
	}
	return w
}

// start runs the loader and its first orchestrator.
func (w *world) start() *session {
	w.t.Helper()
	w.orchestrate()
	l := New(Config{
		Name:         "loader-0",
		Address:      "loader-0",
		Orchestrator: "orchestrator",
		Spec:         w.spec,
		Leave:        w.leave,
		Role:         w.role,
		Memory:       64 << 20,
		Parallel:     2,
		Net:          w.net,
		Arenas:       w.arenas,
		Clock:        w.clock,
		Log:          slog.New(slog.DiscardHandler),
		Ready:        func() {},
		Term:         func(millrace.Term) { w.terms.Add(1) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }() // stop waits for it
	var err error
	over := false
	w.left = func() error {
		err, over = <-ended, true
		defer func() { err = nil }()
		return err
	}
	w.stop = func() error {
		if !over {
			cancel()
			err, over = <-ended, true
		}
		return err
	}
	w.t.Cleanup(func() {
		if err := w.stop(); err != nil {
			w.t.Errorf("the loader ended with %v", err)
		}
		w.orch.server.Stop()
	})
	return w.orch.next(w.t)
}

// orchestrate replaces the orchestrator.
func (w *world) orchestrate() {
	w.t.Helper()
	if w.orch != nil {
		w.orch.server.Stop()
	}
	w.orch = &script{server: grpc.NewServer(), sessions: make(chan *session, 8)}
	proto.RegisterOrchestratorServer(w.orch.server, w.orch)
	l, err := w.net.Listen("orchestrator")
	if err != nil {
		w.t.Fatal(err)
	}
	go w.orch.server.Serve(l) // ends with Stop
}

// script is an orchestrator under the test's control.
type script struct {
	proto.UnimplementedOrchestratorServer
	server   *grpc.Server
	sessions chan *session
}

// session is one loader's stream.
type session struct {
	t      *testing.T
	stream proto.Orchestrator_LoadServer
	events chan *proto.LoaderEvent // closed when the stream ends
}

func (s *script) Load(stream proto.Orchestrator_LoadServer) error {
	x := &session{stream: stream, events: make(chan *proto.LoaderEvent, 1<<14)}
	s.sessions <- x
	defer close(x.events)
	for {
		e, err := stream.Recv()
		if err != nil {
			return err
		}
		x.events <- e
	}
}

// next returns the next session; its hello has been read.
func (s *script) next(t *testing.T) *session {
	t.Helper()
	select {
	case x := <-s.sessions:
		x.t = t
		if h := x.event().GetHello(); h.GetName() != "loader-0" || h.GetPid() != int64(os.Getpid()) ||
			h.GetAddress() != "loader-0" {
			t.Fatalf("hello is %v", h)
		}
		return x
	case <-time.After(patience):
		t.Fatal("no loader connected")
		return nil
	}
}

// event returns the next event that is no report of progress.
func (x *session) event() *proto.LoaderEvent {
	x.t.Helper()
	for {
		select {
		case e, ok := <-x.events:
			if !ok {
				x.t.Fatal("the stream ended")
			}
			if e.GetOpening() == nil {
				return e
			}
		case <-time.After(patience):
			x.t.Fatal("no event came")
		}
	}
}

// quiet fails if there is an event that the test has not read.
func (x *session) quiet() {
	x.t.Helper()
	select {
	case e := <-x.events:
		x.t.Fatalf("unexpected event %v", e)
	default:
	}
}

func (x *session) order(term uint64, o *proto.LoaderOrder) {
	x.t.Helper()
	o.Fence = &proto.Fence{Stream: "train", Term: term}
	if err := x.stream.Send(o); err != nil {
		x.t.Fatal(err)
	}
}

// open makes the loader open the source and returns the manifest.
func (x *session) open() *proto.Manifest {
	x.t.Helper()
	x.order(1, &proto.LoaderOrder{Order: &proto.LoaderOrder_Open{Open: &proto.OpenSource{Source: "web"}}})
	e := x.event()
	if e.GetManifest() == nil {
		x.t.Fatalf("opening gave %v", e)
	}
	return e.GetManifest()
}

// read makes the loader read a stripe from an ordinal on, under a term, and wants offers up to another ordinal.
func (x *session) read(stripe order.Stripe, term, from, want uint64) {
	x.t.Helper()
	x.order(1, &proto.LoaderOrder{
		Order: &proto.LoaderOrder_Read{
			Read: &proto.ReadFrom{
				Source:  "web",
				Stripe:  stripe.Index,
				Stripes: max(1, stripe.Of),
				Term:    term,
				Ordinal: from,
			},
		},
	})
	x.want(want)
}

func (x *session) want(until uint64) {
	x.t.Helper()
	x.reading(1, until, 0)
}

func (x *session) release(below uint64) {
	x.t.Helper()
	x.reading(1, 0, below)
}

func (x *session) reading(term, until, below uint64) {
	x.t.Helper()
	reading := &proto.Reading{Source: []string{"web"}, Until: []uint64{until}, Below: []uint64{below},
		SeekPoint: []*proto.SeekPoint{{}}}
	x.order(term, &proto.LoaderOrder{Order: &proto.LoaderOrder_Reading{Reading: reading}})
}

// offered is one offer.
type offered struct {
	ordinal, record uint64
	tokens          uint32
	bad             string
}

// offers collects n offers of an assignment and reports whether they included the end. It ignores offers of older
// terms.
func (x *session) offers(term uint64, n int) (out []offered, end bool) {
	x.t.Helper()
	for len(out) < n {
		e := x.event()
		if e.GetOffered() == nil {
			x.t.Fatalf("after %d of %d offers came %v", len(out), n, e)
		}
		for _, o := range e.GetOffered().Stripes {
			if o.Term < term {
				continue
			}
			bad := map[uint64]string{}
			for _, q := range o.Rejects {
				bad[q.Ordinal] = q.Id + ": " + q.Reason
			}
			for i := range o.Ordinal {
				out = append(out, offered{o.Ordinal[i], o.Record[i], o.Tokens[i], bad[o.Ordinal[i]]})
			}
			end = end || o.End
		}
	}
	return out, end
}

// fetched is the answer to a constructor: rows by number, and the replies.
type fetched struct {
	rows    map[uint32][]uint32
	replies int
	largest int           // bytes of the largest reply
	carried int           // bytes of tokens in the replies
	failed  map[int]error // by part
	last    bool
}

// take adds a reply.
func (f *fetched) take(t *testing.T, r *proto.FetchReply, cut *uint32) {
	t.Helper()
	if f.last {
		t.Fatal("a reply came after the last")
	}
	f.replies++
	f.largest, f.last = max(f.largest, pb.Size(r)), r.Last
	f.carried += len(r.Tokens)
	for row, err := range wire.Rows(r, len(r.Tokens) == 0) {
		if err != nil {
			t.Fatal(err)
		}
		if f.rows[row.Number] != nil && *cut != row.Number {
			t.Fatalf("row %d came twice", row.Number)
		}
		*cut = ^uint32(0)
		tokens := make([]uint32, row.Count)
		for i := range tokens {
			switch {
			case row.IDs == nil: // in the arena
			case row.IsWide:
				tokens[i] = binary.LittleEndian.Uint32(row.IDs[4*i:])
			default:
				tokens[i] = uint32(binary.LittleEndian.Uint16(row.IDs[2*i:]))
			}
		}
		f.rows[row.Number] = append(append([]uint32{}, f.rows[row.Number]...), tokens...)
	}
	if *cut = ^uint32(0); r.Cut {
		*cut = r.Row[len(r.Row)-1]
	}
	for _, x := range r.Failed {
		f.failed[int(x.Part)] = wire.FromPartFailed(x)
	}
}

// fetch sends the request of a constructor. The error is the stream's or that of the first part.
func (w *world) fetch(req *proto.FetchRequest) (fetched, error) {
	w.t.Helper()
	conn, err := grpc.NewClient(
		"passthrough:///loader",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return w.net.Dial(ctx, "loader-0") },
		),
	)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, cut := fetched{rows: map[uint32][]uint32{}, failed: map[int]error{}}, ^uint32(0)
	stream, err := proto.NewLoaderClient(conn).Fetch(ctx, req)
	if err != nil {
		return out, err
	}
	for {
		reply, err := stream.Recv()
		if err == io.EOF {
			if !out.last {
				w.t.Error("the stream ended without a last reply")
			}
			return out, out.failed[0]
		}
		if err != nil {
			return out, err
		}
		out.take(w.t, reply, &cut)
	}
}

// Traits implements sources.Format.
func (numbers) Traits() sources.Traits { return sources.Traits{} }
