package link

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"millrace"
	"millrace/internal/activity"
	"millrace/internal/seam"
	"millrace/proto"
)

func TestAConditionWakesThoseWhoWait(t *testing.T) {
	c := newCondition()
	value := 0
	done := make(chan error, 1)
	go func() { done <- c.until(t.Context(), func() bool { return value == 2 }) }() // read below
	c.update(func() { value = 1 })
	c.update(func() { value = 2 })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.until(ctx, func() bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait whose context has ended returns %v", err)
	}
}

// TestTheEarliestStepIsExplained, then the next one, then the orchestrator's reason.
func TestTheEarliestStepIsExplained(t *testing.T) {
	w := &waits{clock: seam.System{}, doubt: make(chan struct{}, 1), ask: make(chan awaited, 1),
		fetches: map[*wait]struct{}{}}
	late := w.begin(7, func() awaited { return awaited{text: "source web", source: "web"} })
	early := w.begin(3, func() awaited { return awaited{text: "source books", source: "books"} })
	w.orchestratorSays(activity.Cause{Kind: activity.Plan, Role: "orchestrator", Text: "the disk is full"})
	for _, want := range []string{"step 3 waits for source books, since", "step 7 waits for source web, since"} {
		got := w.summary()
		if !strings.HasPrefix(got.Text, want) || !strings.HasSuffix(got.Text, "; the disk is full") {
			t.Errorf("the summary is %q, want %q first", got.Text, want)
		}
		if got.Kind != activity.Fetch || !strings.Contains(want, "source "+got.Source) {
			t.Errorf("the cause of %q is %+v", want, got)
		}
		w.end(early)
	}
	w.end(late)
	if got := w.summary(); got.Text != "the disk is full" || got.Kind != activity.Plan {
		t.Errorf("without fetches the summary is %+v", got)
	}
}

// TestAnOrderOfALowerTermIsRefused, and each higher term is new once.
func TestAnOrderOfALowerTermIsRefused(t *testing.T) {
	u := newUplink(nil)
	for _, x := range []struct {
		term  uint64
		isNew bool
		err   error
	}{{3, true, nil}, {3, false, nil}, {2, false, millrace.ErrFenced}, {4, true, nil}} {
		if isNew, err := u.admit(x.term); isNew != x.isNew || !errors.Is(err, x.err) {
			t.Errorf("term %d: new %v, error %v", x.term, isNew, err)
		}
	}
	if u.highestTerm() != 4 {
		t.Errorf("the highest term is %d", u.highestTerm())
	}
}

// TestAReportEndsWithItsMask: a segment is reported until it is masked, and only then hidden.
func TestAReportEndsWithItsMask(t *testing.T) {
	m := &masks{
		log: slog.New(slog.DiscardHandler), up: newUplink(nil), condition: newCondition(),
		masked: map[segment]bool{}, bad: map[segment]*proto.Bad{},
	}
	a := millrace.Assignment{Segment: millrace.Segment{Ordinal: 5, Offset: 2, Length: 9}}
	p := &millrace.Plan{Assignments: []millrace.Assignment{a}}
	found := map[int]*proto.Quarantine{0: {Id: "a.jsonl#5"}}
	m.reportBad(p, "web", found)
	if len(m.bad) != 1 || m.hides("web", &p.Assignments[0]) {
		t.Fatalf("after the report: %d reports, hidden %v", len(m.bad), m.hides("web", &p.Assignments[0]))
	}
	m.add([]*proto.Mask{{Source: "web", Ordinal: 5, Offset: 2, Length: 9}})
	m.reportBad(p, "web", found)
	if len(m.bad) != 0 || !m.hides("web", &p.Assignments[0]) || m.hides("code", &p.Assignments[0]) {
		t.Errorf("after the mask: %d reports, hidden %v", len(m.bad), m.hides("web", &p.Assignments[0]))
	}
}

// upstream takes events until the one that ends.
type upstream struct {
	proto.Orchestrator_ServeClient
	sent []*proto.SidecarEvent
	end  func()
}

func (s *upstream) Send(e *proto.SidecarEvent) error {
	if s.sent = append(s.sent, e); e.GetFatal() != nil {
		s.end()
	}
	return nil
}

// TestAStreamBeginsWithItsHello: an event without a stream is dropped, and one that a later one replaces is not queued
// behind others.
func TestAStreamBeginsWithItsHello(t *testing.T) {
	u := newUplink(nil)
	u.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Saved{Saved: &proto.Saved{Step: 9}}}) // no stream is open
	u.open(&proto.SidecarHello{})
	u.enter(4)
	for step := range uint64(3) {
		u.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Saved{Saved: &proto.Saved{Step: step}}})
		u.offer(&proto.SidecarEvent{Event: &proto.SidecarEvent_Gpus{}})
	}
	u.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Fatal{Fatal: &proto.Fatal{}}})
	ctx, cancel := context.WithCancel(t.Context())
	s := &upstream{end: cancel}
	u.drain(ctx, cancel, s)
	if len(s.sent) != 5 || s.sent[0].GetHello() == nil || s.sent[0].Fence.Attempt != 0 {
		t.Fatalf("sent %v", s.sent)
	}
	for step, e := range s.sent[1:4] {
		if e.GetSaved() == nil || e.GetSaved().Step != uint64(step) || e.Fence.Attempt != 4 {
			t.Errorf("event %d is %v", step+1, e)
		}
	}
}
