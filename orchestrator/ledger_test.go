package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/checkpoint"
	"millrace/checkpoint/disk/disktest"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/ledger"
	"millrace/proto"
)

// held returns the steps of each ordinal by the journal's plans, in order: attempt/step by source and ordinal.
func held(w *world) map[int]map[uint64][]string {
	out := map[int]map[uint64][]string{0: {}, 1: {}}
	for _, f := range w.journal {
		if f.Plan == nil {
			continue
		}
		at := fmt.Sprint(f.Plan.Fence.Attempt, "/", f.Plan.Step)
		for i, source := range f.Plan.Assignments.Source {
			steps := out[int(source)][f.Plan.Assignments.Ordinal[i]]
			if !slices.Contains(steps, at) {
				out[int(source)][f.Plan.Assignments.Ordinal[i]] = append(steps, at)
			}
		}
	}
	return out
}

// drawnBelow returns the bound of a source's drawn ordinals that the ledger hands to an inverse.
func drawnBelow(t *testing.T, store *checkpoint.Store, source int) (bound uint64) {
	t.Helper()
	s, _, err := facts.ReadCounters(store, millrace.Train)
	if err != nil {
		t.Fatal(err)
	}
	run := ledgerRun(
		s,
		millrace.Train,
		func(_ []byte, _ *millrace.Manifest, _ millrace.SampleID, below millrace.Ordinal) ([]millrace.Ordinal, bool) {
			bound = uint64(below)
			return nil, true
		},
	)
	run.Manifests[source] = &proto.Manifest{Source: sourceNames[source], Shards: []*proto.Shard{{Name: "part"}}}
	request := &proto.LedgerRequest{Source: sourceNames[source], Id: "part#0"}
	if _, err := ledger.New(store, run).Answer(request); err != nil {
		t.Fatal(err)
	}
	return bound
}

// TestTheLedgerFindsEverySample: after any history the ledger names the steps of every ordinal in every attempt: with
// segments and masks while plans are kept, by range afterwards.
func TestTheLedgerFindsEverySample(t *testing.T) {
	for _, window := range []int{1, 3} {
		t.Run(fmt.Sprint("window ", window), func(t *testing.T) { findAll(t, window) })
	}
}

// findAll tests one history. With windows and carry, the range of a step covers ordinals of its neighbours. Without its
// plan it may hold any ordinal in the range.
func findAll(t *testing.T, window int) {
	w := newWorld(t, 2)
	w.records = 500
	if window > 1 {
		w.cfg.Spec.Window, w.cfg.Spec.Carry = window, 8
	}
	k := keep(t, w)
	k.connect()
	k.joinAll("fresh", nil)
	rng := rand.New(rand.NewPCG(3, 3))
	for range 150 {
		k.act(rng)
	}
	for _, other := range []string{"eval", "train2", "z"} { // another stream's steps are not this one's
		body := checkpoint.Plan{Key: checkpoint.StepKey{Stream: other, Attempt: 1, Step: 1}}
		if _, err := k.store.Commit(checkpoint.Commit{Plans: []checkpoint.Plan{body}}); err != nil {
			t.Fatal(err)
		}
	}
	want := held(w)
	newest := uint32(k.m.s.CurrentAttempt())
	for _, dropped := range []uint64{0, 4, 1 << 40} {
		if err := k.store.DropPlans("train", dropped); err != nil {
			t.Fatal(err)
		}
		l, err := OpenLedger(k.store, millrace.Train, nil)
		if err != nil {
			t.Fatal(err)
		}
		complete, masked := 0, 0
		for source, ordinals := range want {
			highest := slices.Max(slices.Collect(maps.Keys(ordinals)))
			if below := drawnBelow(t, k.store, source); below <= highest || window == 1 && below > highest+2 {
				t.Fatalf("source %d was drawn up to %d, the ledger says below %d", source, highest, below)
			}
			for ordinal, steps := range ordinals {
				found, err := l.FindOrdinal(source, ordinal)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, s := range found {
					got = append(got, fmt.Sprint(s.Attempt, "/", s.Step))
					if s.Complete != (s.Step >= dropped) ||
						s.Acknowledged != (s.Attempt < newest && s.Step < k.m.s.Consumed[s.Attempt] ||
							s.Attempt == newest && s.Step < k.m.s.Watermark) {
						t.Fatalf("%d/%d: complete %v, acknowledged %v", s.Attempt, s.Step, s.Complete, s.Acknowledged)
					}
					for i := range s.Segments.Source {
						complete++
						if s.Sources[i] != sourceNames[source] || s.Segments.Ordinal[i] != ordinal ||
							s.Masked[i] != k.m.s.IsMasked(s.Sources[i], ordinal, s.Segments.Offset[i]) {
							t.Fatalf("%d/%d holds %v", s.Attempt, s.Step, s)
						}
						if s.Masked[i] {
							masked++
						}
					}
				}
				if window > 1 && dropped > 0 {
					got = slices.DeleteFunc(got, func(at string) bool { return !slices.Contains(steps, at) })
				}
				if !slices.Equal(got, steps) {
					t.Fatalf("plans below %d are gone: ordinal %d of source %d was in %v, the ledger says %v", dropped,
						ordinal, source, steps, got)
				}
			}
		}
		if complete == 0 != (dropped > 1000) || dropped == 0 && masked == 0 {
			t.Errorf("plans below %d are gone: %d segments, %d of them masked", dropped, complete, masked)
		}
		for attempt, steps := range k.contents() {
			for step, contents := range steps {
				found, err := l.FindStep(step)
				at := slices.IndexFunc(found, func(s ledger.Step) bool { return s.Attempt == attempt })
				if err != nil || at < 0 || fmt.Sprintf("%x %x", found[at].Content, found[at].Placement) != contents ||
					len(found[at].Ranges) == 0 {
					t.Fatalf("step %d of attempt %d: %v, %v", step, attempt, found, err)
				}
			}
		}
		if found, err := l.FindOrdinal(0, 1<<50); err != nil || len(found) > 0 {
			t.Errorf("an ordinal that was never drawn is found: %v, %v", found, err)
		}
	}
}

// TestLedgerSaysThatASampleWasQuarantined: the answer names the place and the reason.
func TestLedgerSaysThatASampleWasQuarantined(t *testing.T) {
	w := newWorld(t, 1)
	w.reject = func(_ string, o uint64) string {
		if o%40 == 7 {
			return "the line is no JSON"
		}
		return ""
	}
	k := keep(t, w)
	k.connect()
	k.joinAll("fresh", nil)
	k.consume(20)
	if len(w.m.s.Recent) == 0 {
		t.Fatal("nothing was quarantined")
	}
	l, err := OpenLedger(k.store, millrace.Train, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range w.m.s.Recent {
		found, err := l.Answer(&proto.LedgerRequest{Source: q.Source, Id: q.Id})
		if !errors.Is(err, millrace.ErrBadSample) || !strings.Contains(err.Error(), q.Reason) ||
			!strings.Contains(err.Error(), fmt.Sprint("byte ", q.Offset)) {
			t.Errorf("%s %s: %v, %v", q.Source, q.Id, found, err)
		}
	}
}

func TestLedgerAnswersBesideTheLoop(t *testing.T) {
	l := live(t, newConfig(t, 1), disktest.NewMemory())
	l.load(0)
	h := l.serve("fresh", 1, 6, quiet)
	h.reach(t, 1, 6)
	ask := func(r *proto.LedgerRequest) (out []*proto.LedgerReply, err error) {
		stream, err := proto.NewOrchestratorClient(l.conn).Ledger(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		for {
			reply, err := stream.Recv()
			if err == io.EOF {
				return out, nil
			}
			if err != nil {
				return out, err
			}
			out = append(out, reply)
		}
	}
	steps, err := ask(&proto.LedgerRequest{ByStep: true, Step: 2})
	if err != nil || len(steps) != 1 || !steps[0].Complete || len(steps[0].Ids) == 0 {
		t.Fatalf("step 2: %v, %v", steps, err)
	}
	found, err := ask(&proto.LedgerRequest{Source: steps[0].Sources[0], Id: steps[0].Ids[0]})
	if err != nil ||
		!slices.ContainsFunc(found,
			func(s *proto.LedgerReply) bool { return s.Step == 2 && s.Ids[0] == steps[0].Ids[0] }) {
		t.Errorf("sample %s of step 2: %v, %v", steps[0].Ids[0], found, err)
	}
	if found, err := ask(&proto.LedgerRequest{Source: "web", Id: "nowhere#1"}); err != nil || len(found) > 0 {
		t.Errorf("a sample that is not there: %v, %v", found, err)
	}
	if _, err := ask(&proto.LedgerRequest{Source: "nothing"}); err == nil {
		t.Error("an unknown source is taken")
	}
}
