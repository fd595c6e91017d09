package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"millrace"
	"millrace/checkpoint"
	"millrace/checkpoint/disk/disktest"
	"millrace/internal/event"
	"millrace/internal/heartbeat"
	"millrace/internal/wire"
	"millrace/orchestrator"
	"millrace/orchestrator/planner/progress"
	"millrace/proto"
	"millrace/sidecar/link"
	"millrace/sources"
	"millrace/sources/read/loader"
)

// runDisk is the disk of the run's journal, with its faults.
type runDisk struct {
	mu      sync.Mutex
	disk    *disktest.Disk
	full    bool
	spent   bool     // the reserve was deleted
	refused *process // the newest process that found no room
	slow    time.Duration
	doomed  int // fsyncs until one fails; 0: none fails
}

const (
	journalDir   = "journal"
	reserveBytes = 4 << 10
	snapshots    = 12 // records between two snapshots; most starts have a snapshot and later records, some have none
)

// take returns the disk in its present state.
func (d *runDisk) take() *disktest.Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.disk
}

// crash leaves the disk for the next process as after a power cut.
func (d *runDisk) crash(percent int, seed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.disk = disktest.Crash(d.disk, percent, seed)
}

// fault returns the disk's error for an act of a process.
func (d *runDisk) fault(p *process, act disktest.Act, path string) error {
	d.mu.Lock()
	reserve := strings.HasSuffix(path, "BALLAST")
	slow := time.Duration(0)
	dies := false
	defer func() {
		d.mu.Unlock()
		time.Sleep(slow)
		if dies {
			p.kill(again, 0)
		}
	}()
	switch {
	case p.dead():
		return nil // a dead process works on an old copy
	case act == disktest.Remove && reserve:
		d.spent = true
	case act == disktest.Write && d.full && reserve:
		return syscall.ENOSPC
	case act == disktest.Write && d.full && !d.spent:
		// After the first refusal Pebble spends the reserve and retries. A second one ends the process.
		if dies = d.refused == p; !dies {
			d.refused = p
			return syscall.ENOSPC
		}
	case act == disktest.Sync:
		slow = d.slow
		if d.doomed > 0 {
			d.doomed--
			dies = d.doomed == 0
		}
	}
	return nil
}

// journal returns the journal of an orchestrator, on a disk that a kill takes away.
func (w *world) journal(p *process, on *runDisk) checkpoint.Config {
	percent, seed := 100, p.rng.Uint64()
	p.disk = on
	p.struck = func() {
		w.mu.Lock()
		percent = w.unsynced
		w.mu.Unlock()
		on.crash(percent, seed)
	}
	disk := disktest.NewFaulty(on.take(), reserveBytes,
		func(act disktest.Act, path string) error { return on.fault(p, act, path) })
	return checkpoint.Config{Dir: journalDir, CreatedBy: "sim", Disk: disk, Fatal: func(err error) { panic(err) }}
}

// orchestrate starts the orchestrator of a run on one host.
func (w *world) orchestrate(p *process) (func(context.Context) error, func(), error) {
	store, err := checkpoint.Open(w.journal(p, w.newestDisk()))
	if err != nil {
		return nil, nil, err
	}
	run, err := w.lead(context.Background(), p, w.load.config,
		orchestrator.Options{Store: store, Lines: io.Discard, Snapshots: snapshots})
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return run, func() { w.closeJournal(p, store) }, nil
}

func (w *world) closeJournal(p *process, store *checkpoint.Store) {
	if err := store.Close(); err != nil && !p.dead() {
		w.fail("processes stop in order", "%s: %v", p.slot, err)
	}
}

// lead starts an orchestrator that has its journal open. Its lease ends with ctx.
func (w *world) lead(ctx context.Context, p *process, config orchestrator.Config,
	options orchestrator.Options) (func(context.Context) error, error) {
	w.employ(p, &config, &options)
	o, err := orchestrator.New(ctx, config, options)
	if err != nil {
		return nil, err
	}
	listener, err := p.host.Listen(w.listensAt(p))
	if err != nil && !p.dead() {
		return nil, err
	}
	w.noteTerm(p, o.Term())
	server := grpc.NewServer(grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(4<<10))
	proto.RegisterOrchestratorServer(server, orchestrator.NewServer(o))
	p.orchestrator.Store(o)
	return func(ctx context.Context) error {
		group, gctx := errgroup.WithContext(ctx)
		if listener != nil {
			group.Go(func() error { _ = server.Serve(listener); return nil })
		}
		group.Go(func() error {
			defer stopServing(server)
			return o.Run(gctx)
		})
		return group.Wait()
	}, nil
}

// farewellGrace is the time that roles have to learn that the run has ended.
const farewellGrace = 500 * time.Millisecond

// stopServing delivers the last answers, like the command.
func stopServing(server *grpc.Server) {
	late := time.AfterFunc(farewellGrace, server.Stop)
	defer late.Stop()
	server.GracefulStop()
}

func version() *proto.Version {
	return &proto.Version{Protocol: wire.ProtocolVersion, Planner: progress.PlannerVersion, Program: "sim"}
}

// serve starts a loader or a shadow. Each life of a slot has an address of its own.
func (w *world) serve(p *process) (func(context.Context) error, func(), error) {
	page, err := w.pages.By(p.clock).Create(heartbeat.Path("", p.slot, p.life))
	if err != nil {
		return nil, nil, err
	}
	l := loader.New(
		loader.Config{
			Name:         p.slot,
			Beat:         page,
			Leave:        p.leave,
			ForGood:      p.final.Load,
			Address:      fmt.Sprintf("%s.%d", p.slot, p.life),
			Orchestrator: orchestratorName,
			Version:      version(),
			Pid:          int64(p.life),
			Standby:      strings.HasPrefix(p.slot, shadowName),
			Memory:       w.load.memory,
			Parallel:     1,
			Net:          w.network(p),
			Remote:       w.remote(p),
			Host:         p.site.String(),
			Up:           p.up,
			Arenas:       w.arenas,
			Clock:        p.clock,
			Events:       event.To(&witness{w: w, p: p, holds: map[string]event.Record{}}, p.slot, p.clock),
			Log:          slog.New(slog.DiscardHandler),
			Ready:        func() {},
			Term:         func(millrace.Term) {},
			Spec: func(source string) (sources.Spec, error) {
				spec, err := w.load.spec(source)
				spec.Format = numbers{rot: w.rot, p: p}
				return spec, err
			},
		},
	)
	return l.Run, func() { _ = page.Close() }, nil // Close never fails
}

// deliver starts a sidecar.
func (w *world) deliver(p *process) (func(context.Context) error, func(), error) {
	host, ranks := 0, []millrace.Rank{}
	load := w.load
	for i := range w.hosts {
		if sidecarName(i) == p.slot {
			host, load = i, w.hosts[i].next()
		}
	}
	for r := range load.ranks {
		if r%len(w.hosts) == host {
			ranks = append(ranks, millrace.Rank(r))
		}
	}
	watch := &watcher{w: w, p: p, terms: map[string]uint64{}}
	remote := ""
	if len(w.hosts) > 1 {
		remote = fmt.Sprintf("%s.%d:7300", p.slot, p.life)
	}
	l := link.New(
		link.Config{
			Name:         p.slot,
			Pages:        w.pages,
			Events:       event.To(watch, p.slot, p.clock),
			Orchestrator: orchestratorName,
			Version:      version(),
			Topology:     load.axes,
			Shapes:       shapesOf(w.load.config.Spec, w.load.options),
			PadMultiple:  w.load.config.Spec.PadMultiple,
			Ranks:        ranks,
			Net:          w.network(p),
			Host:         p.site.String(),
			Up:           p.up,
			Remote:       remote,
			Arenas:       w.arenas,
			ArenaMemory:  8 << 20,
			Clock:        p.clock,
			Log:          slog.New(watch),
			Term:         w.rising(p, "a term of the orchestrator"),
		},
	)
	w.hosts[host].put(l, p.ctx, load)
	return l.Run, func() {}, nil
}

// rising returns a function that fails the run if the terms of a process go down.
func (w *world) rising(p *process, what string) func(millrace.Term) {
	var mu sync.Mutex
	var highest millrace.Term
	return func(t millrace.Term) {
		mu.Lock()
		defer mu.Unlock()
		if t < highest {
			w.fail("terms never go down", "%s, life %d: %s went from %d to %d", p.slot, p.life, what, highest, t)
		}
		highest = t
	}
}

// noteTerm checks that each life of the orchestrator has a higher term.
func (w *world) noteTerm(p *process, t millrace.Term) {
	if p.dead() {
		return // no process learns of its term
	}
	w.mu.Lock()
	was := w.term
	w.term = max(w.term, t)
	w.disk = p.disk
	w.mu.Unlock()
	if t <= was {
		w.fail("terms never go down", "orchestrator, life %d: term %d after term %d", p.life, t, was)
	}
}

// endpoint leads trainers to the sidecar of their host.
type endpoint struct {
	mu      sync.Mutex
	link    *link.Link
	life    context.Context // of the link
	changed chan struct{}   // closed and replaced with every new link
	has     *workload       // whose topology the link has
	wanted  *workload       // whose topology the next one has
}

func (s *endpoint) put(l *link.Link, life context.Context, load *workload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.life, s.has = l, life, load
	close(s.changed)
	s.changed = make(chan struct{})
}

// after waits for a sidecar other than old, with the topology of a workload.
func (s *endpoint) after(ctx context.Context, old *link.Link, load *workload) (*link.Link, context.Context, error) {
	for {
		s.mu.Lock()
		l, life, changed, has := s.link, s.life, s.changed, s.has
		s.mu.Unlock()
		if l != nil && l != old && has == load {
			return l, life, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// isExcused reports whether a fault explains the end, or the failed start, of a process.
func (w *world) isExcused(p *process, err error) bool {
	return p.dead() || errors.Is(err, checkpoint.ErrDiskFull) ||
		w.etcd != nil && len(w.script.Faults) > 0 && errors.Is(err, millrace.ErrFenced) ||
		errors.Is(err, checkpoint.ErrLocked) && w.locked.Load() > 0 ||
		// A replaced loader leaves.
		err == nil && len(w.script.Faults) > 0 && !isOrchestrator(p.slot) && !strings.HasPrefix(p.slot, "sidecar")
}
