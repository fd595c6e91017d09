package orchestrator

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/checkpoint"
	"millrace/checkpoint/disk/disktest"
	"millrace/internal/wire"
	"millrace/mixing"
	"millrace/orchestrator/attempts"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/ledger"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/progress"
	"millrace/proto"
)

// scripted offers documents that fill one bin each, so a step holds as many segments as it has bins.
type scripted uint32

// Peek implements planner.Offers.
func (tokens scripted) Peek(source int, ordinal millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	return millrace.SampleMeta{Ordinal: ordinal, ID: millrace.SampleID{Record: uint64(ordinal)},
		Lengths: millrace.Lengths{
			Tokens: uint32(tokens) - uint32((uint64(ordinal)*2654435761+uint64(source))%64),
		}}, planner.Ready
}

// SeekPoint implements planner.SeekPoints for a source in blocks of a thousand documents.
func (tokens scripted) SeekPoint(_ int, at millrace.Ordinal) millrace.SeekPoint {
	return millrace.SeekPoint{Ordinal: at - at%1000, Block: uint32(at / 1000), Record: uint64(at - at%1000)}
}

// planned is a run that only plans. No role is connected, and every step is consumed a runway later.
type planned struct {
	t      testing.TB
	cfg    Config
	o      *Orchestrator
	differ *progress.Differ
	sel    *planner.Selector // nil: shares decide which source is drawn
	shares []uint32
	at     progress.State
	states map[uint64]progress.State
}

const plannedRunway = 8

func plannedConfig(t testing.TB, sources int) Config {
	milestone := mixing.Milestone{}
	cfg := Config{
		Loaders:  1,
		Stream:   millrace.Train,
		Topology: &attempts.Topology{Ranks: 1, Placing: &proto.Placing{Ranks: 1}},
		Identity: []byte(`{"seed":"1"}`),
		Runway:   plannedRunway,
		Log:      slog.New(slog.DiscardHandler),
		Rules:    facts.Rules{Changed: func([]byte) ([]string, error) { return nil, nil }},
	}
	cfg.Spec = &planner.Spec{
		SequenceLength: 4096,
		GlobalBatch:    3,
		PadMultiple:    1,
		Packing:        millrace.BestFit,
		Unit:           millrace.UnitTokens,
		LastStep:       millrace.PadLast,
	}
	for i := range sources {
		weight, err := mixing.ParseWeight(fmt.Sprint(1 + i*i%97))
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("source-%04d", i)
		milestone.Weights = append(milestone.Weights, weight)
		cfg.Spec.Sources = append(cfg.Spec.Sources, planner.SourceSpec{Name: name, OnExhausted: millrace.Repeat})
		cfg.Sources = append(cfg.Sources, Source{Name: name, Stripes: 1})
	}
	var err error
	if cfg.Spec.Schedule, err = mixing.NewSchedule(sources, []mixing.Milestone{milestone}); err != nil {
		t.Fatal(err)
	}
	cfg.Place = func(sel *planner.Selection) (*millrace.Plan, error) {
		return place.Plan(
			sel,
			millrace.Topology{Ranks: 1, TP: 1, CP: 1, PP: 1},
			place.Options{
				MicroBatch: 1,
				Layout:     millrace.Packed,
				Balance:    millrace.BalanceFSDP,
				LastStep:   millrace.PadLast,
			},
		)
	}
	return cfg
}

func newPlanned(t testing.TB, cfg Config, store *checkpoint.Store) *planned {
	p := &planned{
		t:      t,
		cfg:    cfg,
		differ: planner.NewDiffer(cfg.Spec),
		at:     progress.New(len(cfg.Sources)),
		states: map[uint64]progress.State{},
	}
	m, err := NewMachine(cfg, facts.NewState())
	if err != nil {
		t.Fatal(err)
	}
	p.o = &Orchestrator{cfg: cfg, opt: Options{Store: store, Lines: io.Discard, Snapshots: snapshotEvery}, m: m}
	made := []facts.Fact{
		{Record: &proto.Record{Fact: &proto.Record_Created{Created: &proto.Created{Identity: cfg.Identity}}}},
		{Record: &proto.Record{Fact: &proto.Record_Term{Term: &proto.TermTaken{Term: 1}}}},
	}
	for i := range cfg.Sources {
		mf := &proto.Manifest{
			Source:      cfg.Sources[i].Name,
			Format:      "jsonl",
			Shuffle:     "blocks",
			Fingerprint: make([]byte, 16),
			Shards: []*proto.Shard{
				{Name: "part-000.jsonl.zst", Path: "/data/part-000.jsonl.zst", Size: 1 << 30, Digest: make([]byte, 16)},
			},
		}
		made = append(made,
			facts.Fact{Record: &proto.Record{Fact: &proto.Record_Pinned{Pinned: &proto.Pinned{Manifest: mf}}}})
	}
	p.commit(made)
	p.states[0] = p.at
	p.commit(
		[]facts.Fact{
			{
				Record: &proto.Record{
					Fact: &proto.Record_Opened{
						Opened: &proto.Opened{
							Attempt: 1,
							State:   m.ranks.Fresh().Encode(),
							Placing: cfg.Placing,
							Up:      cfg.Up,
						},
					},
				},
				At: m.ranks.Fresh(),
			},
		},
	)
	if p.sel, err = planner.NewSelector(cfg.Spec, p.at); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *planned) runState(st progress.State) *facts.RunState {
	return facts.NewRunState(p.cfg.commonRun(p.o.m.s), 1, st, facts.Overrides{})
}

// text returns the text that a trainer would save.
func text(s *facts.RunState) string {
	if s == nil {
		return ""
	}
	return string(s.Encode())
}

func (p *planned) commit(made []facts.Fact) {
	s := p.o.m.s
	if s.Attempt != nil && p.o.since+len(made) >= snapshotEvery && s.Watermark > 0 {
		s.Base = p.runState(p.states[s.Watermark])
	}
	if err := p.o.commit(made); err != nil {
		p.t.Fatal(err)
	}
	for _, f := range made {
		s.Apply(f)
	}
}

// next plans a step and returns the facts that the machine would journal.
func (p *planned) next() []facts.Fact {
	sel := p.draw()
	plan, err := p.cfg.Place(&sel)
	if err != nil {
		p.t.Fatal(err)
	}
	plan.Stream, plan.Attempt, plan.Term = p.cfg.Stream, 1, 1
	msg := wire.PlanToProto(plan, nil)
	if msg.Delta, err = p.differ.Diff(p.at, sel.After); err != nil {
		p.t.Fatal(err)
	}
	p.at = sel.After
	p.states[msg.Step+1] = p.at
	delete(p.states, msg.Step-min(msg.Step, 2*plannedBatch+plannedRunway))
	return []facts.Fact{
		{
			Record: &proto.Record{
				Fact: &proto.Record_Sealed{
					Sealed: &proto.Sealed{Attempt: 1, Step: msg.Step, Content: msg.Content, Delta: msg.Delta},
				},
			},
			Plan: msg,
		},
		acknowledged(&proto.Acknowledged{Attempt: 1, Below: msg.Step + 1 - min(msg.Step+1, plannedRunway)}),
	}
}

// draw takes the next step from the selector. If a million steps of many sources would take too long, it takes it from
// three sources in turn.
func (p *planned) draw() planner.Selection {
	if p.sel != nil {
		sel, _, err := p.sel.Advance(scripted(4096))
		if err != nil {
			p.t.Fatal(err)
		}
		return sel
	}
	n, spec := len(p.at.Sources), p.cfg.Spec
	sel := planner.Selection{
		Step:           p.at.Step,
		NumBins:        3,
		GlobalBatch:    spec.GlobalBatch,
		SequenceLength: spec.SequenceLength,
		PadMultiple:    1,
		After:          p.at.Clone(),
		Bin:            []uint32{0, 1, 2},
	}
	after := &sel.After
	charged := int64(0)
	for k := range 3 {
		i := (3*int(p.at.Step) + k) % n
		src := &after.Sources[i]
		meta, _ := scripted(4096).Peek(i, src.Ordinal)
		sel.Segments = append(sel.Segments,
			millrace.Segment{Source: uint32(i), Ordinal: src.Ordinal, ID: meta.ID, Length: meta.Lengths.Tokens})
		src.Ordinal, src.Samples, src.Tokens = src.Ordinal+1, src.Samples+1, src.Tokens+uint64(meta.Lengths.Tokens)
		src.SeekPoint = scripted(4096).SeekPoint(i, src.Ordinal)
		src.Deficit -= int64(meta.Lengths.Tokens) * mixing.One
		charged += int64(meta.Lengths.Tokens)
	}
	for i, share := range p.shares {
		after.Sources[i].Deficit += int64(share) * charged
	}
	after.Step, after.Tokens = after.Step+1, after.Tokens+uint64(charged)
	sel.Content = millrace.Digest{byte(after.Step), byte(after.Step >> 8), byte(after.Step >> 16)}
	return sel
}

// plannedBatch is the number of steps in one commit.
const plannedBatch = 64

func (p *planned) reach(steps uint64) {
	chain := p.o.m.s.Chain
	for done := uint64(0); done < steps; {
		var batch []facts.Fact
		for range min(plannedBatch, steps-done) {
			made := p.next()
			sealed := made[0].GetSealed()
			chain = ledger.Chain(chain, 1, sealed.Content, made[0].Plan.Placement, sealed.Delta)
			sealed.Chain = chain
			batch = append(batch, made...)
			done++
		}
		p.commit(batch)
	}
}

// TestAStepIsWrittenAsADifference: with a thousand sources of which a few are drawn, a step writes at most 1 KiB and 32
// bytes for each drawn source, beside the list of its assignments.
func TestAStepIsWrittenAsADifference(t *testing.T) {
	for _, sources := range []int{1, 64, 1000} {
		store := openStore(t, disktest.NewMemory())
		p := newPlanned(t, plannedConfig(t, sources), store)
		p.reach(1) // seek points of all sources come with the first step
		largest := 0
		for range 100 {
			made := p.next()
			plan := made[0].Plan
			made[0].GetSealed().Chain = ledger.Chain(p.o.m.s.Chain, 1, plan.Content, plan.Placement, plan.Delta)
			drawn := map[uint32]bool{}
			for _, source := range plan.Assignments.Source {
				drawn[source] = true
			}
			before := stored(t, store)
			p.commit(made)
			written := stored(t, store) - before
			rest := written - pbuf.Size(plan.Assignments)
			if rest > 1<<10+32*len(drawn) || written > 2<<10 {
				t.Fatalf("%d sources, step %d: %d bytes for %d drawn, %d with the assignments", sources, plan.Step,
					rest, len(drawn), written)
			}
			largest = max(largest, written)
		}
		t.Logf("%d sources: at most %d bytes a step, assignments of 3 segments included", sources, largest)
		s, _, err := facts.Read(store, millrace.Train, p.cfg.Spec)
		if err != nil {
			t.Fatal(err)
		}
		if want := text(p.runState(p.at)); text(s.Tail()) != want {
			t.Errorf("%d sources: the state after %d steps is\n%s, not\n%s", sources, s.Next, text(s.Tail()), want)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// stored returns the bytes of all values in a store.
func stored(t *testing.T, store *checkpoint.Store) int {
	t.Helper()
	r, err := store.Verify()
	if err != nil || !r.OK() {
		t.Fatalf("verify: %v, %q", err, r.Problems)
	}
	return int(r.Bytes)
}

// BenchmarkRestart measures opening the store, restoring the state and making the selector. The run came to its step by
// planning alone, and its tail is as long as possible.
func BenchmarkRestart(b *testing.B) {
	for _, sources := range []int{1, 64, 1000} {
		for _, steps := range []uint64{1_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("sources=%d/steps=%d", sources, steps), func(b *testing.B) {
				where := checkpoint.Config{Dir: filepath.Join(b.TempDir(), "checkpoint")}
				store, err := checkpoint.Open(where)
				if err != nil {
					b.Fatal(err)
				}
				cfg := plannedConfig(b, sources)
				p, begun := newPlanned(b, cfg, store), time.Now()
				if sources > 1 && steps > 10_000 {
					p.sel, p.shares = nil, cfg.Spec.Schedule.At(0, 0).Shares(nil)
				}
				p.reach(steps)
				for p.o.since < snapshotEvery-2*plannedBatch { // the longest tail
					p.reach(plannedBatch)
				}
				b.Logf("planned %d steps in %v", p.o.m.s.Next, time.Since(begun).Round(time.Millisecond))
				if err := store.Close(); err != nil {
					b.Fatal(err)
				}
				restart(b, where, cfg)
			})
		}
	}
}

func restart(b *testing.B, where checkpoint.Config, cfg Config) {
	var opened, read time.Duration
	for b.Loop() {
		begun := time.Now()
		store, err := checkpoint.Open(where)
		if err != nil {
			b.Fatal(err)
		}
		opened += time.Since(begun)
		s, _, err := facts.Read(store, millrace.Train, cfg.Spec)
		if err != nil {
			b.Fatal(err)
		}
		read += time.Since(begun)
		m, err := NewMachine(cfg, s)
		if err != nil {
			b.Fatal(err)
		}
		if err := m.planning.resume(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := store.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(opened.Microseconds())/1000/float64(b.N), "open-ms")
	b.ReportMetric(float64(read.Microseconds())/1000/float64(b.N), "read-ms")
}
