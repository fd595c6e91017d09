package orchestrator

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/checkpoint"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/ledger"
	"millrace/proto"
)

// snapshotEvery is the journal records between two snapshots; retention the steps below the oldest needed one whose
// full plans stay.
const (
	snapshotEvery = 512
	retention     = 1000
)

func (o *Orchestrator) key(attempt uint32, step uint64) checkpoint.StepKey {
	return checkpoint.StepKey{Stream: string(o.cfg.Stream), Attempt: attempt, Step: step}
}

// commit makes facts durable; sealed plans go to the ledger in the same batch.
func (o *Orchestrator) commit(made []facts.Fact) error {
	var c checkpoint.Commit
	for _, f := range made {
		body, err := pbuf.MarshalOptions{Deterministic: true}.Marshal(f.Record)
		if err != nil {
			return fmt.Errorf("encode record: %w", err)
		}
		step := checkpoint.NoStep
		if f.Plan != nil {
			step = int64(f.Plan.Step)
			plan, err := o.stored(f)
			if err != nil {
				return err
			}
			c.Plans = append(c.Plans, plan)
		}
		c.Records = append(c.Records, checkpoint.Record{Step: step, Kind: kind(f.Record), Body: body})
		o.record(f)
	}
	opens := slices.ContainsFunc(made, func(f facts.Fact) bool { return f.Record.GetOpened() != nil })
	if opens {
		o.opt.Fail.Hit("orchestrator/attempt/before")
	}
	o.opt.Fail.Hit("orchestrator/journal/before")
	last, err := o.opt.Store.Commit(c)
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	o.opt.Fail.Hit("orchestrator/journal/after")
	if opens {
		o.opt.Fail.Hit("orchestrator/attempt/after")
	}
	o.mark("journaled")
	if o.since += len(made); o.since >= o.opt.Snapshots && o.m != nil {
		// The snapshot is of the state before these facts: it covers the records up to them.
		return o.snapshotAt(last - uint64(len(made)))
	}
	return nil
}

// stored is a sealed step as the ledger keeps it: the plan without its run state, which the deltas lead to.
func (o *Orchestrator) stored(f facts.Fact) (checkpoint.Plan, error) {
	p := f.Plan
	kept := &proto.Plan{Fence: p.Fence, Step: p.Step, Ranks: p.Ranks, Microbatches: p.Microbatches,
		Assignments: p.Assignments, Content: p.Content, Placement: p.Placement,
		Leaves: p.Leaves, Last: p.Last, Delta: p.Delta,
		SequenceLength: p.SequenceLength, MicroBatch: p.MicroBatch, Counted: p.Counted}
	body, err := pbuf.MarshalOptions{Deterministic: true}.Marshal(kept)
	if err != nil {
		return checkpoint.Plan{}, fmt.Errorf("encode plan: %w", err)
	}
	return checkpoint.Plan{
		Key:    o.key(p.Fence.Attempt, p.Step),
		Body:   body,
		Digest: ledger.NewEntry(p, f.GetSealed().Chain).Encode(),
	}, nil
}

// sealed is the ledger as the record of the solo lease.
type sealed struct{ o *Orchestrator }

// Confirm implements lease.Store.
func (l sealed) Confirm(plans []lease.Plan) error {
	for _, p := range plans {
		key := l.o.key(uint32(p.Attempt), uint64(p.Step))
		e, ok, err := ledger.ReadEntry(l.o.opt.Store, key)
		switch {
		case errors.Is(err, checkpoint.ErrClosed):
			return millrace.Mark(fmt.Errorf("find step %s in the journal: %w", key, err), millrace.ErrFenced)
		case err != nil:
			return err
		case !ok || e.Content != p.Content || e.Placement != p.Placement:
			return millrace.Errorf(millrace.ErrMismatch, "commit step %s: the ledger has content %s and placement %s, "+
				"the plan has %s and %s", key, e.Content, e.Placement, p.Content, p.Placement)
		}
	}
	return nil
}

// plansOf lists the plans among facts for the lease.
func plansOf(made []facts.Fact) (out []lease.Plan) {
	for _, f := range made {
		if f.Plan != nil {
			out = append(out, leased(f.Plan))
		}
	}
	return out
}

// sealedPlans lists the plans from the watermark on for the lease.
func sealedPlans(s *facts.State) (out []lease.Plan) {
	for _, step := range slices.Sorted(maps.Keys(s.Sealed)) {
		out = append(out, leased(s.Sealed[step].Plan))
	}
	return out
}

func leased(p *proto.Plan) lease.Plan {
	out := lease.Plan{Attempt: millrace.Attempt(p.Fence.Attempt), Step: millrace.Step(p.Step)}
	copy(out.Content[:], p.Content)
	copy(out.Placement[:], p.Placement)
	return out
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

// snapshotAt saves a snapshot of the state, which is the one after journal record index. It drops all data that the
// snapshot makes superfluous.
func (o *Orchestrator) snapshotAt(index uint64) error {
	s := o.m.s
	if err := errors.Join(o.leaveIndexEntries(), o.leaveFiles()); err != nil {
		return err
	}
	s.Settle()
	body, err := pbuf.MarshalOptions{Deterministic: true}.Marshal(s.Snapshot())
	if err != nil {
		return fmt.Errorf("encode snapshot: %w", err)
	}
	if err := o.opt.Store.SaveSnapshot(index, int64(s.Watermark), body); err != nil {
		return err
	}
	o.since = 0
	return retire(o.opt.Store, string(o.cfg.Stream), s, index)
}

// leaveFiles writes the tables of manifests with many shards into the ledger, once.
func (o *Orchestrator) leaveFiles() error {
	for _, name := range slices.Sorted(maps.Keys(o.m.s.Manifests)) {
		entries, err := facts.FilesEntries(o.cfg.Stream, o.m.s.Manifests[name])
		if err != nil {
			return err
		}
		if entries == nil {
			continue
		}
		if _, err := o.opt.Store.Commit(checkpoint.Commit{LedgerIndex: entries}); err != nil {
			return fmt.Errorf("leave the files of source %s in the ledger: %w", name, err)
		}
		o.m.s.KeepFiles(name, len(entries))
	}
	return nil
}

// leaveIndexEntries writes the positions of the sources at the watermark, and the settled changes of the mixture, into
// the ledger.
func (o *Orchestrator) leaveIndexEntries() error {
	if o.m.s.Attempt == nil {
		return nil
	}
	post := checkpoint.IndexEntry{
		Key:  o.key(o.m.s.Attempt.Attempt, o.m.s.Watermark),
		Body: ledger.EncodePositions(&o.m.s.Base.Planner),
	}
	settled, err := o.m.s.SettledEntries(o.cfg.Stream)
	if err != nil {
		return err
	}
	if _, err := o.opt.Store.Commit(checkpoint.Commit{LedgerIndex: append(settled, post)}); err != nil {
		return fmt.Errorf("leave index entries in the ledger: %w", err)
	}
	return nil
}

// retire drops all data that a snapshot after journal record index makes superfluous: records, older snapshots, and
// plans that neither the state nor a trainer's saved checkpoint needs.
func retire(store *checkpoint.Store, stream string, s *facts.State, index uint64) error {
	if err := store.Truncate(index + 1); err != nil {
		return err
	}
	if err := store.DropSnapshots(index); err != nil {
		return err
	}
	keep := s.Watermark
	if s.HasSaved {
		keep = min(keep, s.Saved)
	}
	return store.DropPlans(stream, keep-min(keep, retention))
}
