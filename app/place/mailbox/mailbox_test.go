package mailbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"millrace"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/etcdtest"
	"millrace/orchestrator/placer"
)

// leader is a process that plans the run "r" in a cluster of one member.
type leader struct {
	etcd *clientv3.Client
	cfg  lease.EtcdConfig
	term millrace.Term
}

func newLeader(t *testing.T) *leader {
	cluster := etcdtest.Start(t, 1, nil)
	l := &leader{etcd: cluster.Client()}
	l.cfg = lease.EtcdConfig{Run: "r", Stream: millrace.Train, Endpoints: cluster.URLs()}
	e, err := lease.NewEtcd(l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	held, _, err := e.Acquire(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Release)
	l.term = held.Term()
	return l
}

func (l *leader) placer(own ...placer.Instance) *Placer {
	return New(l.etcd, l.cfg, own, func() millrace.Term { return l.term })
}

func loaders(n int) placer.Desired {
	return placer.Desired{Roles: []placer.Wanted{{Role: "loader", Count: n, CPU: 500}}}
}

// TestGoalsAndProcesses: a goal reaches the engine once, and what the engine says is observed. After the term, nothing
// is written.
func TestGoalsAndProcesses(t *testing.T) {
	l := newLeader(t)
	own := placer.Instance{Role: "loader", Name: "loader-0-0", Host: "b", State: placer.Running}
	p := l.placer(own)
	in, says := io.Pipe()
	hears, out := io.Pipe()
	kept := make(chan error, 1)
	go func() { kept <- Keep(t.Context(), l.etcd, l.cfg, in, out) }()
	goals := bufio.NewScanner(hears)
	for _, n := range []int{2, 2, 5} {
		if err := p.Apply(t.Context(), loaders(n)); err != nil {
			t.Fatal(err)
		}
		if err := p.Apply(t.Context(), placer.Desired{}); err != nil { // it lists no role
			t.Fatal(err)
		}
	}
	for goals.Scan() && goals.Text() != `{"roles":[{"role":"loader","count":4,"cpu_millis":500,"first":1}]}` {
		if !strings.Contains(goals.Text(), `"count":1,`) {
			t.Errorf("the engine reads %s", goals.Text())
		}
	}
	if got, err := p.Observe(t.Context()); !slices.Equal(got, []placer.Instance{own}) || err != nil {
		t.Errorf("before the engine says anything: %v, %v", got, err)
	}
	fmt.Fprintln(says, `[{"role":"loader","name":"loader-1","host":"a","state":"running"}]`)
	want := []placer.Instance{{Role: "loader", Name: "loader-1", Host: "a", State: placer.Running}, own}
	for got, err := p.Observe(t.Context()); !slices.Equal(got, want); got, err = p.Observe(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	l.term++
	if err := p.Apply(t.Context(), loaders(7)); !errors.Is(err, millrace.ErrFenced) {
		t.Errorf("in another term: %v", err)
	}
	says.Close()
	if err := <-kept; err != nil {
		t.Error(err)
	}
}

// TestRefusedGoals: the error names the engine, the role and the cure.
func TestRefusedGoals(t *testing.T) {
	p := New(nil, lease.EtcdConfig{}, nil, nil)
	for cure, bad := range map[string][]placer.Wanted{
		"ask for the role loader":    {{Role: "loader", Count: 1}, {Role: "sidecar", Count: 1}},
		"ask for 0 or more":          {{Role: "loader", Count: -1}},
		"name each role once":        {{Role: "loader", Count: 1}, {Role: "loader", Count: 2}},
		"ask for them without apart": {{Role: "loader", Count: 1, Apart: "loader"}},
	} {
		err := p.Apply(context.Background(), placer.Desired{Roles: bad})
		if !errors.Is(err, millrace.ErrInvalid) || !strings.HasSuffix(err.Error(), cure) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
