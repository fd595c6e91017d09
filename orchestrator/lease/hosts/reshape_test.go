package hosts

import (
	"context"
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"millrace"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/etcdtest"
)

// TestHostsTakeAnotherWorldOneByOne: a host with other ranks does not collide with one that has not changed yet. Of the
// hosts of one shape, all agree.
func TestHostsTakeAnotherWorldOneByOne(t *testing.T) {
	cluster := etcdtest.Start(t, 1, nil)
	cfg := lease.EtcdConfig{Run: "r", Stream: millrace.Train, Endpoints: cluster.URLs()}
	var all []*Membership
	for _, first := range []int{0, 2} {
		h := sample(first)
		h.World = 4
		m, err := Join(t.Context(), cfg, h)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Leave()
		all = append(all, m)
	}
	reshape := func(host, first, ranks, world int, axes, refusal string) {
		t.Helper()
		err := all[host].Reshape(t.Context(), first, ranks, world, axes)
		if refusal == "" && err != nil || refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)) {
			t.Fatalf("%v, want %q", err, refusal)
		}
	}
	reshape(0, 1, 1, 2, "0 0 2", "") // rank 1 is one of no other host of this shape
	reshape(1, 1, 1, 2, "0 0 2", "give each host its own --first-rank")
	reshape(1, 0, 1, 2, "0 0 2", "")
	listed, err := all[0].List(t.Context())
	if err != nil || len(listed) != 2 || listed[0].First != 1 || listed[1].First != 0 || listed[1].Shape != 1 {
		t.Fatalf("%v: %+v", err, listed)
	}
	reshape(1, 0, 5, 4, "", "--first-rank + --ranks to be at most")
	reshape(0, 0, 2, 4, "", "")
	reshape(1, 2, 2, 4, "", "")
	if a, b := all[0].Host(), all[1].Host(); a.Shape != 2 || b.Shape != 2 || b.Began != 2 {
		t.Errorf("%+v, %+v", a, b)
	}
}

// TestAHostThatComesTakesTheNewestShape: its --world-size must be the newest one, and it adopts the axes.
func TestAHostThatComesTakesTheNewestShape(t *testing.T) {
	there, _ := sample(0).agree(nil)
	there = there.reshaped(nil, 0, 1, 2, "0 0 2")
	comes := sample(4)
	comes.Ranks, comes.First, comes.World = 1, 1, 2
	got, err := comes.agree([]Host{there})
	if err != nil || got.Shape != 1 || got.Axes != "0 0 2" {
		t.Errorf("%v: %+v", err, got)
	}
	comes.First = 0 // the names of its processes are those of a host that began with it
	if _, err := comes.agree([]Host{there}); err == nil {
		t.Error("two hosts have one rank")
	}
	comes.First, comes.World = 2, 6
	if _, err := comes.agree([]Host{there}); err == nil || !strings.Contains(err.Error(), "--world-size is 6, not 2") {
		t.Error(err)
	}
}

// TestTheAnswerToOtherRanksIsLost: etcd registers the ranks, and the answer is lost twice. Meanwhile another host takes
// the same world. Reshape asks again, and both hosts have one shape.
func TestTheAnswerToOtherRanksIsLost(t *testing.T) {
	cluster := etcdtest.Start(t, 1, nil)
	cfg := lease.EtcdConfig{Run: "r", Stream: millrace.Train, Endpoints: cluster.URLs()}
	join := func(first int) *Membership {
		h := sample(first)
		h.World = 4
		m, err := Join(t.Context(), cfg, h)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Leave)
		return m
	}
	a, b := join(0), join(2)
	lost := 0
	a.etcd.KV = deaf{a.etcd.KV, func() bool {
		if lost++; lost == 1 {
			if err := b.Reshape(t.Context(), 0, 1, 2, "0 0 2"); err != nil {
				t.Error(err)
			}
		}
		return lost <= 2
	}}
	if err := a.Reshape(t.Context(), 1, 1, 2, "0 0 2"); err != nil {
		t.Fatal(err)
	}
	listed, err := b.List(t.Context())
	if err != nil || lost != 3 || len(listed) != 2 || listed[0] != a.Host() || listed[1] != b.Host() {
		t.Fatalf("%v after %d answers: etcd has %+v", err, lost, listed)
	}
	for i, h := range listed {
		if h.First != 1-i || h.World != 2 || h.Shape != 1 {
			t.Errorf("host %d is %+v", i, h)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	a.etcd.KV = deaf{a.etcd.KV, func() bool { cancel(); return true }}
	if err := a.Reshape(ctx, 0, 2, 4, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without any answer: %v", err)
	}
}

// deaf loses the answers to transactions that etcd has carried out, as long as loses says so.
type deaf struct {
	clientv3.KV
	loses func() bool
}

func (d deaf) Txn(ctx context.Context) clientv3.Txn { return deafTxn{d.KV.Txn(ctx), d.loses} }

type deafTxn struct {
	clientv3.Txn
	loses func() bool
}

func (d deafTxn) If(all ...clientv3.Cmp) clientv3.Txn  { return deafTxn{d.Txn.If(all...), d.loses} }
func (d deafTxn) Then(all ...clientv3.Op) clientv3.Txn { return deafTxn{d.Txn.Then(all...), d.loses} }

func (d deafTxn) Commit() (*clientv3.TxnResponse, error) {
	made, err := d.Txn.Commit()
	if err == nil && d.loses() {
		return nil, context.DeadlineExceeded
	}
	return made, err
}
