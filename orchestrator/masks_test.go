package orchestrator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/proto"
)

// masks returns the masks that the sidecar was sent, by Welcome and after.
func masks(b *box) (out []string) {
	for _, msg := range b.got {
		o := msg.(*proto.SidecarOrder)
		for _, m := range append(o.GetWelcome().GetMasks(), o.GetMasked().GetMasks()...) {
			out = append(out, fmt.Sprintf("%s %d+%d of %d", m.Source, m.Offset, m.Length, m.Tokens))
		}
	}
	return out
}

// TestAReplayAfterDamagePlansTheSame: documents of sealed plans go bad on disk, one of several segments among them.
// Every later reading rejects them, and every plan stays the same.
func TestAReplayAfterDamagePlansTheSame(t *testing.T) {
	w := newWorld(t, 2)
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(5)
	p := w.m.s.Sealed[5].Plan
	var bad []*proto.Bad
	damaged := map[uint64]bool{}
	for i, o := range p.Assignments.Ordinal {
		if p.Assignments.Source[i] == 1 && (p.Assignments.Offset[i] > 0 || len(bad) == 0) && len(damaged) < 2 {
			damaged[o] = true
			bad = append(
				bad,
				&proto.Bad{
					Step:    5,
					Source:  1,
					Ordinal: o,
					Offset:  p.Assignments.Offset[i],
					Length:  p.Assignments.Length[i],
					Sample: &proto.Quarantine{
						Id:     fmt.Sprintf("a.jsonl#%d", o),
						Offset: int64(o),
						Reason: "the page is damaged",
					},
				},
			)
		}
	}
	if len(damaged) != 2 {
		t.Fatal("the plan has too few documents")
	}
	w.reject = func(source string, o uint64) string {
		if source == "web" && damaged[o] {
			return "the page is damaged"
		}
		return ""
	}
	for range 2 { // reported twice, masked once
		for _, b := range bad {
			w.m.masks.observe(b)
		}
		w.turn()
	}
	w.m.masks.observe(&proto.Bad{Step: 5, Source: 1, Ordinal: 999_999}) // of no plan
	w.m.masks.observe(&proto.Bad{Step: 500, Source: 1, Ordinal: bad[0].Ordinal})
	w.turn()
	told := masks(w.sidecar)
	if len(told) != len(bad) || len(w.m.s.Masks) != len(bad) || w.m.s.Quarantined["web"] != 2 {
		t.Fatalf("told %v, %d masks, quarantined %v", told, len(w.m.s.Masks), w.m.s.Quarantined)
	}
	if st := w.m.Status(); st.Masked != uint64(len(bad)) || st.Quarantined != 2 || len(st.Recent) != 2 ||
		!slices.ContainsFunc(w.lines, func(l string) bool { return strings.HasPrefix(l, "quarantined web a.jsonl#") }) {
		t.Errorf("status %v, lines %v", st, w.lines)
	}
	w.consume(7)
	before := w.contents()[1]
	for _, isNew := range []bool{false, true} { // the orchestrator
		if isNew {
			w.restart()
		}
		w.connect()
		if again := masks(w.sidecar); !slices.Equal(again, told) {
			t.Errorf("a new orchestrator: %v: a sidecar that came later was told %v, not %v", isNew, again, told)
		}
	}
	w.joinAll("fresh", nil)
	w.consume(9)
	for step, digest := range w.contents()[2] {
		if was := before[step]; was != "" && digest != was {
			t.Errorf("step %d was %s and is %s", step, was, digest)
		}
	}
	if n := len(w.contents()[2]); n < 9 {
		t.Errorf("only %d steps were planned again", n)
	}
}

// TestAnAttemptPlansTheStepsOfTheLast: between two attempts, a document of the first one's steps goes bad before any
// rank asks for it, and a document that was quarantined can be read. The steps of the first attempt hold the same
// again, under the same orchestrator and under another.
func TestAnAttemptPlansTheStepsOfTheLast(t *testing.T) {
	for _, packing := range []millrace.Packing{millrace.BestFit, millrace.Concat} {
		for _, window := range []int{1, 3} {
			for _, restarts := range []bool{false, true} {
				t.Run(fmt.Sprint(packing, " window ", window, " restarts ", restarts), func(t *testing.T) {
					againInTheNext(t, packing, window, restarts)
				})
			}
		}
	}
}

func againInTheNext(t *testing.T, packing millrace.Packing, window int, restarts bool) {
	w := newWorld(t, 1)
	w.cfg.Spec.Window, w.cfg.Spec.Packing = window, packing
	w.restart()
	broken := map[uint64]bool{5: true, 31: true}
	w.reject = func(source string, o uint64) string {
		if source == "web" && broken[o] {
			return "it is broken"
		}
		return ""
	}
	w.connect()
	w.joinAll("fresh", nil)
	w.consume(9)
	before := w.contents()[1]
	as := w.m.s.Sealed[9].Plan.Assignments
	for i, o := range as.Ordinal {
		if as.Source[i] == 1 && as.Offset[i] == 0 && !broken[o] && len(broken) < 4 {
			broken[o] = true
		}
	}
	delete(broken, 5)
	if len(broken) != 3 || w.m.s.Quarantined["web"] != 2 {
		t.Fatalf("broken are %v, %v are quarantined", broken, w.m.s.Quarantined)
	}
	if restarts {
		w.restart()
		w.connect()
	}
	w.joinAll("fresh", nil)
	w.consume(9)
	after := w.contents()[2]
	for step, digest := range before {
		if after[step] != digest {
			t.Errorf("step %d was %s, and is %s", step, digest, after[step])
		}
	}
	if err := w.m.Failed(); err != nil || len(after) < 9 || w.m.s.Quarantined["web"] != 2 {
		t.Errorf("%d steps, %v are quarantined: %v", len(after), w.m.s.Quarantined, err)
	}
}

// TestAWindowIsDrawnAgainWithItsLengths: documents of its sealed steps go bad, and the orchestrator is lost before any
// record says so.
func TestAWindowIsDrawnAgainWithItsLengths(t *testing.T) {
	for _, packing := range []millrace.Packing{millrace.BestFit, millrace.Concat} {
		w := newWorld(t, 1)
		w.cfg.Spec.Window, w.cfg.Spec.Packing = 4, packing
		w.restart()
		w.connect()
		w.joinAll("fresh", nil)
		journal, m := w.journal, w.m // without damage
		w.consume(8)
		want := w.contents()[1]
		w.journal, w.m = slices.Clone(journal), m
		w.restart()
		damaged := map[uint64]bool{}
		as := w.m.s.Sealed[2].Plan.Assignments
		for i, o := range as.Ordinal {
			if as.Source[i] == 1 && as.Offset[i] == 0 && !as.More[i] && len(damaged) < 2 {
				damaged[o] = true
			}
		}
		if len(damaged) == 0 || w.m.s.Next != 3 {
			t.Fatalf("%d documents are damaged, step %d is next", len(damaged), w.m.s.Next)
		}
		w.reject = func(source string, o uint64) string {
			if source == "web" && damaged[o] {
				return "the page is damaged"
			}
			return ""
		}
		w.connect()
		w.reconnect(&proto.RankPosition{Attempt: 1, Serving: true})
		w.turn()
		w.consume(8)
		for step, digest := range want {
			if got := w.contents()[1][step]; got != digest {
				t.Errorf("%s: step %d held %s, and holds %s", packing, step, digest, got)
			}
		}
	}
}

func TestMasksCountAgainstTheBudget(t *testing.T) {
	w := newWorld(t, 1)
	w.connect()
	w.joinAll("fresh", nil)
	as := w.m.s.Sealed[0].Plan.Assignments
	for i, o := range as.Ordinal {
		if as.Source[i] == 1 && as.Offset[i] == 0 {
			w.m.masks.observe(&proto.Bad{Step: 0, Source: 1, Ordinal: o})
		}
	}
	w.turn()
	if err := w.m.Failed(); !errors.Is(err, millrace.ErrBadSample) ||
		!strings.Contains(err.Error(), "its quarantine budget takes 3") {
		t.Fatalf("got %v", err)
	}
	if len(w.m.s.Masks) != 0 {
		t.Error("masks beyond the budget were journaled")
	}
}
