package hosts

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
)

func sample(first int) Host {
	return Host{Name: "a", Up: string(rune('p' + first)), First: first, Ranks: 2, World: 6, Loaders: 1 + first,
		Mixture: "0123456789abcdef", Program: "1"}
}

// TestHostsOfOneRunAgree: the first host decides, and a host that differs is refused with the fact and the cure.
func TestHostsOfOneRunAgree(t *testing.T) {
	first, err := sample(0).agree(nil)
	if err != nil || first.Incarnation == "" || first.Loaders != 1 {
		t.Fatalf("alone: %+v, %v", first, err)
	}
	second, err := sample(2).agree([]Host{first})
	if err != nil || second.Incarnation != first.Incarnation || second.Loaders != 1 {
		t.Fatalf("beside another: %+v, %v", second, err)
	}
	back, err := second.agree([]Host{second})
	if err != nil || back != second {
		t.Fatalf("again after all others: %+v, %v", back, err)
	}
	for cure, change := range map[string]func(*Host){
		"--world-size is 12":   func(h *Host) { h.World = 12 },
		"copy one mixture":     func(h *Host) { h.Mixture = "fedcba9876543210" },
		"millrace 2":           func(h *Host) { h.Program = "2" },
		"the other hosts beg":  func(h *Host) { h.Incarnation = "another" },
		"give each host its o": func(h *Host) { h.First, h.Ranks = 1, 5 },
	} {
		other := sample(4)
		change(&other)
		if _, err := other.agree([]Host{first, second}); err == nil || !strings.Contains(err.Error(), cure) {
			t.Errorf("%v does not say %q", err, cure)
		}
	}
}

// TestHostsWithoutRanks have a key of their name, which no other has. Hosts may have different numbers of ranks.
func TestHostsWithoutRanks(t *testing.T) {
	loader := Host{Name: "b", Up: "l", Role: "loader", Label: "loader-3", World: 6, Mixture: "0123456789abcdef",
		Program: "1", Loaders: 7, Readers: 7, Profile: "mine"}
	first := sample(0)
	first.Readers, first.Profile = 5, "first"
	first, _ = first.agree(nil)
	wide := sample(2)
	wide.Ranks = 4
	for _, h := range []Host{loader, wide} {
		if err := h.Validate(); err != nil {
			t.Error(err)
		}
		got, err := h.agree([]Host{first})
		if err != nil || got.Readers != 5 || got.Profile != "first" || got.Loaders != first.Loaders ||
			got.Incarnation != first.Incarnation {
			t.Errorf("%v: %+v", err, got)
		}
	}
	if key := loader.key("r"); key != "millrace/r/hosts/loader-3" {
		t.Error(key)
	}
	again := loader
	again.Up = "m"
	if _, err := again.agree([]Host{first, loader}); err == nil || !strings.Contains(err.Error(), "its own --name") {
		t.Errorf("%v does not name the cure", err)
	}
}

func TestRanksThatDoNotFitAreRefused(t *testing.T) {
	for _, h := range []Host{
		{Ranks: 2, World: 1}, {Ranks: 2, World: 4, First: 3}, {Ranks: 0, World: 1}, {Ranks: 2, World: 4, First: -2},
		{Label: "loader-3"}, {Label: "loader-3", World: 4, First: 2},
	} {
		if err := h.Validate(); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("%+v: %v", h, err)
		}
	}
}

// TestRegistration runs in a cluster of real members.
func TestRegistration(t *testing.T) {
	cluster := etcdtest.Start(t, 1, nil)
	cfg := lease.EtcdConfig{Run: "r", Stream: millrace.Train, Endpoints: cluster.URLs()}
	join := func(h Host) *Membership {
		t.Helper()
		m, err := Join(t.Context(), cfg, h)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a := join(sample(0))
	b := join(sample(2))
	defer b.Leave()
	if a.Host().Incarnation != b.Host().Incarnation {
		t.Error("two hosts of a run have two incarnations")
	}
	t.Run("waits for another world to be gone", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var kept sync.WaitGroup
		for _, m := range []*Membership{a, b} {
			kept.Go(func() { _ = m.Run(ctx) })
		}
		began := time.Now()
		_, err := Join(t.Context(), cfg, Host{Name: "c", Up: "z", First: 4, Ranks: 2, World: 8, Program: "1"})
		if !errors.Is(err, millrace.ErrMismatch) || time.Since(began) < deadFor {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		cancel()
		kept.Wait()
	})
	listed, err := b.List(t.Context())
	if err != nil || len(listed) != 2 || listed[0] != a.Host() || listed[1] != b.Host() {
		t.Fatalf("%v: %+v", err, listed)
	}
	t.Run("is made again", func(t *testing.T) { remade(t, a) })
	t.Run("passes to the next up", func(t *testing.T) {
		var why string
		cfg.Frozen = func(w string) { why += w }
		time.AfterFunc(time.Second, a.Leave)
		next := sample(0)
		next.Up = "next"
		m := join(next)
		defer m.Leave()
		said := "is dead, its registration ends by then; otherwise: etcd has ranks 0 to 1 on a"
		if !strings.Contains(why, said) || m.Host().Incarnation != b.Host().Incarnation {
			t.Errorf("%q, %+v", why, m.Host())
		}
	})
	t.Run("has an outcome", func(t *testing.T) { ended(t, b) })
}

// remade: a registration that etcd has ended is made again, with the same facts.
func remade(t *testing.T, m *Membership) {
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- m.Run(ctx) }()
	before := m.Host()
	if _, err := m.etcd.Revoke(t.Context(), m.lease); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(2 * renewEvery); ; time.Sleep(50 * time.Millisecond) {
		listed, err := m.List(t.Context())
		if err == nil && len(listed) == 2 && listed[0] == before {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%v: %+v", err, listed)
		}
	}
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// ended: an outcome reaches those who wait, and that of an earlier incarnation does not count.
func ended(t *testing.T, m *Membership) {
	if err := m.Record(t.Context(), Outcome{Incarnation: "earlier"}); err != nil {
		t.Fatal(err)
	}
	want := Outcome{Incarnation: m.Host().Incarnation, Reason: "a file is missing"}
	time.AfterFunc(300*time.Millisecond, func() {
		if err := m.Record(context.Background(), want); err != nil {
			t.Error(err)
		}
	})
	got, err := m.AwaitOutcome(t.Context(), want.Incarnation)
	if err != nil || got != want {
		t.Errorf("%v: %+v", err, got)
	}
}

// TestTheLeaderIsFound: the election key has its address.
func TestTheLeaderIsFound(t *testing.T) {
	cluster := etcdtest.Start(t, 1, nil)
	cfg := lease.EtcdConfig{Run: "r", Stream: millrace.Train, Endpoints: cluster.URLs(), Address: "10.0.0.1:9000"}
	client, err := Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if h, err := client.Leader(t.Context()); err != nil || h != (lease.Holder{}) {
		t.Errorf("before anyone leads: %v, %+v", err, h)
	}
	e, err := lease.NewEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	held, _, err := e.Acquire(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	if h, err := client.Leader(t.Context()); err != nil || h.Address != cfg.Address {
		t.Errorf("%v: %+v", err, h)
	}
}
