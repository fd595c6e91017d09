package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace"
	"millrace/constructors"
	"millrace/internal/arena"
	"millrace/internal/arena/arenatest"
	"millrace/internal/heartbeat"
	"millrace/internal/heartbeat/heartbeattest"
	"millrace/internal/seam"
	"millrace/internal/tokenid"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
	"millrace/verify/sim/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for an expected event.
const patience = time.Minute

// world is a link between a scripted orchestrator and scripted loaders.
type world struct {
	t     *testing.T
	net   *memnet.Net
	link  *Link
	orch  *script
	pages *heartbeattest.Memory
	mem   *arenatest.Memory
	dump  string
	files *testFiles
	ended chan error
	term  atomic.Uint64 // the newest reported term
}

func newWorld(t *testing.T, count int) (*world, *session) { return newWorldOf(t, count, "") }

// newWorldOf returns a link that belongs to an `up`.
func newWorldOf(t *testing.T, count int, up string) (*world, *session) {
	ranks := make([]millrace.Rank, count)
	for i := range ranks {
		ranks[i] = millrace.Rank(i)
	}
	w := &world{
		t:     t,
		net:   memnet.New(),
		ended: make(chan error, 1),
		pages: heartbeattest.NewMemory(seam.System{}),
		mem:   &arenatest.Memory{},
		dump:  t.TempDir(),
		files: &testFiles{},
	}
	w.link = New(Config{
		Name:         "sidecar-0",
		Host:         "host of " + up,
		Up:           up,
		Orchestrator: "orchestrator",
		Topology:     millrace.Topology{Ranks: 2, TP: 1, CP: 1, PP: 1},
		Ranks:        ranks,
		PadMultiple:  4,
		Shapes:       []millrace.Shape{{SequenceLength: 64}},
		Net:          w.net,
		Arenas:       w.mem,
		ArenaMemory:  64 << 20,
		Files:        w.files,
		Clock:        seam.System{},
		Pages:        w.pages,
		Dump:         w.dump,
		Log:          slog.New(slog.DiscardHandler),
		Term:         func(t millrace.Term) { w.term.Store(uint64(t)) },
	})
	w.orchestrate()
	ctx, cancel := context.WithCancel(context.Background())
	go func() { w.ended <- w.link.Run(ctx) }() // the cleanup waits for it
	t.Cleanup(func() {
		cancel()
		if err := <-w.ended; err != nil {
			t.Errorf("the link ended with %v", err)
		}
		w.orch.server.Stop()
	})
	return w, w.orch.next(t)
}

// ctx ends with the test or after patience.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

// orchestrate replaces the orchestrator by a new one.
func (w *world) orchestrate() {
	w.t.Helper()
	if w.orch != nil {
		w.orch.server.Stop()
	}
	w.orch = &script{server: grpc.NewServer(), sessions: make(chan *session, 8)}
	proto.RegisterOrchestratorServer(w.orch.server, w.orch)
	serve(w.t, w.net, w.orch.server, "orchestrator")
}

func serve(t *testing.T, net *memnet.Net, server *grpc.Server, address string) {
	t.Helper()
	l, err := net.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l) // ends with Stop
}

type script struct {
	proto.UnimplementedOrchestratorServer
	server   *grpc.Server
	sessions chan *session
	stopped  atomic.Bool // its streams stay open, and it answers no call
}

// Status implements proto.OrchestratorServer.
func (s *script) Status(ctx context.Context, _ *proto.StatusRequest) (*proto.StatusReply, error) {
	if s.stopped.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &proto.StatusReply{}, nil
}

// session is one sidecar's stream.
type session struct {
	t      *testing.T
	stream proto.Orchestrator_ServeServer
	hello  *proto.SidecarHello
	events chan *proto.SidecarEvent // closed when the stream ends
}

func (s *script) Serve(stream proto.Orchestrator_ServeServer) error {
	x := &session{stream: stream, events: make(chan *proto.SidecarEvent, 256)}
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

func (s *script) next(t *testing.T) *session {
	t.Helper()
	select {
	case x := <-s.sessions:
		x.t = t
		if x.hello = x.event().GetHello(); x.hello.GetName() != "sidecar-0" {
			t.Fatalf("hello is %v", x.hello)
		}
		return x
	case <-time.After(patience):
		t.Fatal("the link did not come")
		return nil
	}
}

func (x *session) event() *proto.SidecarEvent {
	x.t.Helper()
	select {
	case e, ok := <-x.events:
		if !ok {
			x.t.Fatal("the link left")
		}
		return e
	case <-time.After(patience):
		x.t.Fatal("the link says nothing")
		return nil
	}
}

func (x *session) order(term uint64, o *proto.SidecarOrder) {
	x.t.Helper()
	o.Fence = &proto.Fence{Stream: "train", Term: term}
	if err := x.stream.Send(o); err != nil {
		x.t.Fatal(err)
	}
}

func (x *session) welcome(sources ...string) {
	x.t.Helper()
	w := &proto.Welcome{}
	for _, s := range sources {
		w.Manifests = append(w.Manifests, &proto.Manifest{Source: s, Shards: []*proto.Shard{{Name: "a.jsonl"}}})
	}
	x.order(1, &proto.SidecarOrder{Order: &proto.SidecarOrder_Welcome{Welcome: w}})
}

func (x *session) plan(p *proto.Plan) {
	x.t.Helper()
	x.order(1, &proto.SidecarOrder{Order: &proto.SidecarOrder_Plan{Plan: p}})
}

func (x *session) committed(rank, attempt uint32, below uint64) {
	x.t.Helper()
	x.order(1, &proto.SidecarOrder{
		Order: &proto.SidecarOrder_Committed{
			Committed: &proto.Committed{Rank: rank, Attempt: attempt, Below: below},
		},
	})
}

// begin joins a rank and answers it.
func (w *world) begin(x *session, rank, attempt uint32, step uint64) {
	w.t.Helper()
	answer := w.join(rank, sidecar.Start{Kind: millrace.StartFresh})
	j := x.event().GetJoin()
	if j.GetRank() != rank {
		w.t.Fatalf("rank %d joined as %v", rank, j)
	}
	x.order(1, &proto.SidecarOrder{
		Order: &proto.SidecarOrder_Begin{
			Begin: &proto.Begin{Rank: rank, Call: j.Call, Attempt: attempt, Step: step},
		},
	})
	if a := <-answer; a.err != nil {
		w.t.Fatal(a.err)
	}
}

type joined struct {
	begin sidecar.Begin
	err   error
}

func (w *world) join(rank uint32, start sidecar.Start) chan joined {
	answer := make(chan joined, 1)
	ctx := w.ctx()
	go func() { // ends with its answer
		b, err := w.link.Join(ctx, millrace.Rank(rank), start)
		answer <- joined{b, err}
	}()
	return answer
}

// planOf returns a plan in which every assignment belongs to rank 0.
func planOf(attempt uint32, step uint64, segments ...millrace.Segment) *proto.Plan {
	p := &millrace.Plan{
		Stream:       millrace.Train,
		Attempt:      millrace.Attempt(attempt),
		Step:         millrace.Step(step),
		Ranks:        1,
		Microbatches: 1,
		Content:      millrace.Digest{byte(step), 1},
	}
	for i, s := range segments {
		p.Assignments = append(p.Assignments, millrace.Assignment{Segment: s, Row: uint32(i)})
	}
	return wire.PlanToProto(p, []byte(`{"step":`+string(rune('0'+step%10))+`}`))
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}

// token returns token t of a document.
func token(source uint32, ordinal uint64, t uint32) uint32 {
	return source<<28 ^ uint32(ordinal)<<12 ^ t
}

// store is a scripted loader. Each of its replies has one row.
type store struct {
	proto.UnimplementedLoaderServer
	server *grpc.Server
	mem    *arenatest.Memory
	source uint32
	term   uint64

	mu     sync.Mutex
	arenas []string                                    // of each request
	gone   []string                                    // that the requests named
	calls  atomic.Int64                                // requests
	asked  [][]uint64                                  // ordinals of each part of a request
	reqs   []asked                                     // the parts, in the order of asked
	bad    map[uint64]int                              // number of readings of an ordinal that fail
	other  map[uint64]bool                             // ordinals with other tokens than in the other stores
	fault  func(answered int) error                    // the error of a part after so many rows; nil: no error
	spoil  func(r *proto.FetchReply) *proto.FetchReply // damages a reply
	more   func(ordinal uint64) bool                   // whether a document continues after its segment
	lost   bool                                        // it dies after the last row
	quiet  bool                                        // it writes rows to the arena, and reports none
	torn   map[uint64]bool                             // ordinals whose tokens it has not written completely
	lies   func(ordinal uint64) bool                   // whether a document lies plainly in a file
	beats  atomic.Bool                                 // it has a heartbeat
	silent atomic.Bool                                 // it sends no more beats
}

// Beat implements proto.LoaderServer.
func (s *store) Beat(_ *proto.BeatRequest, stream proto.Loader_BeatServer) error {
	if !s.beats.Load() {
		return status.Error(codes.Unimplemented, "no heartbeat")
	}
	for {
		if !s.silent.Load() {
			if err := stream.Send(&proto.BeatReply{Slow: 1}); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(heartbeat.Every):
		}
	}
}

func newStore(w *world, address string, source uint32, term uint64) *store {
	s := &store{server: grpc.NewServer(), mem: w.mem, source: source, term: term}
	proto.RegisterLoaderServer(s.server, s)
	serve(w.t, w.net, s.server, address)
	w.t.Cleanup(s.server.Stop)
	return s
}

func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *store) requests() [][]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][]uint64(nil), s.asked...)
}

// Fetch implements proto.LoaderServer.
func (s *store) Fetch(req *proto.FetchRequest, stream proto.Loader_FetchServer) error {
	s.calls.Add(1)
	s.set(func() { s.arenas, s.gone = append(s.arenas, req.Arena), append(s.gone, req.Gone...) })
	first := uint32(0)
	for k := range req.Part {
		err := s.serve(req, k, first, stream)
		if status.Code(err) == codes.Unavailable {
			return err
		}
		if err != nil {
			failed := []*proto.PartFailed{wire.PartFailed(k, err)}
			if err := stream.Send(&proto.FetchReply{Failed: failed}); err != nil {
				return err
			}
		}
		first += uint32(len(req.Part[k].Ordinal))
	}
	if s.lost {
		return status.Error(codes.Unavailable, "killed")
	}
	return stream.Send(&proto.FetchReply{Last: true})
}

// serve sends the rows of one part.
func (s *store) serve(req *proto.FetchRequest, k int, first uint32, stream proto.Loader_FetchServer) error {
	part := req.Part[k]
	s.mu.Lock()
	s.asked, s.reqs = append(s.asked, part.Ordinal), append(s.reqs, asked{req.Hedge, req.Again, part})
	fault, spoil, term, more, lies := s.fault, s.spoil, s.term, s.more, s.lies
	s.mu.Unlock()
	if part.Term != term {
		return millrace.ErrFenced
	}
	var bad error
	for i, ordinal := range part.Ordinal {
		if s.fails(ordinal) {
			bad = errors.Join(bad, &unreadable{ordinal})
			continue
		}
		if fault != nil {
			if err := fault(i); err != nil {
				return err
			}
		}
		n := part.Length[i]
		if more != nil && more(ordinal) {
			n++
		}
		var tokens []uint32
		for t := range n {
			tokens = append(tokens, token(s.source, ordinal, part.Offset[i]+t))
			if s.other[ordinal] {
				tokens[t]++
			}
		}
		r := rowOf(first+uint32(i), tokens...)
		if part.InPlace && lies != nil && lies(ordinal) {
			r = placedOf(r)
		}
		if spoil != nil {
			r = spoil(r)
		} else if len(r.Placed) > 0 {
			// The sidecar reads it.
		} else if err := s.place(req, r, s.torn[ordinal]); err != nil {
			return err
		}
		if s.quiet {
			continue
		}
		if err := stream.Send(r); err != nil {
			return err
		}
	}
	return bad
}

// place moves the tokens of a reply with one row to the arena of the request, and marks the row. If the row is torn,
// one token of it is not written.
func (s *store) place(req *proto.FetchRequest, r *proto.FetchReply, isTorn bool) error {
	if req.Arena == "" {
		return nil
	}
	a, err := s.mem.Open(req.Arena)
	if err != nil {
		return err
	}
	row, at, size, rows := int(r.Row[0]), 0, 0, 0
	for _, part := range req.Part {
		for _, n := range part.Length {
			if rows == row {
				at = size
			}
			size, rows = size+int(n)+1, rows+1
		}
	}
	written := constructors.Room(a.Tokens[at : at+int(r.Count[0])])
	copy(written, idsOf(r))
	arena.MarksOf(a.Tokens, size, rows).Set(row, written)
	if isTorn {
		written[len(written)-1] ^= 1
	}
	r.Tokens = nil
	return nil
}

// rowOf is a reply with one row.
func rowOf(row uint32, tokens ...uint32) *proto.FetchReply {
	r := &proto.FetchReply{Row: []uint32{row}, Count: []uint32{uint32(len(tokens))}}
	wire.SetWide(r, tokenid.IsWide(tokens))
	r.Tokens = wire.AppendIDs(nil, tokens, tokenid.IsWide(tokens))
	return r
}

// idsOf returns the ids of a reply with one row.
func idsOf(r *proto.FetchReply) []uint32 {
	room, isWide := make(constructors.Room, r.Count[0]), r.Wide != nil
	room.Write(0, r.Tokens, isWide)
	return room.Tokens(isWide).IDs()
}

// asked is a part of a request that came.
type asked struct {
	Hedge, Again bool
	*proto.FetchPart
}

// fails counts a reading of an ordinal and reports whether it fails.
func (s *store) fails(ordinal uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad[ordinal] == 0 {
		return false
	}
	s.bad[ordinal]--
	return true
}

// unreadable is a document that cannot be decoded.
type unreadable struct{ ordinal uint64 }

func (e *unreadable) Error() string { return fmt.Sprintf("ordinal %d: invalid JSON", e.ordinal) }
func (e *unreadable) Unwrap() error { return millrace.ErrBadSample }

// Sample identifies the document.
func (e *unreadable) Sample() (millrace.Ordinal, millrace.Quarantine) {
	id := fmt.Sprintf("a.jsonl#%d", e.ordinal)
	return millrace.Ordinal(e.ordinal), millrace.Quarantine{Source: "web", ID: id, Offset: 9, Reason: "invalid JSON"}
}
