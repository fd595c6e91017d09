package orchestrator

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc"

	"millrace"
	"millrace/checkpoint"
	"millrace/internal/wire"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/ledger"
	"millrace/proto"
)

// OpenLedger returns the ledger of a stream of a stopped run. inverse may be nil.
func OpenLedger(store *checkpoint.Store, stream millrace.Stream, inverse ledger.Inverse) (*ledger.Ledger, error) {
	s, _, err := facts.ReadCounters(store, stream)
	if err != nil {
		return nil, err
	}
	return ledger.New(store, ledgerRun(s, stream, inverse)), nil
}

// ledgerRun returns the part of the run's state that a ledger needs. Later changes of the state do not change it.
func ledgerRun(s *facts.State, stream millrace.Stream, inverse ledger.Inverse) ledger.Run {
	run := ledger.Run{
		Stream:      string(stream),
		Identity:    s.Identity,
		Masks:       s.Masks,
		Quarantined: s.Recent[:len(s.Recent):len(s.Recent)],
		Consumed:    maps.Clone(s.Consumed),
		Inverse:     inverse,
	}
	if s.Base != nil && s.Base.HasEras() { // ordinals follow from the state, too
		run.Inverse = nil
	}
	if s.Attempt != nil {
		run.Consumed[s.Attempt.Attempt] = s.Watermark
	}
	names := slices.Sorted(maps.Keys(s.Manifests))
	for _, name := range names {
		run.Manifests = append(run.Manifests, s.Manifests[name])
	}
	changes := s.ChangesOnly()
	run.Changes = func(attempt uint32, step uint64) ([]*proto.MixChange, error) {
		return changes.ChangesAt(names, attempt, step)
	}
	return run
}

// recalled finds documents in sealed steps for the queues of the machine. Only the loop uses it.
type recalled struct {
	o     *Orchestrator
	in    millrace.Attempt // the attempt in which below was read
	below map[int]uint64   // by source: sealed steps hold no later ordinals
}

// find implements offers.Sealed of a source. Most bad records are in no step: they cost one look at the ledger in an
// attempt.
func (r *recalled) find(source int, o millrace.Ordinal) ([]millrace.Segment, error) {
	if at := r.o.m.s.CurrentAttempt(); r.below == nil || r.in != at {
		r.in, r.below = at, map[int]uint64{}
	}
	below, known := r.below[source]
	if known && uint64(o) >= below {
		return nil, nil
	}
	l := ledger.New(r.o.opt.Store, ledgerRun(r.o.m.s, r.o.cfg.Stream, nil))
	if !known {
		var err error
		if below, err = l.DrawnBelow(source); err != nil {
			return nil, err
		}
		r.below[source] = below
	}
	if uint64(o) >= below {
		return nil, nil
	}
	return l.Segments(source, uint64(o))
}

// Ledger answers from the store which segments a step held, or which steps held a sample. It asks the loop for the
// run's state alone, and planning does not wait while it reads the store.
func (s *Server) Ledger(request *proto.LedgerRequest, stream grpc.ServerStreamingServer[proto.LedgerReply]) error {
	var run ledger.Run
	err := s.ask(stream.Context(), func(m *Machine) error {
		run = ledgerRun(m.s, s.o.cfg.Stream, s.o.cfg.Inverse)
		return nil
	})
	if err != nil {
		return err
	}
	found, err := ledger.New(s.o.opt.Store, run).Answer(request)
	if err != nil {
		return wire.ToStatus(err)
	}
	for _, step := range found {
		if err := stream.Send(step); err != nil {
			return err
		}
	}
	return nil
}

// Retire drops from the store of a stopped run all data that its newest snapshot makes superfluous. A running
// orchestrator does the same after every snapshot.
func Retire(store *checkpoint.Store, stream millrace.Stream) error {
	s, _, err := facts.ReadCounters(store, stream)
	if err != nil {
		return err
	}
	snap, ok, err := store.NewestSnapshot()
	if err != nil || !ok {
		return err
	}
	return retire(store, string(stream), s, snap.Index)
}

// VerifyLedger checks that the journal leads to a state, and the digest chain of the ledger. The store cannot check
// these itself. It calls problem with each violation.
func VerifyLedger(store *checkpoint.Store, stream millrace.Stream, problem func(string)) error {
	if _, _, err := facts.ReadCounters(store, stream); err != nil {
		problem(fmt.Sprintf("journal: %v", err))
	}
	return ledger.Verify(store, string(stream), problem)
}
