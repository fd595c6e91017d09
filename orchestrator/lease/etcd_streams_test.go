package lease_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/etcdtest"
	"millrace/orchestrator/lease/leasetest"
)

// TestEtcdOfStreams tests the lease of a run with several streams.
func TestEtcdOfStreams(t *testing.T) {
	x := &bench{T: t, cluster: etcdtest.Start(t, 1, nil)}
	x.client = x.cluster.Client()
	for name, test := range map[string]func(*bench){
		"contract of a further stream":   (*bench).furtherContract,
		"one election for all streams":   (*bench).oneElection,
		"journals of all streams listed": (*bench).allListed,
		"a stream is released":           (*bench).streamReleased,
	} {
		t.Run(name, func(t *testing.T) { test(&bench{T: t, cluster: x.cluster, client: x.client}) })
	}
}

// evaluating is a candidate that wants the further stream alone, and gives its part of the stream `train` back.
type evaluating struct{ *lease.Etcd }

// Acquire implements lease.Leaser.
func (e evaluating) Acquire(ctx context.Context, above millrace.Term) (lease.Lease, context.Context, error) {
	g, err := e.Elect(ctx)
	if err != nil {
		return nil, nil, err
	}
	g.Release()
	return g.Further("eval").Acquire(ctx, above)
}

// furtherContract: the part of a further stream keeps every promise of a lease.
func (x *bench) furtherContract() {
	leasetest.Contract(x.T, func(t *testing.T) leasetest.Run {
		x := &bench{T: t, cluster: x.cluster, client: x.client}
		c := x.config()
		return func() *leasetest.Process {
			has := &named{}
			c := c
			c.Further = []lease.Part{{Stream: "eval", Journal: has}}
			return &leasetest.Process{
				Has:     has.set,
				Leaser:  evaluating{x.candidate(c)},
				Journal: func(...lease.Plan) {},
				Depose: func() {
					key, _ := x.leader(c)
					if _, err := x.client.Delete(t.Context(), key); err != nil {
						t.Error(err)
					}
				},
				Exit: func() {},
			}
		}
	})
}

// elect elects a candidate with a journal for each stream.
func (x *bench) elect(c lease.EtcdConfig, within time.Duration, train, eval string) (*lease.Grant, error) {
	x.Helper()
	c.Journal, c.Further = &named{id: train}, []lease.Part{{Stream: "eval", Journal: &named{id: eval}}}
	ctx, cancel := context.WithCancel(x.Context())
	late := time.AfterFunc(within, cancel)
	g, err := x.candidate(c).Elect(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	late.Stop()
	x.Cleanup(func() { g.Release(); g.Further("eval").Release(); cancel() })
	return g, nil
}

// leases returns the leases of both streams.
func (x *bench) leases(g *lease.Grant) (train, eval lease.Keeper) {
	x.Helper()
	var out []lease.Keeper
	for _, of := range []*lease.Grant{g, g.Further("eval")} {
		l, _, err := of.Acquire(x.Context(), 0)
		if err != nil {
			x.Fatal(err)
		}
		out = append(out, l.(lease.Keeper))
	}
	return out[0], out[1]
}

// oneElection: whoever has the lease commits plans of all streams under one term, and loses all at once.
func (x *bench) oneElection() {
	c := x.config()
	g, err := x.elect(c, 30*time.Second, "a", "b")
	if err != nil {
		x.Fatal(err)
	}
	train, eval := x.leases(g)
	if train.Term() != eval.Term() {
		x.Errorf("the terms are %d and %d", train.Term(), eval.Term())
	}
	x.commits(train, nil, plan(1, 1))
	x.commits(eval, nil, plan(1, 2)) // steps of another stream
	for _, stream := range []string{"train", "eval"} {
		key := "millrace/" + c.Run + "/" + stream + "/plans/0000000001/00000000000000000001"
		if got, err := x.client.Get(x.Context(), key); err != nil || len(got.Kvs) != 1 {
			x.Errorf("%s: %v, %v", key, got, err)
		}
	}
	key, _ := x.leader(c)
	if _, err := x.client.Delete(x.Context(), key); err != nil {
		x.Fatal(err)
	}
	x.commits(eval, millrace.ErrFenced, plan(2, 2))
	x.commits(train, millrace.ErrFenced, plan(2, 1))
}

// allListed: a candidate whose journal of one stream lacks steps is not elected for any, and says which stream it is.
func (x *bench) allListed() {
	c := x.config()
	g, err := x.elect(c, 30*time.Second, "a", "b")
	if err != nil {
		x.Fatal(err)
	}
	train, eval := x.leases(g)
	lists := func(l lease.Keeper, names ...string) {
		x.Helper()
		var all []lease.Journal
		for _, name := range names {
			all = append(all, lease.Journal{ID: name, Host: "host-" + name})
		}
		if err := l.List(x.Context(), all); err != nil {
			x.Fatal(err)
		}
	}
	lists(train, "a", "c")
	lists(eval, "b")
	g.Release()
	g.Further("eval").Release()
	var lines reasons
	c.Frozen = lines.add
	for _, of := range [][2]string{{"c", "d"}, {"x", "b"}, {"a", "d"}} {
		if _, err := x.elect(c, 500*time.Millisecond, of[0], of[1]); !errors.Is(err, context.Canceled) {
			x.Errorf("journals %v: %v", of, err)
		}
	}
	text := lines.text()
	for _, want := range []string{"journal of stream eval lacks steps that host-b has",
		"this host's journal lacks steps that host-a and host-c have: start"} {
		if !strings.Contains(text, want) {
			x.Errorf("the reasons are %q, without %q", text, want)
		}
	}
	waits, told := make(chan error, 1), make(chan struct{})
	late := c
	tell := sync.OnceFunc(func() { close(told) })
	late.Frozen = func(string) { tell() }
	go func() { // read below
		_, err := x.elect(late, 30*time.Second, "c", "d")
		waits <- err
	}()
	<-told // it waits
	if g, err = x.elect(c, 30*time.Second, "a", "b"); err != nil {
		x.Fatal(err)
	}
	_, eval = x.leases(g)
	lists(eval, "b", "d")
	g.Release()
	g.Further("eval").Release()
	if err := <-waits; err != nil {
		x.Errorf("a candidate whose journal of the further stream was listed while it waited: %v", err)
	}
}

// streamReleased: the process leads until it has released all streams.
func (x *bench) streamReleased() {
	c := x.config()
	g, err := x.elect(c, 30*time.Second, "a", "b")
	if err != nil {
		x.Fatal(err)
	}
	train, eval := x.leases(g)
	eval.Release()
	x.commits(eval, millrace.ErrFenced, plan(1, 2))
	x.commits(train, nil, plan(1, 1))
	if _, term := x.leader(c); term == 0 {
		x.Error("the election key is gone with one stream")
	}
	train.Release()
	x.commits(train, millrace.ErrFenced, plan(2, 1))
	if _, term := x.leader(c); term != 0 {
		x.Error("the election key stays after the last stream")
	}
}
