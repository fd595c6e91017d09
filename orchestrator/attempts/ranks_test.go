package attempts

import (
	"strings"
	"testing"

	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/roster"
	pb "millrace/proto"
)

// host is a Session that remembers its orders.
type host struct{ got []*pb.SidecarOrder }

func (h *host) Send(msg any) { h.got = append(h.got, msg.(*pb.SidecarOrder)) }

// world has two ranks on one host, and carries out their decisions.
type world struct {
	t       *testing.T
	s       *facts.State
	out     *roster.Actions
	ranks   *Ranks
	host    *host
	records int // attempts that were opened
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, s: facts.NewState(), out: &roster.Actions{}, host: &host{}}
	spec := &planner.Spec{Sources: []planner.SourceSpec{{Name: "web"}}}
	fence := func() *pb.Fence { return &pb.Fence{} }
	cfg := Config{
		Topology: &Topology{Ranks: 2},
		Up:       "1",
		Run:      func() *facts.Run { return facts.NewRun(spec, []byte("{}"), []facts.SourceFiles{{Name: "web"}}) },
	}
	w.ranks = New(cfg, w.s, roster.NewSidecars(w.out, fence))
	return w
}

// settle decides until nothing is left, and returns the orders for the host.
func (w *world) settle() (got []*pb.SidecarOrder) {
	for d := w.ranks.Decide(facts.Overrides{}); !d.IsEmpty(); d = w.ranks.Decide(facts.Overrides{}) {
		if d.Opened == nil {
			w.ranks.Settle(d)
			continue
		}
		w.records++
		w.s.Apply(facts.Fact{Record: &pb.Record{Fact: &pb.Record_Opened{Opened: d.Opened}}, At: d.At})
		w.ranks.Open()
	}
	for _, a := range w.out.Take() {
		a.To.Send(a.Msg)
	}
	got, w.host.got = w.host.got, nil
	return got
}

func (w *world) join(rank uint32, start string) {
	w.ranks.Join(w.host, &pb.Join{Rank: rank, Start: start})
}

func TestAnAttemptOpensWhenAllRanksHaveJoined(t *testing.T) {
	w := newWorld(t)
	w.join(0, "fresh")
	if got := w.settle(); len(got) > 0 || w.records > 0 {
		t.Fatalf("one rank of two joined: %v", got)
	}
	if text := w.ranks.Waiting(); !strings.Contains(text, "rank 1") {
		t.Errorf("it waits for %q", text)
	}
	w.join(1, "")
	got := w.settle()
	if w.records != 1 || len(got) != 2 || got[0].GetBegin().GetAttempt() != 1 || got[1].GetBegin().GetRank() != 1 {
		t.Fatalf("both joined: %d attempts, %v", w.records, got)
	}
	if text := w.ranks.Waiting(); text != "" {
		t.Errorf("it waits for %q", text)
	}
}

func TestAWrongStartIsRefused(t *testing.T) {
	w := newWorld(t)
	w.join(0, "nowhere")
	w.join(7, "fresh")
	got := w.settle()
	if len(got) != 2 || !strings.Contains(got[0].GetRefusal().GetReason(), "2 ranks") ||
		!strings.Contains(got[1].GetRefusal().GetReason(), "nowhere") {
		t.Fatalf("got %v", got)
	}
}

func TestTheSlowestRankMovesTheWatermark(t *testing.T) {
	w := newWorld(t)
	w.join(0, "fresh")
	w.join(1, "fresh")
	w.settle()
	w.s.Next = 3
	w.ranks.Commit(w.host, &pb.Commit{Rank: 0, Attempt: 1, Step: 0})
	w.ranks.Commit(w.host, &pb.Commit{Rank: 0, Attempt: 1, Step: 1})
	if a := w.ranks.Acknowledged(); a != nil {
		t.Fatalf("rank 1 has consumed nothing: %v", a)
	}
	w.ranks.Commit(w.host, &pb.Commit{Rank: 1, Attempt: 1, Step: 0})
	if a := w.ranks.Acknowledged(); a.GetBelow() != 1 {
		t.Fatalf("both have consumed step 0: %v", a)
	}
}

func TestTheLastCommitIsAnsweredWhenItIsDurable(t *testing.T) {
	w := newWorld(t)
	w.join(0, "fresh")
	w.join(1, "fresh")
	w.settle()
	w.s.Next, w.s.Ended = 1, &pb.Ended{Steps: 1}
	for rank := range uint32(2) {
		w.ranks.Commit(w.host, &pb.Commit{Rank: rank, Attempt: 1, Step: 0})
	}
	if got := w.settle(); len(got) > 0 {
		t.Fatalf("answered before the record: %v", got)
	}
	a := w.ranks.Acknowledged()
	w.s.Watermark, w.s.Through = a.Below, map[uint32]bool{0: true, 1: true}
	w.ranks.Acknowledge(a)
	if got := w.settle(); len(got) != 2 || !w.ranks.AreDone() {
		t.Fatalf("answers %v, done %v", got, w.ranks.AreDone())
	}
}
