package orchestrator

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"millrace"
	"millrace/checkpoint"
	"millrace/internal/wire"
	pb "millrace/proto"
)

// LedgerStep is what is known of one (attempt, step). Its ranges are there for ever; segments as long as the plan is kept, and Complete says
// whether they are.
type LedgerStep = *pb.LedgerReply

// Ledger answers what steps held and where samples went, over all attempts of a stream. It reads only, and may be used beside the loop, by
// one goroutine.
type Ledger struct {
	store     *checkpoint.Store
	stream    string
	pinned    []*pb.Manifest       // by source
	manifests []*millrace.Manifest // likewise, once they were asked for
	identity  []byte
	inverse   Inverse // nil: nobody knows
	masked    map[segmentKey]bool
	mixed     []*pb.Mixed
	consumed  map[uint32]uint64 // by attempt, the newest one too: first step that not every rank had consumed
}

// Inverse is the inverse of the order of a run's sources: the ordinals below a bound at which a record stands, rising. Known is false where
// only the plans say.
type Inverse func(identity []byte, m *millrace.Manifest, id millrace.SampleID, below millrace.Ordinal) (at []millrace.Ordinal, known bool)

type segmentKey struct {
	source  string
	ordinal uint64
	offset  uint32
}

// OpenLedger returns the ledger of a stream of a stopped run.
func OpenLedger(store *checkpoint.Store, stream millrace.Stream, inverse Inverse) (*Ledger, error) {
	s, _, err := ReadCounters(store, stream)
	if err != nil {
		return nil, err
	}
	return s.ledger(store, string(stream), inverse), nil
}

// ledger is the ledger as far as the state has come. Nothing in it changes with the state.
func (s *State) ledger(store *checkpoint.Store, stream string, inverse Inverse) *Ledger {
	l := &Ledger{store: store, stream: stream, identity: s.Identity, inverse: inverse, masked: map[segmentKey]bool{}, consumed: map[uint32]uint64{}, mixed: slices.Clone(s.Mixed)}
	for _, name := range sortedKeys(s.Manifests) {
		l.pinned = append(l.pinned, s.Manifests[name])
	}
	l.manifests = make([]*millrace.Manifest, len(l.pinned))
	for _, m := range s.Masks {
		l.masked[segmentKey{m.Source, m.Ordinal, m.Offset}] = true
	}
	for attempt, below := range s.Consumed {
		l.consumed[attempt] = below
	}
	if s.Attempt != nil {
		l.consumed[s.Attempt.Attempt] = s.Watermark
	}
	return l
}

// FindStep returns what a step held in each attempt that sealed it, the newest last.
func (l *Ledger) FindStep(step uint64) ([]LedgerStep, error) {
	var out []LedgerStep
	err := l.attempts(func(attempt uint32, first, last uint64) error {
		if step < first || step > last {
			return nil
		}
		e, ok, err := l.store.Entry(l.key(attempt, step))
		if err != nil || !ok {
			return err
		}
		found, err := l.reply(e, func(uint32, uint64) bool { return true })
		out = append(out, found)
		return err
	})
	return out, err
}

// FindOrdinal returns the steps that held segments of a source's ordinal in each attempt, the newest last. It reads what lies between a few
// index entries, however long the run is. Where a step had more sources than its entry has room for and its plan is gone, the step may hold the
// ordinal: it is returned with Complete false and without that range.
func (l *Ledger) FindOrdinal(source int, ordinal uint64) ([]LedgerStep, error) {
	var out []LedgerStep
	err := l.attempts(func(attempt uint32, first, last uint64) error {
		seen := first
		for at := (cursor{ordinal: ordinal}); ; {
			lower, upper, next, err := l.between(attempt, first, last, source, at)
			if err != nil {
				return err
			}
			found, err := l.scan(attempt, max(lower, seen), upper, uint32(source), ordinal)
			seen = upper
			if err != nil {
				return err
			}
			out = append(out, found...)
			if at = next; at.ordinal != ordinal || upper > last {
				return nil // the document does not go on behind the index entry
			}
		}
	})
	return out, err
}

// Sources are the names of the sources, by index.
func (l *Ledger) Sources() []string {
	out := make([]string, len(l.pinned))
	for i, m := range l.pinned {
		out[i] = m.Source
	}
	return out
}

// Source returns the index of a source, -1 for none of that name.
func (l *Ledger) Source(name string) int {
	return slices.IndexFunc(l.pinned, func(m *pb.Manifest) bool { return m.Source == name })
}

func (l *Ledger) key(attempt uint32, step uint64) checkpoint.StepKey {
	return checkpoint.StepKey{Stream: l.stream, Attempt: attempt, Step: step}
}

// behind is a key behind all of a stream's.
func behind(stream string) checkpoint.StepKey { return checkpoint.StepKey{Stream: stream + "\x01"} }

var errEnough = errors.New("enough")

// attempts calls f with the first and the last step of each attempt that sealed any, in order.
func (l *Ledger) attempts(f func(attempt uint32, first, last uint64) error) error {
	for attempt := uint32(0); ; attempt++ {
		var first checkpoint.StepKey
		err := l.store.Ledger(l.key(attempt, 0), behind(l.stream), func(e checkpoint.Entry) error {
			first = e.Key
			return errEnough
		})
		if !errors.Is(err, errEnough) {
			return err // nil where there is no such attempt
		}
		attempt = first.Attempt
		last, _, err := l.store.EntryBefore(l.key(attempt, math.MaxUint64))
		if err != nil {
			return err
		}
		if err := f(attempt, first.Step, last.Key.Step); err != nil || attempt == math.MaxUint32 {
			return err
		}
	}
}

// between returns the steps that can hold what begins at a cursor: from the last index entry before which nothing of it was drawn, to the first behind
// which nothing of it waits, and where the source stands there: at the cursor's place segments that begin there lie in between.
func (l *Ledger) between(attempt uint32, first, last uint64, source int, at cursor) (lower, upper uint64, next cursor, err error) {
	begin, _, err := l.turn(attempt, first, last, source, func(s stand) bool { return at.before(s.drawn) })
	if err != nil {
		return 0, 0, next, err
	}
	_, end, err := l.turn(attempt, first, last, source, func(s stand) bool { return at.before(s.floor) })
	lower, upper, next = first, last+1, cursor{ordinal: math.MaxUint64}
	if begin != nil {
		lower = max(first, begin.step-min(begin.back, begin.step))
	}
	if end != nil {
		upper, next = end.step, end.floor
	}
	return lower, upper, next, err
}

// index entry is where a source stands at a step.
type indexEntry struct {
	step uint64
	stand
}

// turn returns the last index entry at which a source is not behind something, and the first at which it is; nil where there is none. Once it is,
// it stays so.
func (l *Ledger) turn(attempt uint32, first, last uint64, source int, behind func(stand) bool) (before, after *indexEntry, err error) {
	low, high := first, last+1 // no index entry below low is behind; none from high on is not
	for low < high {
		middle := low + (high-low)/2
		post, ok, err := l.store.IndexEntryBefore(l.key(attempt, middle))
		if err != nil {
			return nil, nil, err
		}
		if !ok || post.Key.Step < low {
			low = middle + 1
			continue
		}
		stands, err := standIn(post.Body, source, len(l.pinned))
		if err != nil {
			return nil, nil, fmt.Errorf("index entry %s: %w: %w", post.Key, err, checkpoint.ErrCorrupt)
		}
		found := &indexEntry{post.Key.Step, stands}
		if behind(stands) {
			after, high = found, post.Key.Step
		} else {
			before, low = found, middle+1
		}
	}
	return before, after, nil
}

// scan returns the steps from lower to below upper that hold an ordinal.
func (l *Ledger) scan(attempt uint32, lower, upper uint64, source uint32, ordinal uint64) (out []LedgerStep, err error) {
	err = l.store.Ledger(l.key(attempt, lower), l.key(attempt, upper), func(stored checkpoint.Entry) error {
		e, err := decodeEntry(stored.Digest)
		if err != nil {
			return fmt.Errorf("read ledger entry %s: %w: %w", stored.Key, err, checkpoint.ErrCorrupt)
		}
		at := slices.IndexFunc(e.ranges, func(r *pb.OrdinalRange) bool { return r.Source == source })
		if at >= 0 && (ordinal < e.ranges[at].From || ordinal > e.ranges[at].To) || at < 0 && e.whole {
			return nil
		}
		found, err := l.reply(stored, func(s uint32, o uint64) bool { return s == source && o == ordinal })
		if err == nil && (len(found.Segments.Source) > 0 || !found.Complete) {
			out = append(out, found)
		}
		return err
	})
	return out, err
}

// reply tells what is known of a step, with those of its segments that are wanted.
func (l *Ledger) reply(stored checkpoint.Entry, wanted func(source uint32, ordinal uint64) bool) (LedgerStep, error) {
	e, err := decodeEntry(stored.Digest)
	if err != nil {
		return nil, fmt.Errorf("read ledger entry %s: %w: %w", stored.Key, err, checkpoint.ErrCorrupt)
	}
	out := &pb.LedgerReply{Attempt: stored.Key.Attempt, Step: stored.Key.Step, Content: e.content[:], Placement: e.placement[:], Ranges: e.ranges,
		Acknowledged: stored.Key.Step < l.consumed[stored.Key.Attempt], Segments: &pb.Assignments{}}
	out.Changes = ChangesAt(l.mixed, l.Sources(), stored.Key.Attempt, stored.Key.Step)
	p, kept, err := ReadPlan(l.store, stored.Key)
	if err != nil || !kept {
		return out, err
	}
	out.Complete = true
	a, s := p.GetAssignments(), out.Segments
	for i := range a.GetSource() {
		if !wanted(a.Source[i], a.Ordinal[i]) {
			continue
		}
		s.Source, s.Ordinal, s.Epoch = append(s.Source, a.Source[i]), append(s.Ordinal, a.Ordinal[i]), append(s.Epoch, a.Epoch[i])
		s.Shard, s.Record, s.Offset = append(s.Shard, a.Shard[i]), append(s.Record, a.Record[i]), append(s.Offset, a.Offset[i])
		s.Length, s.More, s.Rank = append(s.Length, a.Length[i]), append(s.More, a.More[i]), append(s.Rank, a.Rank[i])
		s.Microbatch, s.Row, s.Start = append(s.Microbatch, a.Microbatch[i]), append(s.Row, a.Row[i]), append(s.Start, a.Start[i])
		name := l.sourceName(a.Source[i])
		out.Sources, out.Ids = append(out.Sources, name), append(out.Ids, l.name(a, i))
		out.Masked = append(out.Masked, l.masked[segmentKey{name, a.Ordinal[i], a.Offset[i]}])
	}
	return out, nil
}

func (l *Ledger) sourceName(source uint32) string {
	if int(source) < len(l.pinned) {
		return l.pinned[source].Source
	}
	return fmt.Sprint(source)
}

// name is the id that users see of a segment's sample.
func (l *Ledger) name(a *pb.Assignments, i int) string {
	id := millrace.SampleID{Shard: a.Shard[i], Record: a.Record[i]}
	source := int(a.Source[i])
	if source >= len(l.pinned) {
		return id.String()
	}
	return l.manifest(source).SampleName(id)
}

func (l *Ledger) manifest(source int) *millrace.Manifest {
	if l.manifests[source] == nil {
		l.manifests[source] = wire.ManifestFromProto(l.pinned[source])
	}
	return l.manifests[source]
}
