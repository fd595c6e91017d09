package link

import (
	"strings"
	"testing"
	"time"

	"millrace"
	"millrace/proto"
)

// TestALoaderOfAnotherHostSharesNoMemory: it is asked at its remote address, it sends all rows, and its heartbeat page
// is not opened. Loaders of the same `up`, or without one, share the host.
func TestALoaderOfAnotherHostSharesNoMemory(t *testing.T) {
	for up, isRemote := range map[string]bool{"": false, "here": false, "there": true} {
		w, x := newWorldOf(t, 1, "here")
		if h := x.hello; h.Up != "here" || h.Host != "host of here" || len(h.Identity) < 20 {
			t.Errorf("the sidecar says %v", h)
		}
		x.welcome("code")
		address := "path"
		if isRemote {
			address = "host:1"
		}
		s := newStore(w, address, 0, 3)
		s.lies = func(ordinal uint64) bool { return ordinal%2 == 1 }
		standby := &proto.Standby{Term: 5, Name: "l1", Up: up, Address: "path 2", Remote: "host:2", Beat: "l1.beat"}
		x.directory(&proto.LoaderStripe{Source: "code", Stripes: 1, Term: 3, Name: "l0", Up: up, Address: "path",
			Remote: "host:1", Beat: "l0.beat", Standby: standby})
		eventually(t, func() bool { return w.link.dir.served("code") == 1 })
		p := &millrace.Plan{Stream: millrace.Train, Attempt: 1, Ranks: 1, Microbatches: 1}
		for i := range uint64(12) {
			p.Assignments = append(p.Assignments, millrace.Assignment{Row: uint32(i), Segment: millrace.Segment{
				Ordinal: millrace.Ordinal(i), Length: uint32(1 + i%5),
			}})
		}
		payload, err := w.fetch(p)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, p, payload, false)
		if s.arenas[0] == "" != isRemote || s.reqs[0].InPlace == isRemote || w.files.reads > 0 == isRemote {
			t.Errorf("up %q: arena %q, in place %t, %d rows read in place", up, s.arenas[0], s.reqs[0].InPlace,
				w.files.reads)
		}
		using, spare := w.link.dir.lookup(stripeKey{"code", 0})
		if using.Beat == "" != isRemote || spare.Beat == "" != isRemote || spare.IsRemote != isRemote ||
			isRemote && spare.Address != "host:2" {
			t.Errorf("up %q: the loader is %v, the standby %v", up, using, spare)
		}
	}
}

// farDuo is a loader of another host and its standby, on a third one, at the addresses l1 and l2. Both beat.
func farDuo(t *testing.T) (w *world, x *session, first, second *store, p *millrace.Plan) {
	w, x = newWorldOf(t, 1, "here")
	x.welcome("web")
	first, second = newStore(w, "l1", 0, 4), newStore(w, "l2", 0, 5)
	first.beats.Store(true)
	second.beats.Store(true)
	x.directory(&proto.LoaderStripe{Source: "web", Stripes: 1, Term: 4, Name: "l1", Up: "there", Remote: "l1",
		Standby: &proto.Standby{Term: 5, Name: "l2", Up: "elsewhere", Remote: "l2"}})
	eventually(t, func() bool { return w.link.dir.served("web") == 1 })
	return w, x, first, second, webPlan(t, 0)
}

// TestARemotePrimaryWhoseBeatsStopIsReplaced: its stream stays open, as if its host had disappeared.
func TestARemotePrimaryWhoseBeatsStopIsReplaced(t *testing.T) {
	w, x, first, second, p := farDuo(t)
	stopped := make(chan struct{})
	t.Cleanup(func() { close(stopped) })
	first.set(func() {
		first.fault = func(n int) error {
			if n == 3 {
				first.silent.Store(true)
				<-stopped
			}
			return nil
		}
	})
	w.fetches(p)
	if s := x.event().GetSwitched(); s.GetTerm() != 5 || !strings.Contains(s.Reason, "silent") {
		t.Errorf("the orchestrator was told %v", s)
	}
	if rest := second.requests(); len(rest) != 1 || len(rest[0]) != 37 {
		t.Errorf("the standby was asked for %v", rest)
	}
}

// TestARemotePrimaryOfAStarvedHostIsNotReplaced: the orchestrator says that its host gives it too little processor
// time.
func TestARemotePrimaryOfAStarvedHostIsNotReplaced(t *testing.T) {
	w, x, first, second, p := farDuo(t)
	x.order(1, &proto.SidecarOrder{Order: &proto.SidecarOrder_Starved{Starved: &proto.Starved{
		Hosts: []*proto.StarvedHost{{Up: "there", DelayMs: 1 << 12}},
	}}})
	x.order(1, &proto.SidecarOrder{Order: &proto.SidecarOrder_Loaders{Loaders: &proto.Loaders{News: true,
		Stripes: []*proto.LoaderStripe{{Source: "code", Stripes: 1, Name: "l1", Up: "there", Remote: "l1"}}}}})
	eventually(t, func() bool { return w.link.dir.served("code") == 1 }) // it was told after the host
	first.set(func() {
		first.fault = func(n int) error {
			if n == 3 {
				first.silent.Store(true)
				time.Sleep(time.Second)
			}
			return nil
		}
	})
	w.fetches(p)
	if n := len(second.requests()); n != 0 {
		t.Errorf("the standby was asked %d times", n)
	}
}

// TestARemotePrimaryThatIsCutIsReplacedAtOnce: the end of a stream is evidence, long before a beat is late.
func TestARemotePrimaryThatIsCutIsReplacedAtOnce(t *testing.T) {
	w, x, first, second, p := farDuo(t)
	first.set(func() { first.fault = gone(6) })
	w.fetches(p)
	if s := x.event().GetSwitched(); s.GetTerm() != 5 || strings.Contains(s.Reason, "silent") {
		t.Errorf("the orchestrator was told %v", s)
	}
	if rest := second.requests(); len(rest) != 1 || len(rest[0]) != 34 {
		t.Errorf("the standby was asked for %v", rest)
	}
}

// TestALiveRemotePrimaryIsNotReplaced even if its reply takes long. A loader without beats is waited for, too.
func TestALiveRemotePrimaryIsNotReplaced(t *testing.T) {
	for _, beats := range []bool{true, false} {
		w, _, first, second, p := farDuo(t)
		first.beats.Store(beats)
		first.set(func() {
			first.fault = func(n int) error {
				if n == 20 {
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		w.fetches(p)
		if n := len(second.requests()); n != 0 {
			t.Errorf("beats %t: the standby was asked %d times", beats, n)
		}
	}
}
