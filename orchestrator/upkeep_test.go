package orchestrator

import (
	"errors"
	"strings"
	"testing"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/checkpoint"
	"millrace/checkpoint/disk/disktest"
	"millrace/orchestrator/facts"
	"millrace/proto"
)

func problems(t *testing.T, store *checkpoint.Store) (out []string) {
	t.Helper()
	if err := VerifyLedger(store, millrace.Train, func(p string) { out = append(out, p) }); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestABrokenChainNamesAttemptAndStep: every restore and verify finds a step whose delta, content or predecessor
// differs from the sealed one, even if each value in the store has its checksum.
func TestABrokenChainNamesAttemptAndStep(t *testing.T) {
	for name, spoil := range map[string]func(*proto.Sealed, *proto.Plan){
		"nothing": func(*proto.Sealed, *proto.Plan) {},
		"delta":   func(s *proto.Sealed, p *proto.Plan) { s.Delta[len(s.Delta)-1] ^= 1; p.Delta = s.Delta },
		"content": func(s *proto.Sealed, p *proto.Plan) {
			s.Content = append([]byte{s.Content[0] ^ 1}, s.Content[1:]...)
			p.Content = s.Content
		},
		"chain": func(s *proto.Sealed, _ *proto.Plan) { s.Chain[3] ^= 1 },
	} {
		store := openStore(t, disktest.NewMemory())
		w := newWorld(t, 1)
		o := &Orchestrator{cfg: w.cfg, opt: Options{Store: store, Snapshots: snapshotEvery}, m: w.m}
		commit := func(made []facts.Fact) {
			for i, f := range made {
				if f.Plan != nil && f.Plan.Step == 2 {
					r, p := pbuf.Clone(f.Record).(*proto.Record), pbuf.Clone(f.Plan).(*proto.Plan)
					spoil(r.GetSealed(), p)
					made[i] = facts.Fact{Record: r, Plan: p}
				}
			}
			if err := o.commit(made); err != nil {
				t.Fatal(err)
			}
		}
		commit(w.journal)
		w.commit = func(made []facts.Fact) { commit(append([]facts.Fact{}, made...)) }
		w.connect()
		w.joinAll("fresh", nil)
		w.consume(4)
		_, _, err := facts.Read(store, millrace.Train, w.cfg.Spec)
		found := problems(t, store)
		if name == "nothing" {
			if err != nil || len(found) > 0 {
				t.Errorf("a sound store: %v, %v", err, found)
			}
		} else if !errors.Is(err, checkpoint.ErrCorrupt) || !strings.Contains(err.Error(), "of attempt 1") ||
			len(found) == 0 ||
			!strings.Contains(strings.Join(found, "\n"), "chain breaks at step") {
			t.Errorf("%s: %v; %v", name, err, found)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRetireKeepsTheState: a stopped run goes on at the same place after it has dropped old data.
func TestRetireKeepsTheState(t *testing.T) {
	store := openStore(t, disktest.NewMemory())
	defer store.Close()
	if err := Retire(store, millrace.Train); err != nil {
		t.Fatal(err)
	}
	p := newPlanned(t, plannedConfig(t, 3), store)
	p.reach(3 * retention)
	before, _, err := facts.Read(store, millrace.Train, p.cfg.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := Retire(store, millrace.Train); err != nil {
		t.Fatal(err)
	}
	after, _, err := facts.Read(store, millrace.Train, p.cfg.Spec)
	if err != nil || snapshotBytes(t, after) != snapshotBytes(t, before) {
		t.Errorf("%s became %s: %v", before, after, err)
	}
	if r, err := store.Verify(); err != nil || !r.OK() || r.Snapshots != 1 || r.Plans > retention+2*snapshotEvery ||
		r.Entries != 3*retention ||
		r.LedgerIndex < 4 {
		t.Errorf("the store holds %+v: %v", r, err)
	}
	if found := problems(t, store); len(found) > 0 {
		t.Errorf("%v", found)
	}
}
