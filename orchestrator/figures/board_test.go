package figures

import (
	"math"
	"strings"
	"testing"
	"time"

	pb "millrace/proto"
)

// TestStarvingBeginsAboveAShareAndEndsBelowAnother, and its text stays while it lasts.
func TestStarvingBeginsAboveAShareAndEndsBelowAnother(t *testing.T) {
	b := New()
	now, waited := time.Unix(1000, 0), 0.0
	run := func(seconds int, share float64) {
		for range seconds {
			now = now.Add(time.Second)
			waited += share
			b.Tick(now)
			b.Observe(&pb.Figures{Role: "sidecar-0", Pid: 7,
				Ranks: []*pb.RankFigures{{Rank: 2, Waited: waited, Connected: 1}}})
		}
		b.Tick(now)
	}
	run(20, 0.5)
	if b.Starving() != "" {
		t.Error("an alert before half a minute has passed")
	}
	run(40, 0.5)
	text := b.Starving()
	if !strings.Contains(text, "rank 2") {
		t.Fatalf("the alert is %q", text)
	}
	if d := b.Delivery(); math.Abs(d.Waited-0.5) > 0.05 {
		t.Errorf("the share of waiting is %v, want 0.5", d.Waited)
	}
	run(60, 0.07)
	if b.Starving() != text {
		t.Errorf("between the limits it is %q, want %q", b.Starving(), text)
	}
	run(70, 0.01)
	if b.Starving() != "" {
		t.Errorf("it is not over: %q", b.Starving())
	}
}

// TestTheSlowestActivityIsThatOfALongWait, for some time. Before and after, it is the one that takes the most time.
func TestTheSlowestActivityIsThatOfALongWait(t *testing.T) {
	b := New()
	now := time.Unix(1000, 0)
	seconds := []float64{1, 9}
	observe := func(ranks ...*pb.RankFigures) {
		b.Tick(now)
		b.Observe(&pb.Figures{Role: "loader-0", Pid: 5, Sources: []*pb.SourceFigures{
			{Source: "web", Kind: []string{"read", "tokenise"}, Seconds: seconds}}})
		b.Observe(&pb.Figures{Role: "sidecar-0", Pid: 7, Ranks: ranks,
			Sources: []*pb.SourceFigures{{Kind: []string{"frames"}, Seconds: []float64{100}}}})
	}
	is := func(kind, source string) {
		t.Helper()
		if s := b.Delivery().Slowest; s.GetKind() != kind || s.GetSource() != source {
			t.Errorf("the slowest is %v, want %s of %s", s, kind, source)
		}
	}
	observe()
	is("tokenise", "web")
	observe(&pb.RankFigures{WaitingFor: 2, Waiting: &pb.Activity{Kind: "read", Source: "code"}})
	is("read", "code")
	now, seconds = now.Add(time.Minute), []float64{30, 10}
	observe()
	is("read", "web")
}

// TestImbalanceOfASealedStepAndOfReports is that of the most expensive rank.
func TestImbalanceOfASealedStepAndOfReports(t *testing.T) {
	b := New()
	b.Sealed(&pb.Plan{Ranks: 2, Microbatches: 1, MicroBatch: 1, SequenceLength: 40, Assignments: &pb.Assignments{
		Rank: []uint32{0, 1}, Length: []uint32{30, 10}}}, 1, 0)
	b.Reported(&pb.Reported{Rank: 0, Step: 3, Seconds: []float64{1, 2}})
	b.Reported(&pb.Reported{Rank: 1, Step: 3, Seconds: []float64{1}})
	if d := b.Delivery(); d.Fill != 0.5 || d.Predicted != 1.5 || d.Reported != 1.5 {
		t.Errorf("fill %v, predicted %v, reported %v", d.Fill, d.Predicted, d.Reported)
	}
}

// TestWorkIsOfLoadersThatRead: their counters add up over processes that come and go. Ranks' waits count if a loader
// causes them.
func TestWorkIsOfLoadersThatRead(t *testing.T) {
	b := New()
	now := time.Unix(1000, 0)
	loader := func(name string, pid int64, lanes uint32, read, tokenise float64, tokens int64) {
		now = now.Add(time.Second)
		b.Tick(now)
		wall := now.Sub(time.Unix(0, 0)) // long enough
		b.Observe(&pb.Figures{Role: name, Pid: pid, Wall: int64(wall), Lanes: lanes, Sources: []*pb.SourceFigures{
			{Source: "web", Kind: []string{"read", "fetch", "tokenise"}, Seconds: []float64{read, 100, tokenise},
				Tokens: tokens, Documents: tokens / 5}}})
	}
	loader("loader-0", 1, 2, 1, 2, 10)
	loader("loader-1", 2, 4, 1, 0, 5)
	loader("loader-0", 1, 2, 2, 2, 20)
	loader("loader-0", 3, 2, 0.5, 0, 1) // it was restarted
	loader("shadow-0", 4, 0, 9, 9, 90)
	rank := func(waited float64, cause *pb.Activity) {
		b.Observe(&pb.Figures{Role: "sidecar-0", Pid: 7, Ranks: []*pb.RankFigures{{Rank: 1, Waited: waited,
			Waiting: cause}}})
	}
	rank(3, &pb.Activity{Kind: "read", Source: "web"}) // before this board
	rank(4, &pb.Activity{Kind: "decode", Source: "code"})
	rank(5, &pb.Activity{Kind: "ranks"})
	rank(6, &pb.Activity{Kind: "build"})
	rank(6.5, nil) // reading takes the most time
	w := b.Work([]string{"code", "web"})
	if w.Busy[0] != 0 || w.Busy[1] != 5.5 || w.Made[1] != 26 || w.Docs[1] != 5 || w.Lanes != 3 {
		t.Errorf("the work is %+v", w)
	}
	if w.Waited != 1.5 || w.Blamed != "web" {
		t.Errorf("the waits are %v, for %q", w.Waited, w.Blamed)
	}
	now = now.Add(time.Minute)
	b.Tick(now)
	if w := b.Work(nil); w.Lanes != 0 {
		t.Errorf("silent loaders have %v lanes", w.Lanes)
	}
}

// TestALoaderIsNeverBusierThanItsLanes, although it reads single documents beside them.
func TestALoaderIsNeverBusierThanItsLanes(t *testing.T) {
	b := New()
	for i := range 3 {
		at := float64(10 * i)
		b.Observe(&pb.Figures{Role: "loader-0", Pid: 1, Lanes: 2, Wall: int64(at * 1e9), Sources: []*pb.SourceFigures{
			{Source: "web", Kind: []string{"tokenise"}, Seconds: []float64{6 * at}, Tokens: int64(at)},
			{Source: "code", Kind: []string{"read"}, Seconds: []float64{2 * at}}}})
	}
	if w := b.Work([]string{"web", "code"}); w.Busy[0] != 30 || w.Busy[1] != 10 || w.Made[0] != 20 {
		t.Errorf("two lanes did the work %+v in 20 seconds", w)
	}
}
