package roles

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/app/config"
	"millrace/app/setup"
	"millrace/app/supervisor"
	"millrace/internal/activity"
	"millrace/internal/arena"
	"millrace/internal/event"
	"millrace/internal/heartbeat"
	"millrace/internal/seam"
	"millrace/proto"
	"millrace/sidecar"
	"millrace/sidecar/gauge"
	"millrace/sidecar/gpu"
	"millrace/sidecar/link"
	"millrace/sources"
	"millrace/sources/facts/identity"
	"millrace/sources/read/inplace"
)

// Serve runs the sidecar of this host, which serves the ranks of the run from first on.
func (p Process) Serve(ctx context.Context, first int) error {
	r, ctx, stop, err := p.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	return asFailure(r.serve(ctx, first))
}

// ownMemory is the memory of a sidecar that has nothing to do, in bytes. limits.sidecar_memory comes on top.
const ownMemory = 24 << 20

func (r *role) serve(ctx context.Context, first int) error {
	heap, files := int64(ownMemory), 0
	for _, s := range r.streams {
		heap += s.of.Part.Sidecar.Heap
		files += s.of.Part.OpenFiles
	}
	LimitMemory(heap)
	reader := inplace.New(sources.OSFS(), files)
	defer reader.Close()
	group, gctx := errgroup.WithContext(ctx)
	// A link outlives its server and still sends the last commits of its trainers.
	linked := context.WithoutCancel(ctx)
	ready, present := r.readyAfter(), &trainers{role: r, present: map[trainer]bool{}}
	for _, s := range r.streams {
		observe := func(e sidecar.Event) {
			present.note(s, e)
			r.observe(s, e)
		}
		if err := r.serveStream(gctx, linked, s, first, placedFiles{reader}, ready, observe, group); err != nil {
			group.Go(func() error { return s.failed(err) })
			break
		}
	}
	return group.Wait()
}

// serveStream starts to serve a stream in the group: until ctx ends, and its link until linked ends or its server has
// ended.
func (r *role) serveStream(
	ctx, linked context.Context, s *stream, first int, files link.Files, ready func(),
	observe func(sidecar.Event), group *errgroup.Group,
) error {
	memory := s.of.Part.Sidecar
	shaped, topology, err := r.shaped(s)
	if err != nil {
		return err
	}
	var ranks []millrace.Rank
	for rank := first; rank < min(first+r.Ranks, topology.Ranks); rank++ {
		ranks = append(ranks, millrace.Rank(rank))
	}
	if len(ranks) == 0 { // the stream is for ranks of other hosts
		ready()
		return nil
	}
	limited := ""
	if topology.Ranks < r.World {
		limited = string(s.name)
	}
	meter, waits := activity.New(time.Now), &gauge.Ranks{Now: time.Now}
	up := r.newLink(s, shaped, topology, ranks, files, meter, waits)
	linked, unlink := context.WithCancel(linked)
	var watch sidecar.Watcher
	if !s.isFurther() { // one monitor watches the trainers of all streams
		monitor := gpu.New(gpu.Config{Open: gpu.Open, Clock: seam.System{}, Log: r.log, Report: func(f []gpu.Figures) {
			up.ReportGPUs(gpuFigures(f))
		}})
		watch = monitor
		group.Go(func() error { monitor.Run(linked); return nil })
	}
	server, err := sidecar.New(
		sidecar.Config{
			Dir:      s.dir,
			Ranks:    ranks,
			Limited:  limited,
			IsSpread: r.isSpread(),
			Upstream: up,
			Fetcher:  up,
			RingSize: memory.Frames / int64(len(ranks)),
			Shared: sidecar.Shared{
				TP: slices.Contains(s.of.Config.SharedMemory, config.AxisTP),
				PP: slices.Contains(s.of.Config.SharedMemory, config.AxisPP),
			},
			Reserve: memory.Reserve,
			UIDs:    r.users(), Ready: ready,
			Observe: observe,
			Watch:   watch,
			Version: r.Version,
			Log:     r.log,
			Meter:   meter, Gauge: waits,
		},
	)
	if err != nil {
		unlink()
		return err
	}
	group.Go(func() error { return up.Run(linked) })
	group.Go(func() error {
		defer unlink()
		return server.Run(r.reasoned(ctx))
	})
	return nil
}

// newLink returns the link of these ranks to the orchestrator and the loaders of a stream.
func (r *role) newLink(
	s *stream, shaped *config.Config, topology millrace.Topology, ranks []millrace.Rank, files link.Files,
	meter *activity.Meter, waits *gauge.Ranks,
) *link.Link {
	return link.New(
		link.Config{
			Name:         r.Name,
			Orchestrator: r.orchestrator(s),
			Shapes:       shaped.Shapes(),
			PadMultiple:  s.of.Config.PadMultiple,
			Topology:     topology,
			Broadcast:    setup.Broadcast(s.of.Config),
			Ranks:        ranks,
			Untrained:    s.of.Config.Sources.HaveUntrained(),
			Fields:       s.of.Config.Sources.HaveFields(),
			Host:         r.site.Name, Up: r.site.Up, Remote: r.remote(), Net: r.net(), Credentials: r.credentials,
			Arenas:      arena.Host{},
			ArenaMemory: s.of.Part.Sidecar.Arenas,
			Files:       files,
			Clock:       seam.System{},
			Fail:        r.fail, Events: s.events, Log: r.log, Term: r.terms(s),
			Pages:   heartbeat.Files{},
			Dump:    s.dir,
			Version: speaks(r.Version),
			Meter:   meter, Gauge: waits,
		},
	)
}

// shaped returns the configuration of a stream with the topology that this sidecar serves.
func (r *role) shaped(s *stream) (*config.Config, millrace.Topology, error) {
	topology := Reshaped(s.of.Config, r.World, r.TP, r.CP, r.PP)
	c, err := s.of.Config.Reshaped(topology)
	if err == nil {
		err = setup.CheckSidecarMemory(c, s.of.Part, r.Ranks)
	}
	return c, topology, err
}

// users returns the users whose trainers may connect.
func (p *Process) users() []uint32 {
	out := []uint32{uint32(os.Geteuid())}
	for _, user := range p.Users {
		out = append(out, uint32(user))
	}
	return out
}

// placedFiles reads rows in place.
type placedFiles struct{ *inplace.Reader }

// Read implements link.Files.
func (f placedFiles) Read(ctx context.Context, rows *proto.PlacedRows, into func(int) []byte) error {
	id := identity.File{
		Device: rows.Device, Inode: rows.Inode, Size: rows.Size, Modified: rows.Modified, Changed: rows.Changed,
	}
	return f.Reader.Read(ctx, rows.Path, id, rows.Offset, into)
}

// gpuFigures returns the figures of ranks' GPUs as a message.
func gpuFigures(figures []gpu.Figures) *proto.GpuFigures {
	out := &proto.GpuFigures{}
	for _, f := range figures {
		out.Gpus = append(out.Gpus, &proto.Gpu{
			Rank: uint32(f.Rank), Lacks: f.Lacks, Index: uint32(f.Device.Index), Uuid: f.Device.UUID,
			Name: f.Device.Name, Near: f.Near, Measured: f.Sample.Measured, Busy: f.Sample.Busy,
			MemoryUsed: f.Sample.MemoryUsed, Memory: f.Sample.Memory, Received: f.Sample.Received,
			Transmitted: f.Sample.Transmitted, Clock: f.Sample.Clock, MostClock: f.Sample.MostClock,
			Throttled: f.Sample.Throttled, IdleData: f.IdleData, IdleOther: f.IdleOther,
		})
	}
	return out
}

// reasoned returns a context that ends with ctx. If the run failed or was stopped, its cause has the reason for the
// trainers.
func (r *role) reasoned(ctx context.Context) context.Context {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		if reason := supervisor.Reason(r.RunDir); reason != "" {
			cancel(&sidecar.RunError{Reason: reason})
			return
		}
		cause := context.Cause(ctx)
		if errors.Is(cause, supervisor.ErrOrphaned) || errors.Is(cause, supervisor.ErrEnding) {
			cancel(sidecar.ErrAlone)
			return
		}
		cancel(cause)
	})
	return out
}

// observe writes a rank's events and passes the failpoints at them.
func (r *role) observe(s *stream, e sidecar.Event) {
	s.events.Write(
		event.Record{
			Event:   string(e.Kind),
			Stream:  string(millrace.Train),
			Attempt: uint32(e.Slot.Attempt),
			Step:    int64(e.Slot.Step),
			Rank:    int(e.Slot.Rank),
			Micro:   int(e.Slot.Microbatch),
			Key:     e.Reason,
		},
	)
	r.fail.Hit("sidecar/" + string(e.Kind))
}
