package sim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace"
	"millrace/sidecar"
)

// trainer is one rank: it takes step after step, and remembers what it was given.
type trainer struct {
	s       *system
	rank    millrace.Rank
	attempt millrace.Attempt
	step    millrace.Step // not yet taken
	got     map[millrace.Step]string
	states  map[millrace.Step][]byte // run state after each step
}

// run takes the steps below until, from a declared start. A sidecar that is lost is none of its business: it goes on with the next.
func (x *trainer) run(start sidecar.Start, until millrace.Step) error {
	for {
		l, life := x.s.sidecar()
		err := x.steps(life, l, start, until)
		if err == nil || life.Err() == nil {
			return err
		}
		if x.attempt != 0 && start.Kind != sidecar.StartContinue {
			start = sidecar.Start{Kind: sidecar.StartContinue}
		}
		if start.Kind == sidecar.StartContinue {
			start.Attempt, start.Step = x.attempt, x.step
		}
		for l == x.current() {
			time.Sleep(time.Millisecond)
		}
	}
}

func (x *trainer) current() sidecar.Upstream {
	l, _ := x.s.sidecar()
	return l
}

func (x *trainer) steps(ctx context.Context, l interface {
	sidecar.Upstream
	sidecar.Fetcher
}, start sidecar.Start, until millrace.Step) error {
	b, err := l.Join(ctx, x.rank, start)
	if err != nil {
		return err
	}
	if start.Kind == sidecar.StartContinue && (b.Attempt != x.attempt || b.Step != x.step) {
		return fmt.Errorf("rank %d stood at step %d of attempt %d and goes on at %d of %d", x.rank, x.step, x.attempt, b.Step, b.Attempt)
	}
	x.attempt, x.step = b.Attempt, b.Step
	for x.step < until {
		x.s.pass()
		p, err := l.Plan(ctx, x.attempt, x.step)
		if err != nil {
			return err
		}
		x.s.pass()
		payload, err := l.Fetch(ctx, p.Plan, []millrace.Rank{x.rank})
		if err != nil {
			return err
		}
		if err := x.take(p, payload); err != nil {
			return err
		}
		x.step++
		x.s.pass()
		if err := l.Commit(ctx, x.rank, x.attempt, x.step-1); err != nil {
			return err
		}
	}
	return nil
}

// take notes a step's bytes. A step that comes again, in another attempt, has the same.
func (x *trainer) take(p *sidecar.StepPlan, payload sidecar.Payload) error {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s", p.Content, p.Placement)
	for micro := range p.Microbatches {
		tokens, err := payload.Tokens(x.rank, micro)
		if err != nil {
			return err
		}
		for i, a := range p.Part(x.rank, micro) {
			fmt.Fprintf(h, "%d/%d/%d %v", micro, a.Row, a.Start, tokens[i])
		}
	}
	payload.Release()
	sum := fmt.Sprintf("%x", h.Sum(nil)[:8])
	if was, ok := x.got[p.Step]; ok && was != sum {
		return fmt.Errorf("rank %d: step %d was %s, and is %s in attempt %d", x.rank, p.Step, was, sum, p.Attempt)
	}
	x.got[p.Step], x.states[p.Step+1] = sum, p.State
	return nil
}

// corpus writes the sources' files.
func corpus(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, source := range []string{"code", "web"} {
		rng := rand.New(rand.NewPCG(uint64(len(source)), 5))
		var text strings.Builder
		for range 500 {
			fmt.Fprintln(&text, 1+rng.IntN(500))
		}
		path := filepath.Join(dir, source, "a.jsonl")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// golden is what every seed delivers: a change means that all runs that exist go on with other bytes.
const golden = "b9c343b4711003f8ac916d9ef46a3094"

const seeds, steps = 200, 10

// TestKilledRolesChangeNoByte: whatever is killed and whenever, every rank gets the same bytes of every step, also after it goes back.
func TestKilledRolesChangeNoByte(t *testing.T) {
	dir := corpus(t)
	var strikes, lives atomic.Int64
	t.Cleanup(func() {
		if n, ran := strikes.Load(), lives.Load(); n < 4*ran {
			t.Errorf("only %d strikes in %d lives", n, ran)
		}
	})
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lives.Add(1)
				if got := live(t, dir, seed, &strikes); got != golden {
					t.Errorf("seed %d delivered %s, want %s", seed, got, golden)
				}
			})
		})
	}
}

// live is one run: to a step, back to a state on the way, on to the end; seed 0 is left in peace.
func live(t *testing.T, dir string, seed uint64, strikes *atomic.Int64) string {
	s := newSystem(t, dir, seed)
	defer func() { s.stop(); strikes.Add(s.strikes) }()
	var all [ranks]*trainer
	for r := range all {
		all[r] = &trainer{s: s, rank: millrace.Rank(r), got: map[millrace.Step]string{}, states: map[millrace.Step][]byte{}}
	}
	first := millrace.Step(2 + s.rng.IntN(5))
	s.phase(all, sidecar.Start{Kind: sidecar.StartFresh}, first, seed > 0)
	back := millrace.Step(1 + s.rng.IntN(int(first)))
	s.phase(all, sidecar.Start{Kind: sidecar.StartState, State: all[0].states[back]}, steps, seed > 0)
	h := sha256.New()
	for _, x := range all {
		for step := range millrace.Step(steps) {
			fmt.Fprintf(h, "%d %d %s\n", x.rank, step, x.got[step])
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// phase lets every rank run to a step while roles are killed, each strike beside what the trainers do then.
func (s *system) phase(all [ranks]*trainer, start sidecar.Start, until millrace.Step, storm bool) {
	var group sync.WaitGroup
	done := make(chan struct{})
	for _, x := range all {
		x.attempt = 0
		group.Go(func() {
			if err := x.run(start, until); err != nil && !errors.Is(err, context.Canceled) {
				s.t.Errorf("rank %d: %v", x.rank, err)
			}
		})
	}
	go func() { group.Wait(); close(done) }() // ends with the ranks, which are waited for
	for strikes := 0; storm && strikes < 3; strikes++ {
		s.next.Store(s.passed.Load() + 1 + s.rng.Int64N(9))
		select {
		case <-done:
			return
		case <-s.due:
			s.strikes++
			s.strike()
		}
	}
	<-done
}

// pass is a place in a trainer's life where something may be struck.
func (s *system) pass() {
	if s.passed.Add(1) == s.next.Load() {
		s.due <- struct{}{}
	}
}
