package orchestrator

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/internal/wire"
	"millrace/mixing"
	"millrace/orchestrator/attempts"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/offers"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/progress"
	"millrace/orchestrator/roster"
	"millrace/proto"
)

// box is a Session that remembers its messages.
type box struct{ got []any }

func (b *box) Send(msg any) { b.got = append(b.got, msg) }

// take returns the messages since the last call, one line each.
func (b *box) take() (lines []string) {
	for _, msg := range b.got {
		lines = append(lines, line(msg))
	}
	b.got = nil
	return lines
}

func line(msg any) string {
	switch m := msg.(type) {
	case *proto.SidecarOrder:
		switch o := m.Order.(type) {
		case *proto.SidecarOrder_Begin:
			begin := fmt.Sprintf("begin rank %d attempt %d step %d microbatch %d", o.Begin.Rank, o.Begin.Attempt,
				o.Begin.Step, o.Begin.Microbatch)
			if o.Begin.Notice != "" {
				begin += " (" + o.Begin.Notice
			}
			return begin
		case *proto.SidecarOrder_Plan:
			return fmt.Sprintf("plan %d/%d", o.Plan.Fence.Attempt, o.Plan.Step)
		case *proto.SidecarOrder_Refusal:
			return fmt.Sprintf("refuse rank %d: %s", o.Refusal.Rank, o.Refusal.Reason)
		case *proto.SidecarOrder_Ended:
			return fmt.Sprintf("ended after %d", o.Ended.Steps)
		case *proto.SidecarOrder_Failed:
			return "failed: " + o.Failed.Reason
		}
		return strings.TrimPrefix(reflect.TypeOf(m.Order).Elem().Name(), "SidecarOrder_")
	case *proto.LoaderOrder:
		switch o := m.Order.(type) {
		case *proto.LoaderOrder_Read:
			return fmt.Sprintf("read %s stripe %d/%d from %d term %d", o.Read.Source, o.Read.Stripe, o.Read.Stripes,
				o.Read.Ordinal, o.Read.Term)
		case *proto.LoaderOrder_Reading:
			var parts []string
			for i, source := range o.Reading.Source {
				if until := o.Reading.Until[i]; until > 0 {
					parts = append(parts, fmt.Sprintf("want %s below %d", source, until))
				}
				if below := o.Reading.Below[i]; below > 0 {
					parts = append(parts, fmt.Sprintf("release %s below %d", source, below))
				}
			}
			return strings.Join(parts, ", ")
		case *proto.LoaderOrder_Bye:
			return "bye: " + o.Bye.Reason
		}
		return strings.TrimPrefix(reflect.TypeOf(m.Order).Elem().Name(), "LoaderOrder_")
	}
	return fmt.Sprintf("%T", msg)
}

func testVersion() *proto.Version {
	return &proto.Version{Protocol: wire.ProtocolVersion, Planner: progress.PlannerVersion, Program: "test"}
}

// world is a machine with its journal, a loader that knows lengths, and a sidecar.
type world struct {
	t       *testing.T
	cfg     Config
	journal []facts.Fact
	m       *Machine
	loader  *box
	sidecar *box
	lines   []string
	began   map[uint32]roster.Session // where each rank began last
	purity  purity
	records uint64 // of each source; 0 is endless
	reject  func(source string, ordinal uint64) string
	commit  func([]facts.Fact) // if set, also receives facts before they are applied
}

var sourceNames = []string{"code", "web"}

func newConfig(t *testing.T, ranks int) Config {
	t.Helper()
	milestone := mixing.Milestone{}
	for _, w := range []string{"0.3", "0.7"} {
		weight, err := mixing.ParseWeight(w)
		if err != nil {
			t.Fatal(err)
		}
		milestone.Weights = append(milestone.Weights, weight)
	}
	schedule, err := mixing.NewSchedule(2, []mixing.Milestone{milestone})
	if err != nil {
		t.Fatal(err)
	}
	spec := &planner.Spec{
		SequenceLength: 64,
		GlobalBatch:    8,
		PadMultiple:    1,
		Packing:        millrace.BestFit,
		Unit:           millrace.UnitTokens,
		Schedule:       schedule,
		LastStep:       millrace.PadLast,
		Sources: []planner.SourceSpec{
			{Name: "code", OnExhausted: millrace.Renormalize},
			{Name: "web", OnExhausted: millrace.Renormalize},
		},
	}
	place := func(sel *planner.Selection) (*millrace.Plan, error) {
		return place.Plan(
			sel,
			millrace.Topology{Ranks: ranks, TP: 1, CP: 1, PP: 1},
			place.Options{
				MicroBatch: 1,
				Layout:     millrace.Packed,
				Balance:    millrace.BalanceFSDP,
				LastStep:   millrace.PadLast,
			},
		)
	}
	cfg := Config{
		Loaders:  1,
		Up:       "first",
		Stream:   millrace.Train,
		Spec:     spec,
		Topology: &attempts.Topology{Ranks: ranks, Placing: &proto.Placing{Ranks: uint32(ranks)}, Place: place},
		Identity: []byte(`{"seed":"1"}`),
		Runway:   3,
		By:       "test",
		Log:      slog.New(slog.DiscardHandler),
		Rules: facts.Rules{
			Classify: func(string) millrace.KeyClass { return millrace.KeyDocuments },
			Changed: func(stored []byte) ([]string, error) {
				if string(stored) != `{"seed":"1"}` {
					return []string{"seed: 1 -> 2"}, nil
				}
				return nil, nil
			},
		},
		Compare: func(pinned, now *millrace.Manifest) error {
			if pinned.Fingerprint != now.Fingerprint {
				return millrace.Errorf(millrace.ErrMismatch, "source %s: its files changed", now.Source)
			}
			return nil
		},
	}
	for _, name := range sourceNames {
		cfg.Sources = append(cfg.Sources,
			Source{Name: name, Stripes: 1, Allowed: func(bool, uint64) uint64 { return 3 }})
	}
	return cfg
}

func newWorld(t *testing.T, ranks int) *world {
	w := &world{t: t, cfg: newConfig(t, ranks), reject: func(string, uint64) string { return "" }}
	w.cfg.sealed = w.sealedSegments
	w.restart()
	return w
}

// sealedSegments finds the segments of a document in the journal's plans, by offset.
func (w *world) sealedSegments(source int, o millrace.Ordinal) (out []millrace.Segment, err error) {
	for _, f := range w.journal {
		as := f.Plan.GetAssignments()
		for i, at := range as.GetOrdinal() {
			if at == uint64(o) && int(as.Source[i]) == source {
				out = append(out, millrace.Segment{ID: millrace.SampleID{Shard: as.Shard[i], Record: as.Record[i]},
					Offset: as.Offset[i], Length: as.Length[i], More: as.More[i]})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b millrace.Segment) int { return int(a.Offset) - int(b.Offset) })
	return out, nil
}

// restart starts a new orchestrator over the same journal. No role is connected to it.
func (w *world) restart() {
	w.t.Helper()
	s := facts.NewState()
	for _, f := range w.journal {
		s.Apply(f)
	}
	first := []facts.Fact{{Record: &proto.Record{Fact: &proto.Record_Term{Term: &proto.TermTaken{Term: s.Term + 1}}}}}
	if len(s.Identity) == 0 {
		first = append(
			first,
			facts.Fact{
				Record: &proto.Record{
					Fact: &proto.Record_Created{Created: &proto.Created{Identity: w.cfg.Identity, PlannerVersion: 1}},
				},
			},
		)
	}
	for _, f := range first {
		s.Apply(f)
	}
	w.journal = append(w.journal, first...)
	m, err := NewMachine(w.cfg, s)
	if err != nil {
		w.t.Fatal(err)
	}
	w.m, w.began = m, map[uint32]roster.Session{}
}

// turn lets the machine decide until it rests, answering its loader's wants on the way.
func (w *world) turn() {
	w.t.Helper()
	for {
		d := w.purity.decide(w.t, w.m)
		w.apply(d)
		acted := w.perform()
		if d.IsEmpty() && !acted {
			return
		}
	}
}

// apply journals a decision's facts and applies it.
func (w *world) apply(d Decision) {
	w.journal = append(w.journal, d.Facts...)
	if w.commit != nil && len(d.Facts) > 0 {
		w.commit(d.Facts)
	}
	w.m.Apply(d)
}

func (w *world) perform() (acted bool) {
	for _, a := range w.m.Actions() {
		switch {
		case a.Answer != nil:
			a.Answer()
			continue
		case a.To == nil:
			w.lines = append(w.lines, a.Line)
			continue
		}
		a.To.Send(a.Msg)
		if order, ok := a.Msg.(*proto.SidecarOrder); ok && order.GetBegin() != nil {
			w.began[order.GetBegin().Rank] = a.To
		}
		if order, ok := a.Msg.(*proto.LoaderOrder); ok && a.To == roster.Session(w.loader) {
			acted = w.answer(order) || acted
		}
		if order, ok := a.Msg.(*proto.SidecarOrder); ok && order.GetRollCall() != nil &&
			a.To == roster.Session(w.sidecar) {
			w.m.ranks.Present(w.sidecar, w.present(order.GetRollCall().Call))
			acted = true
		}
	}
	return acted
}

// answer plays the loader: it sends manifests when told to open a source, and offers the wanted ordinals.
func (w *world) answer(order *proto.LoaderOrder) bool {
	switch o := order.Order.(type) {
	case *proto.LoaderOrder_Open:
		hearManifest(w.m, w.loader, "loader-0", &proto.Manifest{Source: o.Open.Source, Fingerprint: make([]byte, 16)})
	case *proto.LoaderOrder_Reading:
		for i, until := range o.Reading.Until {
			if until > 0 {
				w.offer(o.Reading.Source[i], until)
			}
		}
	default:
		return false
	}
	return true
}

func length(source string, ordinal uint64) uint32 {
	return uint32(1 + (ordinal*2654435761+uint64(len(source)))%150)
}

func (w *world) offer(source string, until uint64) {
	q := w.queue(source)
	m := &proto.Offers{Source: source}
	for o := uint64(q.Next()); o < until; o++ {
		if w.records > 0 && o >= w.records {
			m.End, m.EndOrdinal = true, w.records
			break
		}
		tokens := length(source, o)
		if reason := w.reject(source, o); reason != "" {
			tokens = 0
			m.Rejects = append(
				m.Rejects,
				&proto.Quarantine{
					Source:  source,
					Id:      fmt.Sprintf("a.jsonl#%d", o),
					Offset:  int64(o),
					Reason:  reason,
					Ordinal: o,
				},
			)
		}
		m.Ordinal, m.Epoch, m.Shard, m.Record, m.Tokens = append(m.Ordinal, o), append(m.Epoch,
			0), append(m.Shard, 0), append(
			m.Record,
			o,
		), append(m.Tokens, tokens)
	}
	hearOffers(w.m, w.loader, "loader-0", reader(w.m, source, 0).Term, m)
}

func (w *world) queue(source string) *offers.Queue {
	return w.m.queues[slices.Index(sourceNames, source)]
}

// present says which ranks have begun from the world's host.
func (w *world) present(call uint64) *proto.Present {
	p := &proto.Present{Call: call}
	for rank, session := range w.began {
		if session == roster.Session(w.sidecar) {
			p.Ranks = append(p.Ranks, rank)
		}
	}
	return p
}

func (w *world) connect() {
	w.t.Helper()
	w.loader, w.sidecar = &box{}, &box{}
	if err := w.m.roster.Connect(w.loader, &proto.LoaderHello{Version: testVersion(), Name: "loader-0"}); err != nil {
		w.t.Fatal(err)
	}
	w.m.SidecarUp(w.sidecar, &proto.SidecarHello{Version: testVersion(), Name: "sidecar-0"})
	w.turn()
}

// reconnect brings back the world's host with ranks that serve.
func (w *world) reconnect(ranks ...*proto.RankPosition) {
	w.t.Helper()
	hello := &proto.SidecarHello{Version: testVersion(), Name: "sidecar-0", Ranks: ranks}
	if err := w.m.SidecarUp(w.sidecar, hello); err != nil {
		w.t.Fatal(err)
	}
	for _, p := range ranks {
		w.began[p.Rank] = w.sidecar
	}
}

func (w *world) join(rank uint32, start string, state []byte) {
	w.m.Joined(w.sidecar, &proto.Join{Rank: rank, Start: start, State: state, Call: uint64(rank) + 1})
	w.turn()
}

func (w *world) joinAll(start string, state []byte) {
	for r := range w.cfg.Ranks {
		w.join(uint32(r), start, state)
	}
}

// consume lets every rank take all steps below a step.
func (w *world) consume(below uint64) {
	for step := w.m.s.Watermark; step < below; step++ {
		for r := range w.cfg.Ranks {
			w.m.Committed(w.sidecar, &proto.Commit{Rank: uint32(r), Attempt: w.m.s.Attempt.Attempt, Step: step})
		}
		w.turn()
	}
}

// contents returns the content digest of every sealed step, by attempt.
func (w *world) contents() map[uint32]map[uint64]string {
	out := map[uint32]map[uint64]string{}
	for _, f := range w.journal {
		if f.Plan == nil {
			continue
		}
		a := f.Plan.Fence.Attempt
		if out[a] == nil {
			out[a] = map[uint64]string{}
		}
		out[a][f.Plan.Step] = fmt.Sprintf("%x %x", f.Plan.Content, f.Plan.Placement)
	}
	return out
}

// snapshotBytes returns a whole state as bytes: a snapshot, and the plans that it leaves to the ledger.
func snapshotBytes(t *testing.T, s *facts.State) string {
	t.Helper()
	m := s.Snapshot()
	for i, p := range m.Sealed {
		m.Sealed[i] = s.Sealed[p.Step].Plan
	}
	b, err := pbuf.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func state(t *testing.T, w *world, step uint64) []byte {
	t.Helper()
	for _, f := range w.journal {
		if f.Plan != nil && f.Plan.Step+1 == step {
			return f.Plan.State
		}
	}
	t.Fatalf("no state after step %d", step)
	return nil
}

// TestLoadersThatOpenASourceTogetherAreCompared: the files of the second loader are compared although those of the
// first are not journaled yet, and the sidecars are welcomed.
func TestLoadersThatOpenASourceTogetherAreCompared(t *testing.T) {
	for _, second := range []byte{0, 1} {
		w := newWorld(t, 1)
		for i := range w.cfg.Sources {
			w.cfg.Sources[i].Stripes, w.cfg.Loaders = 2, 2
		}
		w.restart()
		w.sidecar = &box{}
		w.m.SidecarUp(w.sidecar, &proto.SidecarHello{Version: testVersion(), Name: "sidecar-0"})
		for i, name := range []string{"loader-0", "loader-1"} {
			loader := &box{}
			if err := w.m.roster.Connect(loader, &proto.LoaderHello{Version: testVersion(), Name: name}); err != nil {
				t.Fatal(err)
			}
			for _, source := range sourceNames {
				hearManifest(w.m, loader, name,
					&proto.Manifest{Source: source, Fingerprint: append(make([]byte, 15), second*byte(i))})
			}
		}
		w.turn()
		if got := w.sidecar.take(); has(got, "Welcome") != (second == 0) ||
			has(got, "failed: source code: its files changed") != (second != 0) {
			t.Errorf("files that differ by %d: %v", second, got)
		}
	}
}

// TestABadRecordIsCountedOnce: it counts once in every pass over the source, even if its step is planned again.
func TestABadRecordIsCountedOnce(t *testing.T) {
	w := newWorld(t, 1)
	w.reject = func(source string, ordinal uint64) string {
		if source == "web" && ordinal%20 == 7 && ordinal < 60 { // 3 records, as many as the budget takes
			return "it is broken"
		}
		return ""
	}
	w.connect()
	w.join(0, "fresh", nil)
	w.consume(20)
	if n := w.m.s.Quarantined["web"]; n != 3 {
		t.Fatalf("%d counted, want 3", n)
	}
	lines := len(w.lines)
	w.join(0, "fresh", nil)
	w.consume(10)
	restored, err := facts.Restore(w.m.s.Snapshot(), w.cfg.Spec)
	if err != nil {
		t.Fatal(err)
	}
	*w.m.s = *restored
	w.join(0, "fresh", nil)
	w.consume(20)
	if n, err := w.m.s.Quarantined["web"], w.m.Failed(); n != 3 || err != nil {
		t.Errorf("after steps that came again %d are counted: %v", n, err)
	}
	if got := w.lines[lines:]; slices.ContainsFunc(got,
		func(l string) bool { return strings.HasPrefix(l, "quarantined") }) {
		t.Errorf("reported again: %v", got)
	}
}

func TestTheBudgetIsForAPass(t *testing.T) {
	b := &quarantine{sources: newConfig(t, 1).Sources, s: facts.NewState()}
	b.s.Manifests["web"] = &proto.Manifest{Shards: []*proto.Shard{{Count: 100, Counted: true}}}
	for i := range b.sources {
		b.sources[i].Allowed = func(_ bool, records uint64) uint64 { return records / 33 }
	}
	b.s.Quarantined["web"] = 3
	bad := func(ordinal uint64) []facts.Fact {
		return []facts.Fact{
			{
				Record: &proto.Record{
					Fact: &proto.Record_Quarantined{
						Quarantined: &proto.Quarantined{
							Samples: []*proto.Quarantine{{Source: "web", Ordinal: ordinal}},
						},
					},
				},
			},
		}
	}
	if err := b.check(bad(99)); err == nil {
		t.Error("a fourth bad record of 100 is within a budget of 3")
	}
	if err := b.check(bad(100)); err != nil {
		t.Errorf("the second pass has the first one's budget: %v", err)
	}
}
