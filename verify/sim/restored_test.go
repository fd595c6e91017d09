package sim

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"millrace"
	"millrace/constructors"
	"millrace/internal/bucket"
	"millrace/internal/wire"
	"millrace/orchestrator"
	"millrace/orchestrator/attempts"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/place"
	"millrace/proto"
	"millrace/sources"
)

// placing holds the settings that may differ between a run and its continuation.
type placing struct {
	ranks, micro int
	loaders      int // stripes of a source
	runway       int // steps planned ahead of the consumed ones; 1 is no prefetch
}

// planned is one planned step. Equal steps are equal in all fields.
type planned struct {
	content string // content digest
	state   string // after the step, without its attempt
	bytes   string // of all tensors of all ranks
	place   string // placement digest
	micro   uint32 // microbatches of a rank
}

// history is the steps of a run from its start on, and its end.
type history struct {
	from    uint64
	steps   []planned
	ended   string
	refusal string
	begun   *proto.Begin
}

// run plays the real orchestrator and the real constructor in one goroutine. Its loaders read streams and its ranks
// take every step.
type run struct {
	t       *testing.T
	x       *setting
	p       placing
	m       *orchestrator.Machine
	loaders []*reader
	out     history
	shapes  *constructors.Set

	topology millrace.Topology
}

// reader plays a loader for the orchestrator.
type reader struct {
	name  string
	reads map[string]*read
	wants map[string]uint64
}

func (*reader) Send(any) {}

type silentSession struct{}

func (*silentSession) Send(any) {}

// shapesOf lists the shapes of microbatches that the steps of a run may have.
func shapesOf(spec *planner.Spec, options place.Options) (shapes []millrace.Shape) {
	first := planner.Stage{SequenceLength: spec.SequenceLength, Packing: spec.Packing}
	for _, s := range append([]planner.Stage{first}, spec.Stages...) {
		own := options
		own.MicroBatch = cmp.Or(s.MicroBatch, options.MicroBatch)
		shapes = append(shapes, own.Shape(s.SequenceLength, millrace.Int32))
		if s.Packing != millrace.Bucketed {
			continue
		}
		micro := own.MicroBatch
		for _, b := range bucket.Shapes(spec.BucketRows, s.SequenceLength/spec.PadMultiple) {
			for own.MicroBatch = micro; own.MicroBatch <= micro*b.Times; own.MicroBatch += micro {
				shapes = append(shapes, own.Shape(b.Length*spec.PadMultiple, millrace.Int32))
			}
		}
	}
	return shapes
}

// resume runs a setting from a state, or fresh, for a number of steps or to its end (0).
func (x *setting) resume(t *testing.T, p placing, state []byte, steps int) *history {
	t.Helper()
	options := x.options
	options.MicroBatch = uint32(p.micro)
	topology := x.topology(p.ranks)
	cfg := orchestrator.Config{
		Loaders: p.loaders,
		Stream:  millrace.Train,
		Spec:    x.spec,
		Topology: &attempts.Topology{
			Ranks:   topology.Ranks,
			Placing: &proto.Placing{Ranks: uint32(topology.Ranks), MicroBatch: uint32(p.micro)},
			Place:   func(sel *planner.Selection) (*millrace.Plan, error) { return place.Plan(sel, topology, options) },
		},
		Identity: []byte(`{}`),
		Runway:   p.runway,
		By:       "sim",
		Up:       "1",
		Log:      slog.New(slog.DiscardHandler),
		Compare:  sources.Compare,
		Rules:    facts.Rules{Changed: func([]byte) ([]string, error) { return nil, nil }},
	}
	shapes := shapesOf(x.spec, options)
	for i := range shapes {
		shapes[i].CP, shapes[i].Local = uint32(topology.CP), options.Local > 0 && topology.CP > 1
	}
	r := &run{t: t, x: x, p: p, topology: topology, shapes: constructors.NewSet(shapes, x.spec.PadMultiple)}
	for i := range p.loaders {
		r.loaders = append(r.loaders,
			&reader{name: fmt.Sprintf("loader-%d", i), reads: map[string]*read{}, wants: map[string]uint64{}})
	}
	for _, s := range x.spec.Sources {
		source := orchestrator.Source{Name: s.Name, Stripes: p.loaders,
			Allowed: func(bool, uint64) uint64 { return 1 << 30 }}
		cfg.Sources = append(cfg.Sources, source)
	}
	m, err := orchestrator.NewMachine(cfg, facts.NewState())
	if err != nil {
		t.Fatal(err)
	}
	r.m = m
	r.start(state)
	for r.turn(steps) {
	}
	if err := m.Failed(); err != nil {
		t.Fatalf("%s: %v", x.name, err)
	}
	return &r.out
}

// topology returns the arrangement of ranks for a number of data-parallel ranks.
func (x *setting) topology(dp int) millrace.Topology {
	t := millrace.Topology{TP: max(x.axes.TP, 1), CP: max(x.axes.CP, 1), PP: max(x.axes.PP, 1)}
	t.Ranks = dp * t.TP * t.CP * t.PP
	return t
}

func (r *run) start(state []byte) {
	for _, l := range r.loaders {
		if err := r.m.LoaderUp(l, &proto.LoaderHello{Version: version(), Name: l.name}); err != nil {
			r.t.Fatal(err)
		}
	}
	r.m.SidecarUp(&silentSession{}, &proto.SidecarHello{Version: version(), Name: "sidecar-0"})
	start := "fresh"
	if state != nil {
		start = "state"
	}
	for rank := range r.topology.Ranks {
		r.m.Joined(&silentSession{}, &proto.Join{Rank: uint32(rank), Start: start, State: state, Call: uint64(rank)})
	}
}

// turn lets the machine decide once. It returns false at the end of the run or of the steps.
func (r *run) turn(steps int) bool {
	d := r.m.Decide()
	if d.Failed != nil {
		r.t.Fatalf("%s: %v", r.x.name, d.Failed)
	}
	r.m.Apply(d)
	acted := r.perform()
	if steps > 0 && len(r.out.steps) >= steps || r.out.refusal != "" || r.m.Done() {
		return false
	}
	if d.IsEmpty() && !acted {
		r.t.Fatalf("%s: the run stands still at step %d: %s", r.x.name, r.out.from+uint64(len(r.out.steps)),
			r.m.Waiting().Text)
	}
	return true
}

func (r *run) perform() bool {
	actions := r.m.Actions()
	for _, a := range actions {
		switch msg := a.Msg.(type) {
		case *proto.LoaderOrder:
			r.load(a.To.(*reader), msg)
		case *proto.SidecarOrder:
			r.serve(msg)
		}
	}
	return len(actions) > 0
}

func (r *run) load(l *reader, order *proto.LoaderOrder) {
	switch o := order.Order.(type) {
	case *proto.LoaderOrder_Open:
		manifest := &proto.LoaderEvent_Manifest{Manifest: r.x.streams[o.Open.Source].manifest}
		r.m.LoaderEvent(l, l.name, &proto.LoaderEvent{Event: manifest})
	case *proto.LoaderOrder_Read:
		rd := &read{stream: r.x.streams[o.Read.Source], order: o.Read, next: o.Read.Ordinal}
		if err := rd.check(); err != nil {
			r.t.Errorf("%s: %v", r.x.name, err)
		}
		l.reads[o.Read.Source] = rd
	case *proto.LoaderOrder_Reading:
		offered := &proto.Offered{}
		for i, until := range o.Reading.Until {
			if rd := l.reads[o.Reading.Source[i]]; until > 0 {
				offers := rd.offer(until)
				offers.Term = rd.order.Term
				offered.Stripes = append(offered.Stripes, offers)
			}
		}
		r.m.LoaderEvent(l, l.name, &proto.LoaderEvent{Event: &proto.LoaderEvent_Offered{Offered: offered}})
	}
}

func (r *run) serve(order *proto.SidecarOrder) {
	switch o := order.Order.(type) {
	case *proto.SidecarOrder_Begin:
		r.out.begun, r.out.from = o.Begin, o.Begin.Step
	case *proto.SidecarOrder_Refusal:
		r.out.refusal = o.Refusal.Reason
	case *proto.SidecarOrder_Plan:
		r.take(o.Plan)
	case *proto.SidecarOrder_Ended:
		r.out.ended = fmt.Sprintf("after %d: %s", o.Ended.Steps, o.Ended.Reason)
	}
}

// take builds a step's tensors and commits the step on every rank.
func (r *run) take(msg *proto.Plan) {
	p, err := wire.PlanFromProto(msg)
	if err != nil {
		r.t.Fatal(err)
	}
	collator, err := r.shapes.Of(p)
	if err != nil {
		r.t.Fatal(err)
	}
	h := sha256.New()
	for rank := range millrace.Rank(r.topology.Ranks) {
		at := r.topology.Coordinates(rank)
		collator := collator.For(uint32(at.CP))
		for micro := range p.Microbatches {
			part := p.Part(millrace.Rank(at.DP), micro)
			tensors, size := collator.Layout(part)
			frame := make([]byte, size)
			if err := collator.Build(frame, tensors, part, constructors.AllWide(r.x.tokens(part)), nil); err != nil {
				r.t.Fatalf("%s: %v", r.x.name, err)
			}
			h.Write(frame)
		}
		r.m.Committed(&silentSession{}, &proto.Commit{Rank: uint32(rank), Attempt: msg.Fence.Attempt, Step: msg.Step})
	}
	r.out.steps = append(
		r.out.steps,
		planned{
			content: p.Content.String(),
			state:   bare(r.t, msg.State),
			bytes:   fmt.Sprintf("%x", h.Sum(nil)[:8]),
			place:   p.Placement.String(),
			micro:   p.Microbatches,
		},
	)
}

// tokens returns the tokens of segments. A token depends only on its document and its position there.
func (x *setting) tokens(part []millrace.Assignment) [][]uint32 {
	out := make([][]uint32, len(part))
	for i, a := range part {
		n := a.Length
		if a.More {
			n++
		}
		for k := range n {
			out[i] = append(out[i], uint32(a.Source)<<28^uint32(a.ID.Shard)<<20^uint32(a.ID.Record)<<10^(a.Offset+k))
		}
	}
	return out
}

// bare returns a run state without its attempt, which counts the starts of the run.
func bare(t *testing.T, state []byte) string {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(state, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "attempt")
	out, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// given returns a bare state as a trainer's saved state; inside a step if it names a placement.
func given(state string, micro uint32, placement string) []byte {
	out := bytes.TrimSuffix([]byte(state), []byte("}"))
	if placement != "" {
		out = fmt.Appendf(out, `,"microbatch":%d,"placement":"%s"`, micro, placement)
	}
	return append(out, `,"attempt":1}`...)
}

// first describes the first difference of two runs.
func first(got, want []planned, from uint64) string {
	for i := range got {
		var names []string
		for name, differs := range map[string]bool{
			"content": got[i].content != want[i].content,
			"state":   got[i].state != want[i].state,
			"bytes":   got[i].bytes != want[i].bytes,
		} {
			if differs {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			return fmt.Sprintf("step %d differs in %s", from+uint64(i), strings.Join(names, ", "))
		}
	}
	return ""
}
