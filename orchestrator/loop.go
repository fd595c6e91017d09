package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/checkpoint"
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/planner"
	"millrace/proto"
)

// snapshotEvery is the journal records between two snapshots; retention the steps below the oldest needed one whose full plans stay.
const (
	snapshotEvery = 512
	retention     = 1000
)

// Options are the orchestrator's seams and its store.
type Options struct {
	Store  *checkpoint.Store
	Lines  io.Writer // for people: quarantined samples
	Events *event.Log
	Fail   *failpoint.Set
}

// Orchestrator is the machine with its goroutine and its journal.
type Orchestrator struct {
	cfg     Config
	opt     Options
	m       *Machine
	lease   context.Context // ends when another may decide
	events  chan func(*Machine)
	stopped chan struct{}
	since   int // records since the newest snapshot
}

// New restores the run from its store and acquires the lease, which journals the next term. The lease ends with ctx, which has to
// outlive Run's. Nothing runs before Run.
func New(ctx context.Context, cfg Config, opt Options) (*Orchestrator, error) {
	o := &Orchestrator{cfg: cfg, opt: opt, events: make(chan func(*Machine), 64), stopped: make(chan struct{})}
	s, records, err := ReadState(opt.Store, cfg.Stream)
	o.since = records
	if err != nil {
		return nil, err
	}
	if err := o.checkIdentity(s); err != nil {
		return nil, err
	}
	opt.Fail.Hit("orchestrator/term/before")
	if o.lease, _, err = lease.NewSolo(&terms{o, s}).Acquire(ctx); err != nil {
		return nil, err
	}
	if len(s.Identity) == 0 {
		created := &proto.Created{Identity: cfg.Identity, PlannerVersion: planner.PlannerVersion, By: cfg.By}
		if err := o.note(s, &proto.Record{Fact: &proto.Record_Created{Created: created}}); err != nil {
			return nil, err
		}
	}
	opt.Fail.Hit("orchestrator/term/after")
	o.m, err = NewMachine(cfg, s)
	return o, err
}

// terms takes the journal's next term.
type terms struct {
	o *Orchestrator
	s *State
}

// TakeTerm implements lease.Store.
func (t *terms) TakeTerm() (millrace.Term, error) {
	err := t.o.note(t.s, &proto.Record{Fact: &proto.Record_Term{Term: &proto.TermTaken{Term: t.s.Term + 1}}})
	return millrace.Term(t.s.Term), err
}

// note journals and applies one fact before there is a machine.
func (o *Orchestrator) note(s *State, r *proto.Record) error {
	f := Fact{Record: r}
	if err := o.commit(s, []Fact{f}); err != nil {
		return err
	}
	s.Apply(f)
	return nil
}

func (o *Orchestrator) checkIdentity(s *State) error {
	if len(s.Identity) == 0 {
		return nil
	}
	changed, err := o.cfg.Changed(s.Identity)
	if err != nil {
		return err
	}
	if len(changed) > 0 {
		return fmt.Errorf("the run directory holds a run of another identity: %v: restore the mixture file, or use a new run directory: %w", changed, millrace.ErrMismatch)
	}
	return nil
}

func (o *Orchestrator) key(attempt uint32, step uint64) checkpoint.StepKey {
	return checkpoint.StepKey{Stream: string(o.cfg.Stream), Attempt: attempt, Step: step}
}

// Run owns the machine until ctx ends (nil), every rank has consumed the stream (nil, see Done), or the run failed (why).
func (o *Orchestrator) Run(ctx context.Context) error {
	defer close(o.stopped)
	for {
		if err := o.turn(); err != nil {
			return err
		}
		if err := o.m.Failed(); err != nil {
			return err
		}
		if o.m.Done() {
			return nil
		}
		select {
		case <-ctx.Done():
			o.opt.Fail.Hit("orchestrator/stop/before")
			return o.snapshot()
		case <-o.lease.Done():
			return context.Cause(o.lease)
		case observe := <-o.events:
			observe(o.m)
		}
	}
}

// turn decides, journals, applies and publishes until there is nothing left to decide.
func (o *Orchestrator) turn() error {
	for {
		facts, err := o.m.Decide()
		if err != nil {
			o.m.fail(err)
		}
		if len(facts) > 0 && err == nil {
			if err := o.commit(o.m.s, facts); err != nil {
				return err
			}
			for _, f := range facts {
				o.m.Apply(f)
			}
			o.opt.Fail.Hit("orchestrator/apply/after")
		}
		o.perform(o.m.Actions())
		if len(facts) == 0 || err != nil {
			return nil
		}
	}
}

// commit makes facts durable; sealed plans go to the ledger in the same batch.
func (o *Orchestrator) commit(s *State, facts []Fact) error {
	var c checkpoint.Commit
	for _, f := range facts {
		body, err := pbuf.MarshalOptions{Deterministic: true}.Marshal(f.Record)
		if err != nil {
			return fmt.Errorf("encode record: %w", err)
		}
		step := checkpoint.NoStep
		if f.Plan != nil {
			step = int64(f.Plan.Step)
			plan, err := pbuf.MarshalOptions{Deterministic: true}.Marshal(f.Plan)
			if err != nil {
				return fmt.Errorf("encode plan: %w", err)
			}
			c.Plans = append(c.Plans, checkpoint.Plan{Key: o.key(f.Plan.Fence.Attempt, f.Plan.Step), Body: plan, Digest: append(append([]byte{}, f.Plan.Content...), f.Plan.Placement...)})
		}
		c.Records = append(c.Records, checkpoint.Record{Step: step, Kind: kind(f.Record), Body: body})
		o.record(f)
	}
	o.opt.Fail.Hit("orchestrator/journal/before")
	last, err := o.opt.Store.Commit(c)
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	o.opt.Fail.Hit("orchestrator/journal/after")
	o.mark("journaled")
	if o.since += len(facts); o.since >= snapshotEvery && o.m != nil {
		// The snapshot is of the state before these facts: it covers the records up to them.
		return o.snapshotAt(last - uint64(len(facts)))
	}
	return nil
}

// kind is the record's number in the journal: the field number of its fact.
func kind(r *proto.Record) uint8 {
	m := r.ProtoReflect()
	return uint8(m.WhichOneof(m.Descriptor().Oneofs().ByName("fact")).Number())
}

func (o *Orchestrator) snapshot() error {
	_, last := o.opt.Store.Bounds()
	return o.snapshotAt(last)
}

func (o *Orchestrator) snapshotAt(index uint64) error {
	body, err := pbuf.MarshalOptions{Deterministic: true}.Marshal(o.m.s.snapshot())
	if err != nil {
		return fmt.Errorf("encode snapshot: %w", err)
	}
	if err := o.opt.Store.SaveSnapshot(index, int64(o.m.s.Watermark), body); err != nil {
		return err
	}
	o.since = 0
	if err := o.opt.Store.Truncate(index + 1); err != nil {
		return err
	}
	if err := o.opt.Store.DropSnapshots(index); err != nil {
		return err
	}
	keep := o.m.s.Watermark
	if o.m.s.HasSaved {
		keep = min(keep, o.m.s.Saved)
	}
	return o.opt.Store.DropPlans(string(o.cfg.Stream), keep-min(keep, retention))
}

// perform carries out what was decided, after it is durable.
func (o *Orchestrator) perform(actions []Action) {
	if len(actions) == 0 {
		return
	}
	o.mark("publish")
	o.opt.Fail.Hit("orchestrator/publish/before")
	for _, a := range actions {
		if a.To != nil {
			a.To.Send(a.Msg)
		} else {
			fmt.Fprintln(o.opt.Lines, a.Line)
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
func (o *Orchestrator) record(f Fact) {
	e := event.Record{Event: "journal", Key: fmt.Sprintf("%T", f.Record.GetFact())[len("*proto.Record_"):], Stream: string(o.cfg.Stream), Step: -1, Rank: -1, Micro: -1}
	if o.m != nil {
		e.Attempt, e.Term = uint32(o.m.s.attempt()), o.m.s.Term
	}
	if f.Plan != nil {
		e.Step, e.Digest = int64(f.Plan.Step), fmt.Sprintf("%x", f.Plan.Content)
	}
	o.opt.Events.Write(e)
	e.Event, e.Digest = "lost", ""
	for _, q := range lost(f.Record) {
		e.Key = fmt.Sprintf("%s %d %s", q.Source, q.Ordinal, q.Id)
		o.opt.Events.Write(e)
	}
}

// lost are the samples that a fact says nobody will get, or not in full.
func lost(r *proto.Record) []*proto.Quarantine {
	out := r.GetQuarantined().GetSamples()
	for _, m := range r.GetMasked().GetMasks() {
		out = append(out, m.Sample)
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
