package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace"
	"millrace/proto"
	"millrace/sidecar"
)

// pair is a directory entry of web's one stripe with a standby.
func pair(term uint64, address string, standby uint64, other string) *proto.LoaderStripe {
	s := stripe("web", 0, 1, term, address)
	s.Beat = address + ".beat"
	if other != "" {
		s.Standby = &proto.Standby{Term: standby, Address: other, Name: other, Beat: other + ".beat"}
	}
	return s
}

// duo is source web with a primary l1 of term 4 and a standby l2 of term 5, and a plan of 40 documents.
func duo(t *testing.T) (w *world, x *session, first, second *store, p *millrace.Plan) {
	w, x = newWorld(t, 1)
	x.welcome("web")
	first, second = newStore(w, "l1", 0, 4), newStore(w, "l2", 0, 5)
	x.directory(pair(4, "l1", 5, "l2"))
	eventually(t, func() bool { return w.link.dir.served("web") == 1 })
	return w, x, first, second, webPlan(t, 0)
}

func webPlan(t *testing.T, step uint64) *millrace.Plan {
	p := wide(t)
	p.Step = millrace.Step(step)
	for i := range p.Assignments {
		p.Assignments[i].Source = 0
	}
	return p
}

type fetched struct {
	payload sidecar.Payload
	err     error
}

func (w *world) fetching(p *millrace.Plan) chan fetched {
	got := make(chan fetched, 1)
	go func() { // ends with the fetch, which every test reads
		payload, err := w.fetch(p)
		got <- fetched{payload, err}
	}()
	return got
}

func (w *world) fetches(p *millrace.Plan) {
	w.t.Helper()
	got := <-w.fetching(p)
	if got.err != nil {
		w.t.Fatal(got.err)
	}
	verify(w.t, p, got.payload, false)
}

// gone is the error of a request whose loader was killed.
func gone(after int) func(int) error {
	return func(answered int) error {
		if answered < after {
			return nil
		}
		return status.Error(codes.Unavailable, "killed")
	}
}

// TestRowsOfADeadLoaderAreUsed: it wrote them to shared memory and died before it reported them. The standby is asked
// for the rows that are missing or torn. If all are there, it is asked for none, but it is the loader from then on.
func TestRowsOfADeadLoaderAreUsed(t *testing.T) {
	for _, c := range []struct {
		name    string
		written int
		torn    []int
	}{
		{"some", 6, nil}, {"some, and two torn", 6, []int{0, 5}}, {"none", 0, nil}, {"all", -1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, x, first, second, p := duo(t)
			ordinals := ordinalsOf(p)
			n, want := c.written, slices.Clone(ordinals[max(c.written, 0):])
			if n < 0 {
				n, want = len(ordinals), nil
			}
			first.set(func() {
				first.quiet, first.torn = true, map[uint64]bool{}
				for _, i := range c.torn {
					first.torn[ordinals[i]], want = true, append(want, ordinals[i])
				}
				first.fault = gone(n)
				if n == len(ordinals) {
					first.lost = true
				}
			})
			w.fetches(p)
			var asked []uint64
			for _, r := range second.requests() {
				asked = append(asked, r...)
			}
			slices.Sort(want)
			if !slices.Equal(asked, want) {
				t.Errorf("the standby was asked for %v, want %v", asked, want)
			}
			if s := x.event().GetSwitched(); s.GetTerm() != 5 {
				t.Errorf("the orchestrator was told %v", s)
			}
			w.fetches(webPlan(t, 1))
			if len(first.requests()) != 1 {
				t.Errorf("the dead loader was asked %d times", len(first.requests()))
			}
		})
	}
}

// ordinalsOf lists the ordinals of a plan's segments in the order of requests.
func ordinalsOf(p *millrace.Plan) (out []uint64) {
	for _, a := range p.Assignments {
		out = append(out, uint64(a.Ordinal))
	}
	slices.Sort(out)
	return out
}

// TestADeadPrimaryIsReplacedAtOnce: the standby gets the requests for the rest under its own term, and then all
// requests. The switch is reported to every orchestrator until a directory agrees. An older directory changes nothing.
func TestADeadPrimaryIsReplacedAtOnce(t *testing.T) {
	w, x, first, second, p := duo(t)
	first.set(func() { first.fault = gone(6) })
	w.fetches(p)
	asked, rest := first.requests()[0], second.requests()
	if len(rest) != 1 || !slices.Equal(rest[0], asked[6:]) {
		t.Fatalf("of %v the standby was asked for %v", asked, rest)
	}
	if r := second.reqs[0]; r.Term != 5 || r.Hedge || r.Again {
		t.Errorf("the standby was asked %v", r)
	}
	if s := x.event().GetSwitched(); s.GetSource() != "web" || s.Term != 5 || s.Step != 0 ||
		!strings.Contains(s.Reason, "l1") {
		t.Fatalf("the orchestrator was told %v", s)
	}
	x.directory(pair(4, "l1", 5, "l2")) // from before the switch
	w.fetches(webPlan(t, 1))
	w.orchestrate()
	x = w.orch.next(t)
	if s := x.event().GetSwitched(); s.GetTerm() != 5 {
		t.Fatalf("a new orchestrator was told %v", s)
	}
	x.directory(pair(4, "l1", 0, ""))
	w.fetches(webPlan(t, 2))
	x.directory() // from even earlier
	w.fetches(webPlan(t, 3))
	if n := len(first.requests()); n != 1 {
		t.Errorf("the dead one was asked %d times", n)
	}
	x.directory(pair(5, "l2", 7, "l3"))
	eventually(t, func() bool {
		_, spare := w.link.dir.lookup(stripeKey{"web", 0})
		return spare != nil && spare.Term == 7
	})
	w.orchestrate()
	x = w.orch.next(t)
	w.begin(x, 0, 1, 0) // the join comes first: the switch is not reported again
}

// TestAStandbyThatWasFencedAfterTheSwitch: the orchestrator lost the standby before the report of the switch arrived,
// and names it again under a new term. The primary's term is lower than the standby's old term: it gets no request.
func TestAStandbyThatWasFencedAfterTheSwitch(t *testing.T) {
	w, x, first, second, p := duo(t)
	first.set(func() { first.fault = gone(6) })
	w.fetches(p)
	x.event()
	first.set(func() { first.fault = nil })
	second.set(func() { second.term = 8 })
	x.directory(pair(4, "l1", 0, ""))
	got := w.fetching(webPlan(t, 1))
	eventually(t, func() bool { return strings.Contains(w.link.Waiting().Text, "is being restarted") })
	x.directory(pair(4, "l1", 8, "l2"))
	if f := <-got; f.err != nil {
		t.Fatal(f.err)
	}
	if s := x.event().GetSwitched(); s.GetTerm() != 8 {
		t.Errorf("the orchestrator was told %v", s)
	}
	if n := len(first.requests()); n != 1 {
		t.Errorf("the primary was asked %d times", n)
	}
}

// TestASilentPrimaryIsReplaced: the primary neither answers nor ends its stream.
func TestASilentPrimaryIsReplaced(t *testing.T) {
	w, x, first, second, p := duo(t)
	stopped := make(chan struct{})
	t.Cleanup(func() { close(stopped) })
	first.set(func() { first.fault = func(n int) error { return hang(n == 3, stopped) } })
	page, err := w.pages.Create("l1.beat")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close() // it never beats
	w.fetches(p)
	if s := x.event().GetSwitched(); !strings.Contains(s.GetReason(), "silent") {
		t.Errorf("the orchestrator was told %v", s)
	}
	if rest := second.requests(); len(rest) != 1 || len(rest[0]) != 37 {
		t.Errorf("the standby was asked for %v", rest)
	}
}

// TestASwitchOfAnotherHostIsFollowed: the loader does not answer, and nobody here has noticed. Another host has. Only
// switches to the standby that is known here are followed. They are reported, too, until a directory agrees: the other
// host may have been lost with its report.
func TestASwitchOfAnotherHostIsFollowed(t *testing.T) {
	w, x, first, second, p := duo(t)
	stopped := make(chan struct{})
	t.Cleanup(func() { close(stopped) })
	first.set(func() { first.fault = func(n int) error { return hang(n == 3, stopped) } })
	tell := func(source string, stripe uint32, term uint64) {
		s := &proto.Switched{Source: source, Stripe: stripe, Term: term, Step: 7, Reason: "l1: it is silent"}
		x.order(1, &proto.SidecarOrder{Order: &proto.SidecarOrder_Switched{Switched: s}})
	}
	got := w.fetching(p)
	eventually(t, func() bool { return len(first.requests()) == 1 })
	tell("web", 0, 4)
	tell("web", 0, 6)
	tell("web", 1, 5)
	tell("none", 0, 5)
	tell("web", 0, 5)
	tell("web", 0, 5)
	if f := <-got; f.err != nil {
		t.Fatal(f.err)
	}
	if rest := second.requests(); len(rest) != 1 || len(rest[0]) != 37 || second.reqs[0].Term != 5 {
		t.Errorf("the standby was asked for %v", rest)
	}
	w.fetches(webPlan(t, 1))
	if n := len(first.requests()); n != 1 {
		t.Errorf("the silent one was asked %d times", n)
	}
	if s := x.event().GetSwitched(); s.GetTerm() != 5 {
		t.Errorf("the orchestrator was told %v", s)
	}
	w.orchestrate()
	if s := w.orch.next(t).event().GetSwitched(); s.GetTerm() != 5 || !strings.Contains(s.Reason, "silent") {
		t.Errorf("a new orchestrator was told %v", s)
	}
}

// TestTwoSlowLoadersDoNotChaseEachOther: each loader works without a beat for longer than the first limit, and begins
// again at each request. The rows still come, after a few switches.
func TestTwoSlowLoadersDoNotChaseEachOther(t *testing.T) {
	w, x, first, second, p := duo(t)
	slow := func(n int) error {
		if n == 0 {
			time.Sleep(300 * time.Millisecond)
		}
		return nil
	}
	for address, s := range map[string]*store{"l1": first, "l2": second} {
		s.set(func() { s.fault = slow })
		page, err := w.pages.Create(address + ".beat")
		if err != nil {
			t.Fatal(err)
		}
		defer page.Close() // it never beats
	}
	got := w.fetching(p)
	stores, switches := []*store{second, first}, 0
	for over := false; !over; {
		select {
		case e := <-x.events: // the orchestrator makes the replaced loader the standby
			if e.GetSwitched() == nil {
				continue
			}
			term, left := e.GetSwitched().Term, stores[(switches+1)%2]
			switches++
			left.set(func() { left.term = term + 1 })
			names := []string{"l1", "l2"}
			x.directory(pair(term, names[switches%2], term+1, names[(switches+1)%2]))
		case f := <-got:
			if f.err != nil {
				t.Fatal(f.err)
			}
			verify(t, p, f.payload, false)
			over = true
		case <-time.After(patience):
			t.Fatalf("no rows after %d switches", switches)
		}
		if switches > 10 {
			t.Fatal("they chase each other")
		}
	}
	if switches == 0 {
		t.Error("no loader was suspected: the test shows nothing")
	}
}

func hang(here bool, until <-chan struct{}) error {
	if here {
		<-until
	}
	return nil
}

// TestALivePrimaryIsNotReplaced even if its reply takes long. The watcher looks at heartbeats only while requests are
// in flight.
func TestALivePrimaryIsNotReplaced(t *testing.T) {
	w, _, first, second, p := duo(t)
	page, err := w.pages.Create("l1.beat")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	beats := make(chan error, 1)
	go func() { beats <- page.Run(ctx) }() // waited for below
	defer func() { stop(); <-beats; page.Close() }()
	first.set(func() {
		first.fault = func(n int) error {
			if n == 20 {
				time.Sleep(300 * time.Millisecond)
			}
			return nil
		}
	})
	w.fetches(p)
	if n := len(second.requests()); n != 0 {
		t.Errorf("the standby was asked %d times", n)
	}
}

// TestASilentPrimaryWithoutStandbyIsWaitedFor: the reason of the wait names the primary, and the fetch continues when
// the primary answers. A standby that comes meanwhile gets the requests at once.
func TestASilentPrimaryWithoutStandbyIsWaitedFor(t *testing.T) {
	for _, wakes := range []bool{true, false} {
		t.Run(fmt.Sprint(wakes), func(t *testing.T) {
			w, x, first, second, p := duo(t)
			x.directory(pair(4, "l1", 0, ""))
			eventually(t, func() bool { _, spare := w.link.dir.lookup(stripeKey{"web", 0}); return spare == nil })
			page, err := w.pages.Create("l1.beat")
			if err != nil {
				t.Fatal(err)
			}
			defer page.Close()
			stopped := make(chan struct{})
			first.set(func() { first.fault = func(n int) error { return hang(n == 3, stopped) } })
			got := w.fetching(p)
			eventually(t, func() bool { return strings.Contains(w.link.Waiting().Text, "l1 is silent") })
			for _, says := range []string{"step 0 ", "source web", "shard a.jsonl", "since "} {
				if text := w.link.Waiting().Text; !strings.Contains(text, says) {
					t.Errorf("%q does not say %q", text, says)
				}
			}
			if wakes {
				close(stopped)
			} else {
				defer close(stopped)
				x.directory(pair(4, "l1", 5, "l2"))
			}
			f := <-got
			if f.err != nil {
				t.Fatal(f.err)
			}
			verify(t, p, f.payload, false)
			if asked := len(second.requests()) > 0; asked == wakes {
				t.Errorf("the standby was asked: %v", asked)
			}
		})
	}
}

// hedging makes the primary late at its fifth row, after its speed is known. The known times are so long that no reply
// of a busy machine is late.
func hedging(t *testing.T) (w *world, first, second *store, p *millrace.Plan, release chan struct{}) {
	w, _, first, second, p = duo(t)
	for step := range uint64(30) {
		w.fetches(webPlan(t, step))
	}
	w.link.dir.Lock()
	known := &pace{credits: hedgeCost + 30}
	for range paceWindow {
		known.note(50 * time.Millisecond)
	}
	w.link.dir.paces["l1"] = known
	w.link.dir.Unlock()
	second.set(func() { second.reqs = nil })
	release = make(chan struct{})
	first.set(func() { first.fault = func(n int) error { return hang(n == 5, release) } })
	return w, first, second, p, release
}

// TestALateReplyIsHedged: the standby gets requests for missing rows only. No loader is replaced, and the pace limits
// the hedges.
func TestALateReplyIsHedged(t *testing.T) {
	w, first, second, p, release := hedging(t)
	w.fetches(p)
	req := second.reqs[0]
	if !req.Hedge || req.Term != 5 || !slices.Equal(req.Ordinal, first.requests()[30][5:]) {
		t.Errorf("the standby was asked %v", req)
	}
	w.fetches(webPlan(t, 31))
	got := w.fetching(webPlan(t, 32))
	close(release)
	if f := <-got; f.err != nil {
		t.Fatal(f.err)
	}
	if n := len(second.requests()); n != 2 {
		t.Errorf("%d hedges in 33 requests", n)
	}
	if using, _ := w.link.dir.lookup(stripeKey{"web", 0}); using.Name != "l1" {
		t.Errorf("a late loader was replaced by %v", using)
	}
}

// TestAHedgeThatFailsChangesNothing: the standby is dead or cannot read, and the late loader still answers.
func TestAHedgeThatFailsChangesNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(s *store, missing []uint64)
	}{
		{"dead", func(s *store, _ []uint64) { s.fault = gone(1) }},
		{"bad", func(s *store, missing []uint64) { s.bad = map[uint64]int{missing[0]: 9} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, first, second, p, release := hedging(t)
			second.set(func() { c.fail(second, first.requests()[0][5:]) })
			got := w.fetching(p)
			eventually(t, func() bool { return len(second.requests()) == 1 })
			close(release)
			f := <-got
			if f.err != nil {
				t.Fatal(f.err)
			}
			verify(t, p, f.payload, false)
			if using, _ := w.link.dir.lookup(stripeKey{"web", 0}); using.Name != "l1" ||
				len(second.requests()) != 1 {
				t.Errorf("%v is asked now; the standby was asked %d times", using, len(second.requests()))
			}
		})
	}
}

// TestCopiesThatDifferEndTheRun: both copies are written to a file, and none is used.
func TestCopiesThatDifferEndTheRun(t *testing.T) {
	w, first, second, p, release := hedging(t)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	// Both loaders send the late row, one loader with other tokens. Then both send nothing more.
	first.set(func() {
		first.fault = func(n int) error { return errors.Join(hang(n == 5, release), hang(n == 6, over)) }
	})
	second.set(func() {
		second.other = map[uint64]bool{first.asked[0][5]: true}
		second.fault = func(n int) error {
			if n == 1 {
				close(release)
			}
			return hang(n == 1, over)
		}
	})
	got := <-w.fetching(p)
	if !errors.Is(got.err, millrace.ErrMismatch) ||
		!strings.Contains(got.err.Error(), "l1 and l2 sent different tokens") &&
			!strings.Contains(got.err.Error(), "l2 and l1 sent different tokens") {
		t.Fatalf("got %v", got.err)
	}
	files, _ := filepath.Glob(filepath.Join(w.dump, "differs-web-*.json"))
	if len(files) != 1 {
		t.Fatalf("written: %v", files)
	}
	text, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(text), `"l1":[`) || !strings.Contains(string(text), `"l2":[`) {
		t.Errorf("%v: %s", err, text)
	}
}

// TestABadReadingIsRepeated, by the standby if there is one.
func TestABadReadingIsRepeated(t *testing.T) {
	w, x, first, second, p := duo(t)
	bad := uint64(p.Assignments[7].Ordinal)
	first.set(func() { first.bad = map[uint64]int{bad: 9} })
	w.fetches(p)
	if r := second.reqs[0]; !r.Again || r.Term != 5 || !slices.Equal(r.Ordinal, []uint64{bad}) {
		t.Errorf("the standby was asked %v", r)
	}
	x.directory(pair(4, "l1", 0, ""))
	eventually(t, func() bool { _, spare := w.link.dir.lookup(stripeKey{"web", 0}); return spare == nil })
	first.set(func() { first.bad = map[uint64]int{bad: 1} })
	w.fetches(p)
	if r := first.reqs[len(first.reqs)-1]; !r.Again || !slices.Equal(r.Ordinal, []uint64{bad}) {
		t.Errorf("the same loader was asked %v", r)
	}
}

// TestTwoBadReadingsAreMasked: the report reaches each orchestrator until one masks the segment. Later fetches do not
// request the segment.
func TestTwoBadReadingsAreMasked(t *testing.T) {
	w, x, first, second, p := duo(t)
	p.Assignments[8].Segment = p.Assignments[7].Segment // the document's next segment
	p.Assignments[8].Offset += p.Assignments[7].Length
	bad := uint64(p.Assignments[7].Ordinal)
	first.set(func() { first.bad = map[uint64]int{bad: 9} })
	second.set(func() { second.bad = map[uint64]int{bad: 9} })
	got := w.fetching(p)
	told := map[uint32]*proto.Bad{}
	for range 2 {
		b := x.event().GetBad()
		if b.GetOrdinal() != bad || b.Source != 0 || b.Sample.Id != fmt.Sprintf("a.jsonl#%d", bad) ||
			b.Sample.Reason != "invalid JSON" ||
			b.Sample.Offset != 9 {
			t.Fatalf("the orchestrator was told %v", b)
		}
		told[b.Offset] = b
	}
	eventually(t, func() bool { return strings.Contains(w.link.Waiting().Text, "the orchestrator to mask") })
	w.orchestrate()
	x = w.orch.next(t)
	var masks []*proto.Mask
	for range 2 {
		b := x.event().GetBad()
		if told[b.GetOffset()] == nil {
			t.Fatalf("a new orchestrator was told %v", b)
		}
		masks = append(masks,
			&proto.Mask{Source: "web", Ordinal: b.Ordinal, Offset: b.Offset, Length: b.Length, Sample: b.Sample})
	}
	x.order(1, &proto.SidecarOrder{Order: &proto.SidecarOrder_Masked{Masked: &proto.Masked{Masks: masks}}})
	f := <-got
	if f.err != nil {
		t.Fatal(f.err)
	}
	masked := f.payload.Masked(0, 0)
	for i, m := range masked {
		if m != (i == 7 || i == 8) {
			t.Errorf("segment %d is masked: %v", i, m)
		}
	}
	before := len(first.requests())
	if f = <-w.fetching(p); f.err != nil || !f.payload.Masked(0, 0)[7] {
		t.Fatalf("%v", f.err)
	}
	if asked := first.requests()[before:]; len(asked) != 1 || slices.Contains(asked[0], bad) {
		t.Errorf("asked again: %v", asked)
	}
}

// TestMasksOfBeforeAreKnown: they come with the welcome, and hold in later attempts. A host that can read a masked
// segment masks it too.
func TestMasksOfBeforeAreKnown(t *testing.T) {
	w, x, first, _, p := duo(t)
	a := p.Assignments[3]
	x.order(1, &proto.SidecarOrder{Order: &proto.SidecarOrder_Welcome{Welcome: &proto.Welcome{
		Manifests: []*proto.Manifest{{Source: "web", Shards: []*proto.Shard{{Name: "a.jsonl"}}}},
		Masks:     []*proto.Mask{{Source: "web", Ordinal: uint64(a.Ordinal), Offset: a.Offset, Length: a.Length}}}}})
	eventually(t, func() bool {
		w.link.masks.Lock()
		defer w.link.masks.Unlock()
		return len(w.link.masks.masked) == 1
	})
	for attempt := range uint32(3) {
		if p.Attempt = millrace.Attempt(attempt); attempt > 0 {
			w.begin(x, 0, attempt, 0)
		}
		f := <-w.fetching(p)
		if f.err != nil || !f.payload.Masked(0, 0)[3] {
			t.Fatalf("attempt %d: %v", attempt, f.err)
		}
	}
	if asked := first.requests(); len(asked) != 3 || slices.Contains(slices.Concat(asked...), uint64(a.Ordinal)) {
		t.Errorf("the loader was asked for %v", asked)
	}
}

// TestAHostsOwnFaultIsNoBadSample: the standby sends the rows that the loader cannot read, and stays the standby.
func TestAHostsOwnFaultIsNoBadSample(t *testing.T) {
	w, x, first, second, p := duo(t)
	first.set(func() { first.fault = func(int) error { return errors.New("read a.jsonl: input/output error") } })
	w.fetches(p)
	if r := second.reqs[0]; !r.Hedge || r.Again {
		t.Errorf("the standby was asked %v", r)
	}
	first.set(func() { first.fault = nil })
	w.fetches(webPlan(t, 1))
	if using, _ := w.link.dir.lookup(stripeKey{"web", 0}); using.Name != "l1" {
		t.Errorf("%v is asked now", using)
	}
	w.begin(x, 0, 1, 0) // no event came before the join
}

// TestConnectionsFollowTheDirectory: the link closes the connection to a loader that left the directory. It connects to
// a standby before it needs the standby.
// TestNewsChangeTheirStripesAlone: the other stripes keep their readers. A stripe without a reader loses its route.
func TestNewsChangeTheirStripesAlone(t *testing.T) {
	w, x, _, _, _ := duo(t)
	names := func() string {
		d := w.link.dir
		d.Lock()
		defer d.Unlock()
		web, code := d.routes[stripeKey{"web", 0}], d.routes[stripeKey{"code", 0}]
		if web == nil || code == nil {
			return ""
		}
		return web.names() + ", " + code.names()
	}
	newStore(w, "l3", 0, 9)
	x.directory(stripe("web", 0, 1, 9, "l3"), stripe("code", 0, 1, 9, "l3"))
	eventually(t, func() bool { return names() == "l3 -, l3 -" })
	news := func(s *proto.LoaderStripe) {
		x.order(1, &proto.SidecarOrder{Order: &proto.SidecarOrder_Loaders{
			Loaders: &proto.Loaders{News: true, Stripes: []*proto.LoaderStripe{s}}}})
	}
	news(stripe("code", 0, 1, 10, "l1"))
	eventually(t, func() bool { return names() == "l3 -, l1 -" })
	news(&proto.LoaderStripe{Source: "web", Stripes: 1})
	eventually(t, func() bool { return names() == "- -, l1 -" })
}

func TestConnectionsFollowTheDirectory(t *testing.T) {
	w, x, _, _, _ := duo(t)
	connected := func() (addresses []string) {
		w.link.conns.mu.Lock()
		defer w.link.conns.mu.Unlock()
		for address := range w.link.conns.byAddress {
			addresses = append(addresses, address)
		}
		slices.Sort(addresses)
		return addresses
	}
	if got := connected(); !slices.Equal(got, []string{"l1", "l2", "orchestrator"}) {
		t.Errorf("connected to %v", got)
	}
	newStore(w, "l3", 0, 9)
	x.directory(pair(9, "l3", 0, ""))
	eventually(t, func() bool { return slices.Equal(connected(), []string{"l3", "orchestrator"}) })
	w.fetches(webPlan(t, 0))
}

func TestAlertsArePassedOn(t *testing.T) {
	w, x := newWorld(t, 1)
	send := func(texts ...string) {
		a := &proto.Alerts{}
		for _, text := range texts {
			a.Alerts = append(a.Alerts, &proto.Alert{Kind: "unprotected", Text: text, Since: 7})
		}
		x.order(1, &proto.SidecarOrder{Order: &proto.SidecarOrder_Alerts{Alerts: a}})
	}
	send("source web has no standby")
	alerts, version, err := w.link.Alerts(w.ctx(), 0)
	if err != nil || len(alerts) != 1 ||
		alerts[0] != (sidecar.Alert{Kind: "unprotected", Text: "source web has no standby", Since: 7}) {
		t.Fatalf("%v: %v", err, alerts)
	}
	send()
	if alerts, _, err = w.link.Alerts(w.ctx(), version); err != nil || len(alerts) != 0 {
		t.Fatalf("%v: %v", err, alerts)
	}
}

// TestPaceIsOfTheLoadersOwn: the loader's own replies decide when a reply is late. Twenty requests pay for a hedge.
func TestPaceIsOfTheLoadersOwn(t *testing.T) {
	p := newPace()
	for range paceKnown - 1 {
		p.note(time.Millisecond)
	}
	if p.late() != 0 {
		t.Error("a reply is late although too little is known")
	}
	p.note(time.Second) // an outlier
	if p.late() != leastLate {
		t.Errorf("late after %v", p.late())
	}
	for range 2 * paceWindow {
		p.note(10 * time.Millisecond)
	}
	if p.late() != 40*time.Millisecond {
		t.Errorf("late after %v", p.late())
	}
	hedges := 0
	for range 2000 {
		p.earn()
		if p.spend() {
			hedges++
		}
	}
	if hedges < 90 || hedges > 105 {
		t.Errorf("%d hedges in 2000 requests", hedges)
	}
}
