package ledger

import (
	"fmt"
	"slices"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/checkpoint"
	"millrace/internal/wire"
	pb "millrace/proto"
)

// Step is the ledger's knowledge of one (attempt, step). Its ranges are kept for ever. While the full plan is kept, it
// also has the segments, and Complete is true.
type Step = *pb.LedgerReply

// Run has the data of a run that a ledger needs. The ledger only reads it.
type Run struct {
	Stream    string
	Identity  []byte
	Manifests []*pb.Manifest // by source
	Masks     []*pb.Mask
	// Quarantined lists the newest quarantined samples, as far as they are kept.
	Quarantined []*pb.Quarantine
	Consumed    map[uint32]uint64 // by attempt, the newest included: first step that not every rank has consumed
	Inverse     Inverse           // may be nil
	// Changes lists the changes of the mixture that took effect with a step of an attempt.
	Changes func(attempt uint32, step uint64) ([]*pb.MixChange, error)
}

// Inverse inverts the order of a source: it returns a record's ordinals below a bound, ascending. known is false if the
// order cannot be inverted.
type Inverse func(
	identity []byte, m *millrace.Manifest, id millrace.SampleID, below millrace.Ordinal,
) (at []millrace.Ordinal, known bool)

// Ledger finds the samples of steps and the steps of samples, over all attempts of a stream. It only reads. One
// goroutine may use it beside the orchestrator's loop.
type Ledger struct {
	store     *checkpoint.Store
	run       Run
	manifests []*millrace.Manifest // decoded run.Manifests; nil until one is needed
	masked    map[segmentKey]bool
}

type segmentKey struct {
	source  string
	ordinal uint64
	offset  uint32
}

// New returns the ledger of a run.
func New(store *checkpoint.Store, run Run) *Ledger {
	l := &Ledger{
		store:     store,
		run:       run,
		masked:    map[segmentKey]bool{},
		manifests: make([]*millrace.Manifest, len(run.Manifests)),
	}
	for _, m := range run.Masks {
		l.masked[segmentKey{m.Source, m.Ordinal, m.Offset}] = true
	}
	return l
}

// Answer returns the steps that a request asks for, the newest attempt last. If no step holds the sample because it was
// quarantined, the error gives the place of the bad record and the reason.
func (l *Ledger) Answer(request *pb.LedgerRequest) (out []Step, err error) {
	if request.ByStep {
		return l.FindStep(request.Step)
	}
	source := slices.IndexFunc(l.run.Manifests, func(m *pb.Manifest) bool { return m.Source == request.Source })
	if source < 0 {
		return nil, millrace.Errorf(millrace.ErrInvalid, "find sample %s/%s: this run has no source %q", request.Source,
			request.Id, request.Source)
	}
	ordinals, err := l.locate(source, request.Id)
	if err != nil {
		return nil, err
	}
	for _, ordinal := range ordinals {
		steps, err := l.FindOrdinal(source, ordinal)
		if err != nil {
			return nil, err
		}
		out = append(out, steps...)
	}
	if len(out) == 0 {
		return nil, l.quarantined(request.Source, request.Id)
	}
	return out, nil
}

// quarantined returns an error if a sample is known to be quarantined.
func (l *Ledger) quarantined(source, name string) error {
	i := slices.IndexFunc(l.run.Quarantined, func(q *pb.Quarantine) bool { return q.Source == source && q.Id == name })
	if i < 0 {
		return nil
	}
	q := l.run.Quarantined[i]
	place := "record " + name
	if q.Offset >= 0 {
		place = fmt.Sprintf("%s, at byte %d of its file", place, q.Offset)
	}
	return millrace.Errorf(millrace.ErrBadSample, "sample %s/%s is in no step: it was quarantined (%s): %s", source,
		name, place, q.Reason)
}

// Sources returns the names of the sources, by index.
func (l *Ledger) Sources() []string {
	out := make([]string, len(l.run.Manifests))
	for i, m := range l.run.Manifests {
		out[i] = m.Source
	}
	return out
}

// ReadPlan reads a step's plan, and whether it is still kept. The plan has no run state.
func ReadPlan(store *checkpoint.Store, key checkpoint.StepKey) (*pb.Plan, bool, error) {
	body, ok, err := store.Plan(key)
	if err != nil || !ok {
		return nil, false, err
	}
	p := &pb.Plan{}
	if err := pbuf.Unmarshal(body, p); err != nil {
		return nil, false, fmt.Errorf("read plan of step %d: %w", key.Step, err)
	}
	return p, true, nil
}

func (l *Ledger) key(attempt uint32, step uint64) checkpoint.StepKey {
	return checkpoint.StepKey{Stream: l.run.Stream, Attempt: attempt, Step: step}
}

// endOf returns a key after all keys of a stream.
func endOf(stream string) checkpoint.StepKey { return checkpoint.StepKey{Stream: stream + "\x01"} }

func (l *Ledger) sourceName(source uint32) string {
	if int(source) < len(l.run.Manifests) {
		return l.run.Manifests[source].Source
	}
	return fmt.Sprint(source)
}

// sampleName returns the id that users see of the sample of a segment.
func (l *Ledger) sampleName(a *pb.Assignments, i int) string {
	id := millrace.SampleID{Shard: a.Shard[i], Record: a.Record[i]}
	source := int(a.Source[i])
	if source >= len(l.run.Manifests) {
		return id.String()
	}
	return l.manifest(source).SampleName(id)
}

func (l *Ledger) manifest(source int) *millrace.Manifest {
	if l.manifests[source] == nil {
		l.manifests[source] = wire.ManifestFromProto(l.run.Manifests[source])
	}
	return l.manifests[source]
}
