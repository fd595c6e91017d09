package orchestrator

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"millrace"
	"millrace/checkpoint"
	"millrace/checkpoint/disk/disktest"
	"millrace/orchestrator/facts"
	"millrace/proto"
)

// kept is a world whose facts also go into a real store, as the loop writes them.
type kept struct {
	*world
	disk  *disktest.Disk
	store *checkpoint.Store
	o     *Orchestrator
	// expect has the contents that restored machines planned for a step, by attempt/step.
	expect map[string]string
	took   map[int]position // by rank
	whole  *facts.State     // of the same facts; it keeps all changes of the mixture
	older  []*facts.RunState
	// starts counts compared starts at older states, settled those that needed changes from the ledger.
	starts, settled int
}

// position is the first step of an attempt that a rank has not consumed.
type position struct {
	attempt uint32
	below   uint64
}

func keep(t *testing.T, w *world) *kept {
	k := &kept{world: w, disk: disktest.NewMemory(), expect: map[string]string{}, took: map[int]position{},
		whole: facts.NewState()}
	k.store = openStore(t, k.disk)
	t.Cleanup(func() {
		if err := k.store.Close(); err != nil {
			t.Error(err)
		}
	})
	k.o = &Orchestrator{cfg: w.cfg, opt: Options{Store: k.store, Lines: io.Discard, Snapshots: snapshotEvery}, m: w.m}
	w.commit = func(made []facts.Fact) {
		if err := k.o.commit(made); err != nil {
			t.Fatal(err)
		}
		for _, f := range made {
			k.whole.Apply(f)
		}
	}
	w.commit(w.journal)
	return k
}

// crash returns the store as a power cut would leave it now.
func (k *kept) crash() *checkpoint.Store {
	store, err := checkpoint.Open(checkpoint.Config{Dir: "journal", Disk: disktest.Crash(k.disk, 0, 1)})
	if err != nil {
		k.t.Fatal(err)
	}
	return store
}

// check compares the store with the state in memory, and lets a restored machine plan one step further than the run.
func (k *kept) check(what string) {
	k.t.Helper()
	store := k.crash()
	defer store.Close()
	s, _, err := facts.Read(store, millrace.Train, k.cfg.Spec)
	if err != nil {
		k.t.Fatalf("after %s: %v", what, err)
	}
	k.checkChanges(what, s)
	if got, want := snapshotBytes(k.t, s), snapshotBytes(k.t, k.m.s); got != want || s.Next != k.m.s.Next ||
		text(s.Base) != text(k.m.s.Base) ||
		text(s.Tail()) != text(k.m.s.Tail()) {
		k.t.Fatalf("after %s: the store says %s, it is %s", what, s, k.m.s)
	}
	if k.m.s.Attempt != nil {
		base := k.m.s.Base
		if saved, err := facts.ReadSaved(base.Encode()); err != nil || !saved.Planner.Equal(base.Planner) {
			k.t.Fatalf("after %s: the planner stands at %s, its text is of another state (%v)", what, base.Planner, err)
		}
	}
	ahead := &world{t: k.t, cfg: k.cfg, records: k.records, reject: k.reject}
	ahead.cfg.Runway++
	if ahead.m, err = NewMachine(ahead.cfg, s); err != nil {
		k.t.Fatal(err)
	}
	ahead.connect()
	for step, contents := range ahead.contents()[uint32(s.CurrentAttempt())] {
		k.expect[fmt.Sprint(s.CurrentAttempt(), "/", step)] = contents
	}
}

// checkChanges compares starts at older states with those of a state that keeps all changes of the mixture.
func (k *kept) checkChanges(what string, s *facts.State) {
	if s.Attempt == nil {
		return
	}
	k.older, k.starts = append(k.older, s.Base), k.starts+1
	at := k.older[k.starts*7919%len(k.older)]
	want, err := k.whole.Forward(at)
	if err != nil {
		k.t.Fatal(err)
	}
	got, err := s.Forward(at)
	if err != nil || text(got) != text(want) {
		k.t.Fatalf("after %s: a start at step %d has %s, want %s: %v", what, at.NextStep(), text(got), text(want), err)
	}
	if s.Settled > at.NextStep() {
		k.settled++
	}
}

// reborn goes on from the store with a new machine, as after a crash.
func (k *kept) reborn() {
	s, _, err := facts.Read(k.store, millrace.Train, k.cfg.Spec)
	if err != nil {
		k.t.Fatal(err)
	}
	if k.m, err = NewMachine(k.cfg, s); err != nil {
		k.t.Fatal(err)
	}
	k.o.m = k.m
	k.apply(
		journal(facts.Fact{Record: &proto.Record{Fact: &proto.Record_Term{Term: &proto.TermTaken{Term: s.Term + 1}}}}))
	k.connect()
}

// takeOne lets a rank consume its next step.
func (k *kept) takeOne(rank int) {
	at := position{attempt: uint32(k.m.s.CurrentAttempt()), below: k.m.s.Watermark}
	if k.took[rank].attempt == at.attempt {
		at.below = max(at.below, k.took[rank].below)
	}
	k.m.Committed(k.sidecar, &proto.Commit{Rank: uint32(rank), Attempt: at.attempt, Step: at.below})
	at.below++
	k.took[rank] = at
}

// act lets a random event of a run happen, and names it.
func (k *kept) act(rng *rand.Rand) string {
	s := k.m.s
	switch n := rng.IntN(28); {
	case n < 11:
		for range 1 + rng.IntN(2) {
			for r := range k.cfg.Ranks {
				k.takeOne(r)
			}
			k.turn()
		}
		return "a step that all ranks consumed"
	case n < 14:
		r := rng.IntN(k.cfg.Ranks)
		k.takeOne(r)
	case n < 16:
		k.m.saves.observe(s.Watermark)
	case n < 18:
		o := rng.Uint64N(50)
		mask := &proto.Mask{
			Source:  sourceNames[rng.IntN(2)],
			Ordinal: o,
			Length:  3,
			Attempt: uint32(s.CurrentAttempt()),
			Step:    s.Watermark,
		}
		mask.Sample = &proto.Quarantine{Source: mask.Source, Ordinal: o, Reason: "damaged"}
		k.apply(
			journal(
				facts.Fact{
					Record: &proto.Record{
						Fact: &proto.Record_Masked{Masked: &proto.Masked{Masks: []*proto.Mask{mask}}},
					},
				},
			),
		)
	case n < 19:
		k.joinAll([]string{"fresh", "latest"}[rng.IntN(2)], nil)
		return "all ranks anew"
	case n < 20:
		if s.Watermark > 1 {
			k.joinAll("state", state(k.t, k.world, 1+rng.Uint64N(s.Watermark)))
			return "back to an older state"
		}
	case n < 21:
		k.reborn()
		return "a crash"
	case n < 25:
		k.mix(rng)
		return "a change of the mixture"
	default:
		if err := k.o.snapshot(); err != nil {
			k.t.Fatal(err)
		}
		return "a snapshot"
	}
	k.turn()
	return fmt.Sprint("fact ", len(k.journal))
}

// mix changes the mixture at random. It forgets the expected contents of the steps that the change affects.
func (k *kept) mix(rng *rand.Rand) {
	r := randomMix(rng, k.m.s.Next)
	before := len(k.m.s.Mixed)
	k.m.Mix(r, func(*proto.MixReply, error) {})
	k.turn()
	if s := k.m.s; len(s.Mixed) > before {
		for key := range k.expect {
			var attempt uint32
			var step uint64
			if fmt.Sscanf(key, "%d/%d", &attempt, &step); attempt == uint32(s.CurrentAttempt()) &&
				step >= s.Mixed[before].AtStep {
				delete(k.expect, key)
			}
		}
	}
}

// TestTheStoreIsTheState: after any history of attempts, masks, commits, ends, crashes and snapshots, the newest
// snapshot and the records after it give the same state. The restored machine plans the step that the run plans next.
func TestTheStoreIsTheState(t *testing.T) {
	seen, met, attempts, ends, settled, cuts := map[string]int{}, 0, uint32(0), 0, 0, 0
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 77))
		w := newWorld(t, 2)
		w.records = []uint64{0, 60, 140, 400}[seed%4]
		if seed >= 4 {
			w.cfg.Spec.Window, w.cfg.Spec.Carry = 3, 8
			w.restart()
		}
		w.reject = func(source string, o uint64) string {
			if source == "web" && o == 5 {
				return "invalid JSON"
			}
			return ""
		}
		for i := range w.cfg.Sources {
			w.cfg.Sources[i].Allowed = func(bool, uint64) uint64 { return 1 << 30 }
		}
		k := keep(t, w)
		k.check("creation")
		k.connect()
		k.check("opened sources")
		k.joinAll("fresh", nil)
		for range 90 {
			what := k.act(rng)
			seen[what]++
			k.check(what)
			if k.m.s.Ended != nil {
				ends++
			}
		}
		settled, cuts = settled+k.settled, cuts+len(k.m.s.Cuts)
		for attempt, steps := range k.contents() {
			for step, contents := range steps {
				if want := k.expect[fmt.Sprint(attempt, "/", step)]; want != "" {
					met++
					if want != contents {
						t.Fatalf("seed %d: attempt %d, step %d holds %s, the restored machine said %s", seed, attempt,
							step, contents, want)
					}
				}
			}
			attempts = max(attempts, attempt)
		}
	}
	t.Logf("%d plans foretold, %d attempts, %d moments after an end, %v", met, attempts, ends, len(seen))
	t.Logf("%d starts with changes from the ledger, %d cuts", settled, cuts)
	if met < 50 || attempts < 4 || ends == 0 || settled < 20 || cuts < 4 || seen["a crash"] == 0 ||
		seen["a snapshot"] == 0 ||
		seen["back to an older state"] == 0 ||
		seen["a change of the mixture"] == 0 {
		t.Errorf("the histories hold too little: %d plans foretold, %d attempts, %d ends, %v", met, attempts, ends,
			seen)
	}
}
