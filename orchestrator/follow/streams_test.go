package follow

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"millrace/orchestrator/lease"
)

// both are the journals of a host in a run with the streams `train` and `eval`.
type both struct{ train, eval *host }

func (x *bench) both(name string) both {
	b := both{x.host(name), x.host(name)}
	b.eval.places = b.train.places
	return b
}

// candidate returns an elector with the journals of a host.
func (b both) candidate(train, eval *Follower) *lease.Etcd {
	x := b.train.x
	x.Helper()
	return x.etcd(b.train.name, train, lease.Part{Stream: "eval", Journal: eval})
}

// lead opens both journals under a grant.
func (b both) lead(ctx context.Context, g *lease.Grant) {
	b.train.lead(ctx, g)
	b.eval.lead(ctx, g.Further("eval"))
}

// leads makes the first leader of a run.
func (b both) leads() {
	b.train.x.Helper()
	ctx := b.train.x.Context()
	g, err := b.candidate(b.train.follower(nil, nil), b.eval.follower(nil, nil)).Elect(ctx)
	must(b.train.x, err)
	b.lead(ctx, g)
}

func (b both) leave() {
	b.train.leave()
	b.eval.leave()
}

// admit lists the copies of a leader that are in step, and waits until those of some hosts are, and no others.
func (b both) admit(stream string, names ...string) {
	x, h := b.train.x, b.train
	if stream == "eval" {
		h = b.eval
	}
	x.Helper()
	eventually(x, fmt.Sprint(names, " are listed in ", stream), func() bool {
		must(x, h.leader.Settle(x.Context()))
		must(x, h.leader.Admit(x.Context()))
		text := x.listedOf(stream)
		lacks := func(name string) bool { return !strings.Contains(text, name) }
		return !slices.ContainsFunc(names, lacks) && strings.Count(text, "host-") == len(names)
	})
}

// places: the same two hosts follow all streams, in whatever order they come. A host whose connection in one stream is
// lost keeps its place; one that is gone gives its place to the next.
func (x *bench) places() {
	leader := x.both("host-0")
	leader.leads()
	var ends [4][2]func()
	follow := func(i, stream int) {
		at, name := []*host{leader.train, leader.eval}[stream], fmt.Sprint("host-", i)
		_, ends[i][stream] = x.host(name).follows(at, &way{})
		eventually(x, name+" comes", func() bool {
			at.leader.mu.Lock()
			defer at.leader.mu.Unlock()
			return at.leader.has(name + " process")
		})
	}
	for _, next := range [][2]int{{1, 0}, {2, 1}, {3, 1}, {3, 0}, {2, 0}, {1, 1}} {
		follow(next[0], next[1])
	}
	leader.admit("train", "host-0", "host-1", "host-2")
	leader.admit("eval", "host-0", "host-1", "host-2")
	if got := leader.train.places.Copies(); got != 3 {
		x.Errorf("%d copies", got)
	}
	ends[1][1]()
	leader.eval.commit(step(1, 100))
	leader.admit("eval", "host-0", "host-2")
	if got := leader.train.places.Copies(); got != 2 {
		x.Errorf("%d copies, and host-1 has one of two journals", got)
	}
	follow(1, 1)
	leader.admit("eval", "host-0", "host-1", "host-2")
	ends[1][0]()
	ends[1][1]()
	leader.train.commit(step(1, 100))
	leader.eval.commit(step(2, 100))
	leader.admit("train", "host-0", "host-2", "host-3")
	leader.admit("eval", "host-0", "host-2", "host-3")
	leader.leave()
	for _, end := range ends[2:] {
		end[0]()
		end[1]()
	}
}

// streams: a host that is in step in one stream alone is not elected. One that is in step in all leads all of them, and
// has everything.
func (x *bench) streams() {
	leader, one, all := x.both("host-0"), x.both("host-1"), x.both("host-2")
	leader.leads()
	grants := make(chan *lease.Grant, 2)
	ctx, cancel := context.WithCancel(x.Context())
	var wg sync.WaitGroup
	stand := func(b both, w *way, out chan *lease.Grant) {
		train, eval := b.train.follower(leader.train, &way{}), b.eval.follower(leader.eval, w)
		wg.Go(func() {
			if g, err := Elect(ctx, b.candidate(train, eval), train, eval); err == nil {
				out <- g
			} else if ctx.Err() == nil {
				x.Errorf("elect %s: %v", b.train.name, err)
			}
		})
	}
	w, never := &way{}, make(chan *lease.Grant, 1)
	stand(one, w, never)
	stand(all, &way{}, grants)
	leader.admit("train", "host-0", "host-1", "host-2")
	leader.admit("eval", "host-0", "host-1", "host-2")
	w.Lock() // the acknowledgements of one stream do not arrive
	leader.eval.commit(step(1, 100))
	w.Unlock()
	leader.train.commit(step(1, 100))
	if train, eval := x.listed(), x.listedOf("eval"); !strings.Contains(train, "host-1") ||
		strings.Contains(eval, "host-1") || !strings.Contains(eval, "host-2") {
		x.Fatalf("listed are %s and %s", train, eval)
	}
	want := []string{dump(x, leader.train.store), dump(x, leader.eval.store)}
	leader.leave()
	g := <-grants
	all.lead(x.Context(), g)
	if got := []string{dump(x, all.train.store), dump(x, all.eval.store)}; !slices.Equal(got, want) {
		x.Errorf("the elected host lacks something: it has\n%s\nwant\n%s", got, want)
	}
	x.waitsFor("host-1", "on host-2 has it")
	all.leave()
	x.waitsFor("host-1", "this host's journal lacks steps") // nobody leads, and it is the only candidate
	select {
	case <-never:
		x.Error("a host with a stale copy of one stream was elected")
	default:
	}
	cancel()
	wg.Wait()
}
