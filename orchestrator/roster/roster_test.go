package roster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"millrace"
	"millrace/internal/wire"
	"millrace/orchestrator/planner/progress"
	pb "millrace/proto"
)

// loader is a Session that remembers its orders.
type loader struct{ got []*pb.LoaderOrder }

func (l *loader) Send(msg any) { l.got = append(l.got, msg.(*pb.LoaderOrder)) }

// world is a roster whose decisions are journaled and applied.
type world struct {
	t       *testing.T
	out     *Actions
	roster  *Roster
	journal Journal
	holders map[uint32]*pb.Assigned
	fenced  []Process
	loaders map[string]*loader
}

func newWorld(t *testing.T) *world { return newWorldOf(t, 1) }

// newWorldOf returns a roster without members that expects so many loaders, and a source with a stripe for each.
func newWorldOf(t *testing.T, loaders int) *world {
	w := &world{t: t, out: &Actions{}, holders: map[uint32]*pb.Assigned{}, loaders: map[string]*loader{}}
	w.journal = Journal{
		Manifests: map[string]*pb.Manifest{},
		Holder:    func(_ string, stripe uint32) *pb.Assigned { return w.holders[stripe] },
	}
	w.roster = New(
		Config{
			Sources: []Source{{Name: "web", Stripes: loaders}},
			Loaders: loaders,
			Up:      "1",
			Fence:   func() *pb.Fence { return &pb.Fence{} },
			Compare: func(pinned, now *millrace.Manifest) error { return nil },
		},
		w.out,
	)
	w.roster.Tick(time.Unix(1, 0))
	return w
}

// identity returns the identity of a process.
func identity(name string, pid int64) string { return fmt.Sprint(name, " ", pid) }

func (w *world) connect(name string, pid int64, standby bool) {
	w.t.Helper()
	w.loaders[name] = &loader{}
	version := &pb.Version{Protocol: wire.ProtocolVersion, Planner: progress.PlannerVersion}
	hello := &pb.LoaderHello{Name: name, Identity: identity(name, pid), Pid: pid, Standby: standby, Version: version}
	if err := w.roster.Connect(w.loaders[name], hello); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

// settle decides until nothing is left. Loaders open sources when they are told to.
func (w *world) settle() {
	w.t.Helper()
	for range 100 {
		for _, mf := range w.roster.Unpinned() {
			w.journal.Manifests[mf.Source] = mf
			w.roster.Pin(mf)
		}
		d := w.roster.Decide(w.journal)
		if again := w.roster.Decide(w.journal); len(again.Assigned) != len(d.Assigned) || again.settled != d.settled ||
			len(again.open) != len(d.open) {
			w.t.Fatalf("two decisions in a row differ: %v, %v", d, again)
		}
		if d.IsEmpty() {
			return
		}
		w.roster.Settle(d)
		for _, a := range d.Assigned {
			w.journal.Term = max(w.journal.Term, a.Term)
			if !a.Standby {
				w.holders[a.Stripe] = a
			}
			w.roster.Apply(a)
		}
		w.perform()
	}
	w.t.Fatal("the roster does not settle")
}

func (w *world) perform() {
	for _, a := range w.out.Take() {
		if a.Fenced != nil {
			w.fenced = append(w.fenced, *a.Fenced)
			continue
		}
		a.To.Send(a.Msg)
		for name, l := range w.loaders {
			open := a.Msg.(*pb.LoaderOrder).GetOpen()
			if l == a.To && open != nil {
				if err := w.roster.Opened(l, name, &pb.Manifest{Source: open.Source},
					w.journal.Manifests[open.Source]); err != nil {
					w.t.Fatal(err)
				}
			}
		}
	}
}

// reader returns the stripe's entry of the directory, empty if nobody reads it.
func (w *world) reader() *pb.LoaderStripe {
	if dir := w.roster.Directory().Stripes; len(dir) > 0 {
		return dir[0]
	}
	return &pb.LoaderStripe{}
}

func TestAStandbyIsPromotedUnderItsTerm(t *testing.T) {
	w := newWorld(t)
	w.connect("loader-0", 1, false)
	w.connect("shadow-0", 2, true)
	if got := w.reader(); got.Name != "loader-0" || got.Standby != nil || w.roster.Unprotected(AllSources) != 1 {
		t.Fatalf("a standby that is not ready: %v", got)
	}
	standby := w.roster.stripes.all[0].standby
	w.roster.Ready(w.loaders["shadow-0"], "shadow-0", &pb.Ready{Source: "web", Term: standby.term})
	if got := w.reader(); got.Standby.GetTerm() != standby.term || w.roster.Unprotected(AllSources) != 0 {
		t.Fatalf("a ready standby: %v", got)
	}
	w.roster.Disconnect(w.loaders["loader-0"], "loader-0")
	w.settle()
	if got := w.reader(); got.Name != "shadow-0" || got.Term != standby.term || w.roster.Switches() != 1 {
		t.Fatalf("after its primary was lost: %v", got)
	}
	if len(w.fenced) != 1 || w.fenced[0] != (Process{"loader-0", identity("loader-0", 1), 1}) {
		t.Errorf("fenced %v", w.fenced)
	}
}

func TestAStripeWithoutStandbyWaitsForItsOwner(t *testing.T) {
	w := newWorld(t)
	w.connect("loader-0", 1, false)
	w.roster.Disconnect(w.loaders["loader-0"], "loader-0")
	w.settle()
	source, owner, ok := w.roster.Unread()
	if !ok || source != "web" || owner.Name != "loader-0" || !owner.IsRestarted || w.reader().Name != "" {
		t.Fatalf("it waits for %v of %q", owner, source)
	}
	w.connect("loader-0", 2, false)
	if got := w.reader(); got.Name != "loader-0" || got.Term != 2 {
		t.Fatalf("its owner is back: %v", got)
	}
}

// opened reports whether a loader was told to open its source.
func (w *world) opened(name string) bool {
	return slices.ContainsFunc(w.loaders[name].got, func(o *pb.LoaderOrder) bool { return o.GetOpen() != nil })
}

// TestAShadowWaitsForTheFirstStep: while ranks wait for a step, a shadow does not take the readers' time.
func TestAShadowWaitsForTheFirstStep(t *testing.T) {
	w := newWorld(t)
	w.journal.IsAwaited = true
	w.connect("shadow-0", 7, true)
	w.connect("loader-0", 8, false)
	if !w.opened("loader-0") || w.opened("shadow-0") {
		t.Fatalf("opened: loader %v, shadow %v; want the loader alone", w.opened("loader-0"), w.opened("shadow-0"))
	}
	if st := w.reader(); st.Name != "loader-0" {
		t.Fatalf("%q reads, want loader-0", st.Name)
	}
	w.journal.IsAwaited = false // the step is sealed
	if w.settle(); !w.opened("shadow-0") {
		t.Error("the shadow is not told to open the source after the step")
	}
}

// TestAnAwaitedStepWithoutAReaderCallsAShadow: a shadow opens a stripe that nobody reads, although ranks wait.
func TestAnAwaitedStepWithoutAReaderCallsAShadow(t *testing.T) {
	w := newWorld(t)
	w.journal.Manifests["web"] = &pb.Manifest{Source: "web"}
	w.journal.IsAwaited = true
	w.connect("shadow-0", 7, true)
	w.roster.Tick(time.Unix(1, 0).Add(firstWait))
	if w.settle(); !w.opened("shadow-0") {
		t.Fatal("nobody reads the source, and the shadow is not told to open it")
	}
	if st := w.reader(); st.Name != "shadow-0" {
		t.Errorf("%q reads, want shadow-0", st.Name)
	}
}

// TestALoaderThatReadsNothingIsNotKeptWaiting: it may be there because the ranks wait.
func TestALoaderThatReadsNothingIsNotKeptWaiting(t *testing.T) {
	w := newWorldOf(t, 2)
	w.connect("loader-0", 7, false)
	w.roster.Tick(time.Unix(1, 0).Add(firstWait))
	if w.settle(); w.holders[0].Member != "loader-0" || w.holders[1].Member != "loader-0" {
		t.Fatalf("%s and %s read, want loader-0 alone", w.holders[0].Member, w.holders[1].Member)
	}
	w.journal.IsAwaited = true
	w.connect("loader-1", 8, false)
	for _, o := range w.loaders["loader-1"].got {
		if r := o.GetRead(); r != nil && r.Standby {
			w.roster.Ready(w.loaders["loader-1"], "loader-1", &pb.Ready{Source: "web", Stripe: r.Stripe, Term: r.Term})
		}
	}
	w.settle()
	if w.holders[0].Member == w.holders[1].Member {
		t.Errorf("%s reads both stripes while ranks wait, want one for loader-1", w.holders[0].Member)
	}
}
