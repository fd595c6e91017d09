package tier

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace"
	"millrace/proto"
	"millrace/sidecar"
)

// TestEachRankIsFetchedOnce for all hosts that need it, under random topologies: the batches of every host are those of
// the loaders. Hosts come to a step at different times.
func TestEachRankIsFetchedOnce(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			topology := millrace.Topology{TP: 1 << rng.IntN(3), CP: 1 + rng.IntN(2), PP: 1 + rng.IntN(3)}
			dp, hosts := 1+rng.IntN(4), 1+rng.IntN(5)
			topology.Ranks = topology.TP * topology.CP * topology.PP * dp
			var feeds [][]millrace.Rank
			b := sidecar.Begin{Topology: topology, Broadcast: millrace.Broadcast{PP: rng.IntN(3) == 0}}
			for i := range hosts { // some have no rank
				var ranks []millrace.Rank
				for r := topology.Ranks * i / hosts; r < topology.Ranks*(i+1)/hosts; r++ {
					ranks = append(ranks, millrace.Rank(r))
				}
				feeds = append(feeds, slices.Sorted(slices.Values(b.Fed(ranks))))
			}
			w := newWorld(t, feeds...)
			defer w.close()
			for step := range millrace.Step(4) {
				if step == 2 {
					w.bad[millrace.Ordinal(rng.IntN(1000))] = true
				}
				p := w.draw(rng, step, uint32(dp), uint32(1+rng.IntN(3)), 20)
				if step == 3 {
					for _, h := range w.hosts {
						h.slow = time.Duration(rng.IntN(100)) * time.Millisecond
					}
				}
				w.all(p)
				var asked []millrace.Rank
				for _, h := range w.hosts {
					asked = append(asked, h.took()...)
				}
				slices.Sort(asked)
				needed := slices.Compact(slices.Sorted(slices.Values(slices.Concat(feeds...))))
				if !slices.Equal(asked, needed) {
					t.Errorf("seed %d, step %d: the loaders were asked for ranks %d, want %d", seed, step, asked,
						needed)
				}
			}
			synctest.Wait() // a constructor counts a step after its peer has it
			in, out, loaded := int64(0), int64(0), int64(0)
			for _, h := range w.hosts {
				s := h.tier.Supply()
				in, out, loaded = in+s.FromConstructors, out+s.ToPeers, loaded+s.FromLoaders
			}
			if in != out || loaded == 0 {
				t.Errorf("seed %d: %d bytes came from constructors, %d went to peers, %d came from loaders", seed, in,
					out, loaded)
			}
		})
	}
}

// pair is two hosts that need ranks 0 and 1. The first is the constructor of rank 0, the second of rank 1.
func pair(t *testing.T) (w *world, first, second *host) {
	w = newWorld(t, []millrace.Rank{0, 1}, []millrace.Rank{0, 1})
	return w, w.hosts[0], w.hosts[1]
}

// TestAPeerFallsBackToTheLoaders if its constructor fails in any way, at once or after a bounded time. It gets the same
// bytes, and the constructor is asked again after a pause.
func TestAPeerFallsBackToTheLoaders(t *testing.T) {
	for name, c := range map[string]struct {
		strike func(first *host)
		repair func(first *host)
		within time.Duration
		paused bool
	}{
		"its process is gone": {
			func(h *host) { h.server.Stop() }, func(h *host) { h.serve() }, 100 * time.Millisecond, true,
		},
		"it has no plan": {func(h *host) { h.lacks = true }, func(h *host) { h.lacks = false },
			planWithin + 100*time.Millisecond, false},
		"it has another plan": {
			func(h *host) { h.other = &millrace.Plan{Attempt: 1, Step: 1} },
			func(h *host) { h.other = nil }, 100 * time.Millisecond, true,
		},
		"its loaders fail": {func(h *host) { h.broken = status.Error(codes.Unknown, "no") },
			func(h *host) { h.broken = nil }, 100 * time.Millisecond, true},
		"its loaders are slow": {func(h *host) { h.slow = time.Hour }, func(h *host) { h.slow = 0 },
			unknownLate + 100*time.Millisecond, false},
		"a row has another length": {func(h *host) {
			alter(h, func(r *proto.FetchReply) { r.Count[0], r.Tokens = r.Count[0]-1, r.Tokens[widthOf(r):] })
		}, func(h *host) { h.altered = nil }, 100 * time.Millisecond, true},
		"a row is left out": {func(h *host) {
			alter(h, func(r *proto.FetchReply) {
				r.Tokens, r.Row, r.Count = r.Tokens[widthOf(r)*r.Count[0]:], r.Row[1:], r.Count[1:]
				if len(r.Wide) > 0 {
					r.Wide = r.Wide[1:]
				}
				if len(r.Fields) > 0 {
					r.Fields = r.Fields[1:]
				}
			})
		}, func(h *host) { h.altered = nil }, 100 * time.Millisecond, false},
		"a row comes twice": {func(h *host) {
			alter(h, func(r *proto.FetchReply) { r.Row[1], r.Count[1] = r.Row[0], r.Count[0] })
		}, func(h *host) { h.altered = nil }, 100 * time.Millisecond, true},
		"a row too many": {func(h *host) { alter(h, func(r *proto.FetchReply) { r.Row[0] = 1 << 30 }) },
			func(h *host) { h.altered = nil }, 100 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, first, second := pair(t)
				defer w.close()
				rng := rand.New(rand.NewPCG(1, 2))
				for step := range millrace.Step(20) {
					for len(w.draw(rng, step, 2, 2, 9).Part(0, 0)) < 2 {
						continue // rows to be altered
					}
				}
				first.set(func() { c.strike(first) })
				began := time.Now()
				second.fetch(w.plans[1])
				if took := time.Since(began); took > c.within {
					t.Errorf("it took %v", took)
				}
				if got := second.took(); !slices.Equal(got, []millrace.Rank{0, 1}) {
					t.Errorf("the loaders were asked for %d", got)
				}
				first.set(func() { c.repair(first) })
				second.fetch(w.plans[2])
				if got := second.took(); slices.Equal(got, []millrace.Rank{0, 1}) != c.paused {
					t.Errorf("directly after it, the loaders were asked for %d", got)
				}
				time.Sleep(2 * firstPause)
				second.fetch(w.plans[3])
				if got := second.took(); !slices.Equal(got, []millrace.Rank{1}) {
					t.Errorf("after the pause, the loaders were asked for %d", got)
				}
			})
		})
	}
}

// alter changes the replies of a host that have rows.
func alter(h *host, change func(*proto.FetchReply)) {
	h.altered = func(r *proto.FetchReply) {
		if len(r.Row) > 1 {
			change(r)
		}
	}
}

// TestASilentConstructorIsNotWaitedFor: its connection stays open, and nothing comes.
func TestASilentConstructorIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, second := pair(t)
		defer w.close()
		rng := rand.New(rand.NewPCG(1, 2))
		for step := range millrace.Step(4) {
			w.draw(rng, step, 2, 2, 9)
		}
		second.fetch(w.plans[0])
		second.took()
		release := w.net.Hold(first.name, second.name)
		began := time.Now()
		second.fetch(w.plans[1])
		if took := time.Since(began); took > 2*silentAfter+100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		second.fetch(w.plans[2]) // not asked
		if got := second.took(); !slices.Equal(got, []millrace.Rank{0, 0, 1, 1}) {
			t.Errorf("the loaders were asked for %d", got)
		}
		release()
		time.Sleep(2 * firstPause)
		second.fetch(w.plans[3])
		if got := second.took(); !slices.Equal(got, []millrace.Rank{1}) {
			t.Errorf("the loaders were asked for %d after the silence", got)
		}
	})
}

// TestAConstructorThatWasTakenForSilentGetsMoreTime: it answers while the loaders are asked, so it is asked again at
// once, and the next silence counts later.
func TestAConstructorThatWasTakenForSilentGetsMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, second := pair(t)
		defer w.close()
		rng := rand.New(rand.NewPCG(1, 2))
		second.slow = time.Hour // its way to the loaders
		second.tier.cfg.Feeds, second.feeds = []millrace.Rank{0}, []millrace.Rank{0}
		second.fetch(w.draw(rng, 0, 2, 2, 9))
		for step := range millrace.Step(3) {
			release := w.net.Hold(first.name, second.name)
			time.AfterFunc(700*time.Millisecond, release)
			second.fetch(w.draw(rng, step+1, 2, 2, 9))
		}
		if got := second.took(); !slices.Equal(got, []millrace.Rank{0}) {
			t.Errorf("the loaders were asked for %d, want once for rank 0", got)
		}
	})
}

// TestASlowConstructorIsLeftAlone when the loaders were sooner several times, though they were asked later.
func TestASlowConstructorIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, second := pair(t)
		defer w.close()
		rng := rand.New(rand.NewPCG(1, 2))
		first.slow = time.Hour
		for step := range millrace.Step(mostSlow + 1) {
			began := time.Now()
			second.fetch(w.draw(rng, step, 2, 2, 9))
			if waited := time.Since(began) >= unknownLate; waited == (step == mostSlow) {
				t.Errorf("step %d took %v", step, time.Since(began))
			}
		}
	})
}

// TestAConstructorThatWaitsForLoadersIsAlive: its peer waits with it, up to a multiple of the usual time.
func TestAConstructorThatWaitsForLoadersIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, second := pair(t)
		defer w.close()
		rng := rand.New(rand.NewPCG(1, 2))
		first.slow, second.slow = 1500*time.Millisecond, 1500*time.Millisecond
		for step := range millrace.Step(12) {
			w.all(w.draw(rng, step, 2, 1, 9))
		}
		if got := second.took(); slices.Contains(got, 0) || len(got) != 12 {
			t.Errorf("the loaders were asked for %d", got)
		}
		first.set(func() { first.slow = time.Hour })
		began := time.Now()
		second.fetch(w.draw(rng, 12, 2, 1, 9))
		if took := time.Since(began); took < 7*time.Second || took > 8*time.Second {
			t.Errorf("with steps of 1.5 s, it waited %v", took)
		}
	})
}

// widthOf returns the bytes of an id of a reply's first row.
func widthOf(r *proto.FetchReply) uint32 {
	if len(r.Wide) > 0 && r.Wide[0] {
		return 4
	}
	return 2
}

// TestLongRowsAreCut into replies of bounded size.
func TestLongRowsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, second := pair(t)
		defer w.close()
		largest := 0
		first.altered = func(r *proto.FetchReply) { largest = max(largest, len(r.Tokens)) }
		rng := rand.New(rand.NewPCG(3, 4))
		second.fetch(w.draw(rng, 1, 2, 3, 900_000))
		if largest < replyBytes || largest >= replyBytes+4 {
			t.Errorf("the largest reply has %d bytes of tokens", largest)
		}
		if got := second.took(); !slices.Equal(got, []millrace.Rank{1}) {
			t.Errorf("the loaders were asked for %d", got)
		}
	})
}

// TestAMaskThatIsNotHereYet: the constructor has left out the row, so the peer asks the loaders, which wait for the
// mask.
func TestAMaskThatIsNotHereYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, second := pair(t)
		defer w.close()
		rng := rand.New(rand.NewPCG(1, 2))
		p := w.draw(rng, 1, 2, 2, 9)
		for len(p.Part(0, 0)) == 0 {
			p = w.draw(rng, 1, 2, 2, 9)
		}
		w.bad[p.Part(0, 0)[0].Ordinal] = true
		second.blind = true
		second.fetch(p)
		if got := second.took(); !slices.Equal(got, []millrace.Rank{0, 1}) {
			t.Errorf("the loaders were asked for %d", got)
		}
	})
}

// TestStepsStayForPeers: a constructor that is ahead keeps a step until its peers had it, within its room.
func TestStepsStayForPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, []millrace.Rank{0}, []millrace.Rank{0}, []millrace.Rank{0})
		defer w.close()
		first := w.hosts[0]
		rng := rand.New(rand.NewPCG(1, 2))
		first.tier.shelf.room = 3500 // of three steps
		for step := range millrace.Step(6) {
			first.fetch(w.draw(rng, step, 1, 2, 9))
		}
		if n := len(first.tier.shelf.items); n != 3 {
			t.Errorf("%d steps are kept", n)
		}
		for step := range millrace.Step(6) {
			w.hosts[1].fetch(w.plans[step])
		}
		if got := len(w.hosts[1].took()); got != 3 || len(first.took()) != 6 {
			t.Errorf("a peer asked the loaders for %d steps, want the 3 that are not kept", got)
		}
		w.hosts[2].fetch(w.plans[5])
		synctest.Wait() // for the end of its call
		if n := len(first.tier.shelf.items); n != 2 || first.tier.shelf.idle != 2000 {
			t.Errorf("%d steps with %d bytes are kept after all peers had one", n, first.tier.shelf.idle)
		}
		next := w.draw(rng, 6, 1, 2, 9)
		next.Attempt = 2
		first.fetch(next)
		if n := len(first.tier.shelf.items); n != 1 {
			t.Errorf("%d steps are kept after a new attempt", n)
		}
	})
}

// TestGroupsMove: the constructor leaves the group, and the next one takes its place.
func TestGroupsMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, []millrace.Rank{0}, []millrace.Rank{0}, []millrace.Rank{0})
		defer w.close()
		rng := rand.New(rand.NewPCG(1, 2))
		w.all(w.draw(rng, 0, 1, 2, 9))
		w.hosts[0].server.Stop()
		w.hosts[0].feeds = nil
		w.group()
		w.all(w.draw(rng, 1, 1, 2, 9))
		if a, b := len(w.hosts[1].took()), len(w.hosts[2].took()); a != 1 || b != 0 {
			t.Errorf("the loaders were asked %d and %d times", a, b)
		}
		w.hosts[2].feeds = nil
		w.group()
		w.all(w.draw(rng, 2, 1, 2, 9))
		if n := len(w.hosts[1].tier.shelf.items); len(w.hosts[1].took()) != 1 || n > 1 {
			t.Errorf("%d steps are kept of a host without peers", n)
		}
	})
}
