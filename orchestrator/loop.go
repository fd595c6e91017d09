package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"millrace"
	"millrace/checkpoint"
	"millrace/internal/activity"
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/follow"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/placer"
	"millrace/orchestrator/placer/keeper"
	"millrace/orchestrator/planner/progress"
	"millrace/orchestrator/roster"
	"millrace/proto"
)

// Options are the orchestrator's seams and its store.
type Options struct {
	Store  *checkpoint.Store
	Lines  io.Writer // for people: quarantined samples
	Events *event.Log
	Fail   *failpoint.Set
	Clock  seam.Clock   // nil: the system's
	Leaser lease.Leaser // nil: the holder of the store's lock has the lease
	// Places are the followers' places in a run of several hosts: the process has one for all streams, and its lease is
	// a lease.Keeper. nil: the run has one host.
	Places *follow.Places
	Fenced func(roster.Process) // called with a process to end; must not block; may be nil
	Placer placer.Placer        // the engine that runs the loaders; nil: their number is fixed
	// Snapshots is the journal records between two snapshots; 0 is 512.
	Snapshots int
}

// tick is the time between two ticks of the machine if no event comes.
const tick = 200 * time.Millisecond

// Orchestrator is the machine with its goroutine and its journal.
type Orchestrator struct {
	cfg     Config
	opt     Options
	m       *Machine
	held    lease.Lease
	lease   context.Context // ends with held
	copies  *follow.Leader  // of the journal on other hosts; nil: the run has one host
	keeper  *keeper.Keeper  // of the engine; nil: the number of loaders is fixed
	events  chan func(*Machine)
	stopped chan struct{}
	since   int // records since the newest snapshot
	meter   *activity.Meter
	over    atomic.Bool
	told    bool // the failure of a further stream was printed
}

// New restores the run from its store, acquires the lease and journals its term. The lease ends with ctx, which has to
// outlive Run's. Nothing runs before Run.
func New(ctx context.Context, cfg Config, opt Options) (_ *Orchestrator, err error) {
	if opt.Clock == nil {
		opt.Clock = seam.System{}
	}
	if opt.Snapshots == 0 {
		opt.Snapshots = snapshotEvery
	}
	o := &Orchestrator{cfg: cfg, opt: opt, events: make(chan func(*Machine), 64), stopped: make(chan struct{}),
		meter: activity.New(opt.Clock.Now)}
	if opt.Leaser == nil {
		o.opt.Leaser = lease.NewSolo(sealed{o})
	}
	s, records, err := facts.Read(opt.Store, cfg.Stream, cfg.Spec)
	o.since = records
	if err != nil {
		return nil, err
	}
	if err := o.checkIdentity(s); err != nil {
		return nil, err
	}
	if err := o.begin(ctx, s); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			o.held.Release()
		}
	}()
	if len(s.Identity) == 0 {
		created := &proto.Created{Identity: cfg.Identity, PlannerVersion: progress.PlannerVersion, By: cfg.By}
		if err := o.note(s, &proto.Record{Fact: &proto.Record_Created{Created: created}}); err != nil {
			return nil, err
		}
	}
	opt.Fail.Hit("orchestrator/term/after")
	if opt.Placer == nil {
		cfg.Elastic = nil
	}
	cfg.sealed = (&recalled{o: o}).find
	if o.m, err = NewMachine(cfg, s); err == nil && cfg.Elastic != nil {
		o.keeper = keeper.New(opt.Placer, opt.Clock, func(ctx context.Context, n keeper.News) {
			_ = o.post(ctx, func(m *Machine) { m.placed(n) }) // not needed after the end
		})
	}
	return o, err
}

// begin acquires the lease and journals its term. From then on, no other copy of the journal is listed. Then it commits
// the sealed plans that the last holder may have journaled without committing them.
func (o *Orchestrator) begin(ctx context.Context, s *facts.State) (err error) {
	o.opt.Fail.Hit("orchestrator/term/before")
	if o.held, o.lease, err = o.opt.Leaser.Acquire(ctx, millrace.Term(s.Term)); err != nil {
		return err
	}
	term := &proto.TermTaken{Term: uint64(o.held.Term())}
	err = o.note(s, &proto.Record{Fact: &proto.Record_Term{Term: term}})
	if keeper, ok := o.held.(lease.Keeper); ok && o.opt.Places != nil && err == nil {
		o.copies = follow.NewLeader(o.opt.Store, keeper, o.cfg.Host, o.opt.Clock, o.opt.Places)
		err = o.copies.Begin(ctx) // before a copy that may lack these plans could be elected with them
	}
	if err == nil {
		err = o.held.Commit(ctx, sealedPlans(s))
	}
	if err != nil {
		o.held.Release()
	}
	return err
}

// note journals and applies one fact before there is a machine.
func (o *Orchestrator) note(s *facts.State, r *proto.Record) error {
	f := facts.Fact{Record: r}
	if err := o.commit([]facts.Fact{f}); err != nil {
		return err
	}
	s.Apply(f)
	return nil
}

func (o *Orchestrator) checkIdentity(s *facts.State) error {
	if len(s.Identity) == 0 {
		return nil
	}
	begun := progress.NewOf(s.PlannerVersion, 0)
	_, compare := o.cfg.Of(&begun, o.cfg.Identity)
	changed, err := compare(s.Identity)
	if err != nil {
		return err
	}
	if len(changed) > 0 {
		return millrace.Errorf(millrace.ErrMismatch,
			"the run directory holds a run of another identity: %v: restore the mixture file, or use a new run "+
				"directory", changed)
	}
	return nil
}

// Run owns the machine until ctx ends (nil), every rank has consumed the stream (nil, see Done; not if it lasts), or
// the run failed (why; not for a further stream). It ends with the lease, and releases it.
func (o *Orchestrator) Run(ctx context.Context) error {
	defer o.held.Release()
	defer close(o.stopped)
	if o.keeper != nil {
		kept, end := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { defer close(done); o.keeper.Run(kept) }() // Run waits for it
		defer func() { end(); <-done }()
	}
	o.look()
	next := o.opt.Clock.After(tick)
	for {
		if err := o.turn(ctx); err != nil {
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				return nil // no snapshot: facts are journaled that the machine lacks
			}
			return err
		}
		if err := o.failure(); err != nil {
			return err
		}
		if o.m.Done() && !o.cfg.Lasts {
			return nil
		}
		here, _ := o.m.ranks.AreHere()
		o.over.Store(!here && (o.cfg.Further || o.m.Done()))
		select {
		case <-ctx.Done():
			o.opt.Fail.Hit("orchestrator/stop/before")
			return o.snapshot()
		case <-o.lease.Done():
			return context.Cause(o.lease)
		case <-next:
			next = o.opt.Clock.After(tick)
			if err := o.admit(ctx); err != nil {
				return err
			}
			o.look()
		case observe := <-o.events:
			observe(o.m)
			// Events that have come meanwhile are decided with it, in one commit. After a restart these are the
			// manifests of all sources.
			for range len(o.events) {
				(<-o.events)(o.m)
			}
		}
	}
}

// failure returns why the run has failed, nil if it continues. It prints the failure of a further stream once.
func (o *Orchestrator) failure() error {
	err := o.m.Failed()
	if !o.cfg.Further {
		return err
	}
	if err != nil && !o.told {
		o.told = true
		fmt.Fprintln(o.opt.Lines, "warning: the stream has failed, and other streams continue: "+err.Error())
	}
	return nil
}

// IsOver reports whether no trainer is connected to the stream and, unless it is a further one, every rank has consumed
// it. It may be called from any goroutine.
func (o *Orchestrator) IsOver() bool { return o.over.Load() }

// look gives the machine the time and the free space of the journal's disk. If the space is unknown, a failed write
// will report a full disk.
func (o *Orchestrator) look() {
	o.m.Tick(o.opt.Clock.Now())
	told := map[string]activity.Total{} // of no message before: the board gets all figures
	o.m.figures.Observe(wire.FiguresToProto(o.meter, "orchestrator", int64(os.Getpid()), told))
	if free, total, err := o.opt.Store.Room(); err == nil {
		o.m.Disk(free, total)
	}
	if o.copies != nil && !o.cfg.Further { // one alert for all journals
		o.m.alerts.copies = copies{host: o.cfg.Host, isAlone: o.opt.Places.Copies() == 1}
	}
}

// admit lists the copies of the journal that are in step.
func (o *Orchestrator) admit(ctx context.Context) error {
	if o.copies == nil {
		return nil
	}
	err := o.copies.Admit(ctx)
	if ctx.Err() != nil {
		return nil // Run ends
	}
	return err
}

// settle returns when every listed copy of the journal has all records.
func (o *Orchestrator) settle(ctx context.Context) error {
	if o.copies == nil {
		return nil
	}
	o.opt.Fail.Hit("orchestrator/copies/before")
	if err := o.copies.Settle(ctx); err != nil {
		return err
	}
	o.opt.Fail.Hit("orchestrator/copies/after")
	return nil
}

// turn decides, journals, applies and publishes until there is nothing left to decide. The actions of decisions without
// facts wait for the next commit. Facts count once every listed copy of the journal has them, and the lease has
// confirmed the term after that.
func (o *Orchestrator) turn(ctx context.Context) error {
	planning := o.meter.Source("").Begin(activity.Plan, "")
	defer planning.End(0)
	for {
		d := o.m.Decide()
		if d.IsEmpty() {
			o.perform(o.m.Actions())
			return nil
		}
		if len(d.Facts) == 0 {
			o.m.Apply(d)
			if d.isReshape() {
				o.opt.Fail.Hit("orchestrator/turn/after")
			}
			continue
		}
		if err := o.commit(d.Facts); err != nil {
			return err
		}
		if err := o.settle(ctx); err != nil {
			return err
		}
		if err := o.held.Commit(ctx, plansOf(d.Facts)); err != nil {
			return err
		}
		o.opt.Fail.Hit("orchestrator/lease/after")
		o.m.Apply(d)
		o.opt.Fail.Hit("orchestrator/apply/after")
		o.perform(o.m.Actions())
	}
}

// perform carries out the actions of decisions that are durable.
func (o *Orchestrator) perform(actions []roster.Action) {
	if len(actions) == 0 {
		return
	}
	o.mark("publish")
	o.opt.Fail.Hit("orchestrator/publish/before")
	for _, a := range actions {
		switch {
		case a.To != nil:
			a.To.Send(a.Msg)
		case a.Answer != nil:
			a.Answer()
		case a.Loaders > 0:
			o.keeper.Want(placer.Desired{Roles: []placer.Wanted{
				{Role: loaderRole, Count: a.Loaders, Memory: o.cfg.Elastic.Memory}}})
		case a.Fenced == nil:
			fmt.Fprintln(o.opt.Lines, a.Line)
		case o.opt.Fenced != nil:
			o.opt.Fenced(*a.Fenced)
		}
	}
	o.opt.Fail.Hit("orchestrator/publish/after")
	o.mark("published")
}

// mark writes the event of a stage that concerns no single step.
func (o *Orchestrator) mark(stage string) {
	o.opt.Events.Write(event.Record{Event: stage, Stream: string(o.cfg.Stream), Step: -1, Rank: -1, Micro: -1})
}

// record writes the event that a checker reads.
func (o *Orchestrator) record(f facts.Fact) {
	e := event.Record{
		Event:  "journal",
		Key:    fmt.Sprintf("%T", f.Record.GetFact())[len("*proto.Record_"):],
		Stream: string(o.cfg.Stream),
		Step:   -1,
		Rank:   -1,
		Micro:  -1,
	}
	if o.m != nil {
		e.Attempt, e.Term = uint32(o.m.s.CurrentAttempt()), o.m.s.Term
	}
	if f.Plan != nil {
		e.Step, e.Digest = int64(f.Plan.Step), fmt.Sprintf("%x", f.Plan.Content)
	}
	o.opt.Events.Write(e)
	e.Event, e.Digest = "lost", ""
	for _, q := range lost(f.Record) {
		e.Key = fmt.Sprintf("%s %d %s", q.GetSource(), q.GetOrdinal(), q.GetId())
		o.opt.Events.Write(e)
	}
}

// lost lists the samples of a fact that no rank receives, or not in full.
func lost(r *proto.Record) []*proto.Quarantine {
	out := r.GetQuarantined().GetSamples()
	for _, m := range r.GetMasked().GetMasks() {
		out = append(out, &proto.Quarantine{Source: m.Source, Ordinal: m.Ordinal, Id: m.GetSample().GetId()})
	}
	return out
}

// errStopped answers calls that come after the loop ended.
var errStopped = errors.New("the orchestrator is stopping")

// post hands an event to the loop.
func (o *Orchestrator) post(ctx context.Context, observe func(*Machine)) error {
	select {
	case o.events <- observe:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-o.stopped:
		return errStopped
	}
}

// Term is the fencing number that this life of the orchestrator took.
func (o *Orchestrator) Term() millrace.Term { return millrace.Term(o.m.s.Term) }
