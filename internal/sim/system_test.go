// Package sim runs the whole system in one process: real gRPC over pipes in memory, a real journal on a disk in memory, virtual time,
// and roles that are killed and started again at seeded moments.
package sim

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"millrace"
	"millrace/checkpoint"
	"millrace/internal/seam"
	"millrace/internal/sim/memnet"
	"millrace/internal/wire"
	"millrace/mixing"
	"millrace/orchestrator"
	"millrace/orchestrator/planner"
	"millrace/proto"
	"millrace/sidecar/link"
	"millrace/sources"
	"millrace/sources/loader"
)

func version() *proto.Version {
	return &proto.Version{Protocol: wire.ProtocolVersion, Planner: planner.PlannerVersion, Program: "sim"}
}

// ranks of the run, all on one host.
const ranks = 2

// numbers is a format of tokens: each line is the length of a record.
type numbers struct{}

func (numbers) Name() string { return "jsonl" }

func (numbers) Open(_ context.Context, f sources.File, _ sources.Field, _ sources.Limits, _ []byte) (sources.Shard, error) {
	raw := make([]byte, f.Size())
	if err := sources.ReadFull(f, raw, 0); err != nil {
		return nil, err
	}
	s := &shard{}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		n, err := strconv.ParseUint(lines.Text(), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read %s: %v: %w", f.Name(), err, millrace.ErrDamaged)
		}
		s.lengths = append(s.lengths, uint32(n))
	}
	return s, nil
}

type shard struct{ lengths []uint32 }

func (s *shard) Count() (uint64, bool)                              { return uint64(len(s.lengths)), true }
func (s *shard) Seekable() bool                                     { return true }
func (s *shard) Close() error                                       { return nil }
func (s *shard) Index(context.Context, func(int64)) ([]byte, error) { return nil, nil }

func (s *shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	var all []uint64
	for i := from; i < uint64(len(s.lengths)); i++ {
		all = append(all, i)
	}
	return s.Read(ctx, all, fn)
}

func (s *shard) Read(_ context.Context, records []uint64, fn func(sources.Record) error) error {
	for _, i := range records {
		r := sources.Record{Number: i, Offset: -1, Raw: 1, Tokens: make([]uint32, s.lengths[i])}
		for t := range r.Tokens {
			r.Tokens[t] = uint32(i)<<12 ^ uint32(t)
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// system is every role of a run, each of which may be killed and started at any time.
type system struct {
	t    *testing.T
	dir  string
	net  *memnet.Net
	rng  *rand.Rand
	cfg  orchestrator.Config
	disk *checkpoint.Disk

	passed, next atomic.Int64  // places that trainers passed, and the one where something is struck
	due          chan struct{} // it was passed
	strikes      int64

	stopOrchestrator func()
	stopLoaders      [2]func()
	stopSidecar      func()

	mu   sync.Mutex
	link *link.Link
	life context.Context // of link
	cut  context.CancelFunc
}

func newSystem(t *testing.T, dir string, seed uint64) *system {
	s := &system{t: t, dir: dir, net: memnet.New(), rng: rand.New(rand.NewPCG(seed, 1)), cfg: config(t), disk: checkpoint.NewMemoryDisk(), due: make(chan struct{}, 64)}
	s.orchestrate()
	s.load(0)
	s.load(1)
	s.serve()
	return s
}

func (s *system) stop() {
	s.stopSidecar()
	s.stopLoaders[0]()
	s.stopLoaders[1]()
	s.stopOrchestrator()
}

func config(t *testing.T) orchestrator.Config {
	t.Helper()
	knot := mixing.Knot{}
	for _, w := range []string{"0.3", "0.7"} {
		weight, err := mixing.ParseWeight(w)
		if err != nil {
			t.Fatal(err)
		}
		knot.Weights = append(knot.Weights, weight)
	}
	schedule, err := mixing.NewSchedule(2, []mixing.Knot{knot})
	if err != nil {
		t.Fatal(err)
	}
	spec := &planner.Spec{SequenceLength: 64, GlobalBatch: 4, PadMultiple: 1, Packing: planner.BestFit, Unit: planner.Tokens, Schedule: schedule, LastStep: planner.PadLast,
		Sources: []planner.SourceSpec{{Name: "code", OnExhausted: planner.Renormalize}, {Name: "web", OnExhausted: planner.Renormalize}}}
	return orchestrator.Config{Stream: millrace.Train, Spec: spec, Placing: &proto.Placing{Ranks: ranks}, Ranks: ranks, Identity: []byte(`{}`), Runway: 3, By: "sim",
		Log: slog.New(slog.DiscardHandler), Compare: sources.Compare, Changed: func([]byte) ([]string, error) { return nil, nil },
		Place: func(sel *planner.Selection) (*millrace.Plan, error) {
			return planner.Place(sel, millrace.Topology{Ranks: ranks, TP: 1, CP: 1, PP: 1}, planner.PlaceOptions{MicroBatch: 1, Layout: millrace.Packed, Balance: planner.FSDP, LastStep: planner.PadLast})
		},
		Sources: []orchestrator.Source{
			{Name: "code", Loaders: []string{"loader-0"}, Allowed: func(bool, uint64) uint64 { return 0 }},
			{Name: "web", Loaders: []string{"loader-0", "loader-1"}, Allowed: func(bool, uint64) uint64 { return 0 }}}}
}

// orchestrate starts the orchestrator on the disk. Stopping it is a kill: the disk goes on as a power cut left it.
func (s *system) orchestrate() {
	store, err := checkpoint.Open(checkpoint.Config{Dir: "journal", CreatedBy: "sim", Disk: s.disk})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	o, err := orchestrator.New(context.Background(), s.cfg, orchestrator.Options{Store: store, Lines: io.Discard})
	if err != nil {
		s.t.Fatal(err)
	}
	listener, err := s.net.Listen("orchestrator")
	if err != nil {
		s.t.Fatal(err)
	}
	server := grpc.NewServer()
	proto.RegisterOrchestratorServer(server, orchestrator.NewServer(o))
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(listener) }) // returns when it is stopped
	group.Go(func() {
		if err := o.Run(ctx); err != nil {
			s.t.Errorf("the orchestrator failed: %v", err)
		}
	})
	unsynced, seed := s.rng.IntN(101), s.rng.Uint64()
	s.stopOrchestrator = func() {
		server.Stop() // from here on nobody hears it
		s.disk = s.disk.Crash(unsynced, seed)
		cancel()
		group.Wait()
		if err := store.Close(); err != nil {
			s.t.Error(err)
		}
	}
}

func (s *system) load(i int) {
	name := fmt.Sprintf("loader-%d", i)
	l := loader.New(loader.Config{Name: name, Address: name, Orchestrator: "orchestrator", Version: version(), Memory: 32 << 10, Parallel: 2, Net: s.net, Clock: seam.System{},
		Log: slog.New(slog.DiscardHandler), Ready: func() {}, Term: func(millrace.Term) {}, Spec: func(source string) (sources.Spec, error) {
			return sources.Spec{Name: source, Format: numbers{}, Base: filepath.Join(s.dir, source), Patterns: []string{"."}, Shuffle: millrace.Global, Seed: 7}, nil
		}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }() // waited for by stop
	s.stopLoaders[i] = func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("%s failed: %v", name, err)
		}
	}
}

func (s *system) serve() {
	l := link.New(link.Config{Name: "sidecar-0", Orchestrator: "orchestrator", Version: version(), World: ranks, Ranks: ranks, Net: s.net, Clock: seam.System{},
		Log: slog.New(slog.DiscardHandler), Term: func(millrace.Term) {}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }() // waited for by stop
	s.mu.Lock()
	s.link, s.life, s.cut = l, ctx, cancel
	s.mu.Unlock()
	s.stopSidecar = func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("the sidecar failed: %v", err)
		}
	}
}

// sidecar is the one there is now, and its life.
func (s *system) sidecar() (*link.Link, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link, s.life
}

// strike kills a role, or some connections, and starts it again. One at a time.
func (s *system) strike() {
	switch s.rng.IntN(5) {
	case 0:
		s.stopOrchestrator()
		s.orchestrate()
	case 1:
		i := s.rng.IntN(2)
		s.stopLoaders[i]()
		s.load(i)
	case 2:
		s.stopSidecar()
		s.serve()
	case 3:
		_ = s.net.Cut("orchestrator")
	case 4:
		_ = s.net.Cut(fmt.Sprintf("loader-%d", s.rng.IntN(2)))
	}
}
