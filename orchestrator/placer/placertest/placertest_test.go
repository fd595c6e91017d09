package placertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/orchestrator/placer"
)

// fake is an engine of two hosts in memory. A fault makes it break one promise.
type fake struct {
	mu     sync.Mutex
	fault  string
	goal   map[string]placer.Wanted
	there  []placer.Instance
	marks  map[string]string // by name
	asked  map[string]bool   // by mark
	starts int
	looks  int // since the last goal
}

func newFake(fault string) *fake {
	return &fake{fault: fault, goal: map[string]placer.Wanted{}, marks: map[string]string{}, asked: map[string]bool{}}
}

func (f *fake) engine() Engine {
	return Engine{
		Placer: f, Name: "fake", Role: "loader", Beside: "shadow", Hosts: 2,
		Spread:   &placer.Wanted{Role: "shadow", Count: 2, Apart: "shadow"},
		Identity: f.identity, Kill: f.kill,
		Asked: func(mark string) bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.asked[mark]
		},
		Patience: 50 * time.Millisecond, Calm: 20 * time.Millisecond,
	}
}

func (f *fake) Apply(ctx context.Context, desired placer.Desired) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil && f.fault != "deaf" {
		if f.fault == "hasty" {
			f.take(desired)
		}
		return err
	}
	if err := f.refusal(desired); err != nil {
		if f.fault == "half" {
			f.take(placer.Desired{Roles: desired.Roles[:1]})
		}
		return err
	}
	if f.fault == "forgetful" {
		for role, w := range f.goal {
			w.Count = 0
			f.goal[role] = w
		}
	}
	f.take(desired)
	return nil
}

func (f *fake) refusal(desired placer.Desired) error {
	text := "fake: role %s: nobody can run %d of these: name another role"
	if f.fault == "terse" {
		text = "fake: role %s: %d"
	}
	seen := map[string]bool{}
	for _, w := range desired.Roles {
		switch {
		case f.fault == "obedient":
		case w.Role != "loader" && w.Role != "shadow", w.Count < 0, seen[w.Role]:
			if f.fault == "nameless" {
				return errors.New("it cannot be: ask for less than that")
			}
			return fmt.Errorf(text, w.Role, w.Count)
		}
		seen[w.Role] = true
	}
	return nil
}

func (f *fake) take(desired placer.Desired) {
	f.looks = 0
	for _, w := range desired.Roles {
		f.goal[w.Role] = w
		if f.fault == "restless" {
			f.there = slices.DeleteFunc(f.there, func(i placer.Instance) bool { return i.Role == w.Role })
		}
	}
	f.move()
}

// move starts and ends processes until the goal is reached.
func (f *fake) move() {
	f.there = slices.DeleteFunc(f.there, func(i placer.Instance) bool { return i.State == placer.Pending })
	for role, w := range f.goal {
		for i := range w.Count {
			f.start(w, fmt.Sprintf("%s-%d", role, i))
		}
		f.there = slices.DeleteFunc(f.there, func(i placer.Instance) bool {
			last := ordinal(i.Name) >= w.Count
			if f.fault == "lowest" && w.Count > 0 {
				last = ordinal(i.Name) < Room-w.Count
			}
			if i.Role != role || !last || f.fault == "hoarder" {
				return false
			}
			f.asked[f.marks[i.Name]] = f.fault != "rude"
			return true
		})
	}
}

func (f *fake) start(w placer.Wanted, name string) {
	if f.fault == "lazy" && ordinal(name) == 2 || f.fault == "double" && ordinal(name) == 3 {
		name = w.Role + "-1"
	}
	if slices.ContainsFunc(f.there, func(i placer.Instance) bool { return i.Name == name }) && f.fault != "double" {
		return
	}
	f.starts++
	f.marks[name] = fmt.Sprint(f.starts)
	i := placer.Instance{Role: w.Role, Name: name, Host: "a", State: placer.Pending}
	for _, host := range []string{"a", "b"} {
		crowded := slices.ContainsFunc(f.there, func(o placer.Instance) bool {
			return o.Role == w.Apart && o.Host == host && o.State == placer.Running
		})
		if !crowded || f.fault == "crowding" {
			i.Host, i.State = host, placer.Running
		}
	}
	f.there = append(f.there, i)
}

func (f *fake) Observe(ctx context.Context) ([]placer.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil && f.fault != "blind" {
		return nil, err
	}
	if f.looks++; f.fault == "haunted" && f.looks == 2 {
		f.start(placer.Wanted{Role: "loader"}, fmt.Sprintf("loader-%d", f.starts))
	}
	return slices.Clone(f.there), nil
}

func (f *fake) identity(name string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.marks[name], nil
}

func (f *fake) kill(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fault == "immortal" {
		return nil
	}
	f.there = slices.DeleteFunc(f.there, func(i placer.Instance) bool {
		return i.Name == name || f.fault == "fragile" && i.Role == "loader"
	})
	switch f.fault {
	case "careless":
	case "renaming":
		f.start(placer.Wanted{Role: "loader"}, "loader-9")
	default:
		f.move()
	}
	return nil
}

func TestARightEngineKeepsEveryPromise(t *testing.T) {
	Run(t, func(*testing.T) Engine { return newFake("").engine() })
	lonely := newFake("").engine()
	lonely.Beside, lonely.Spread = "", nil
	Run(t, func(*testing.T) Engine { return lonely })
}

// TestEveryPromiseCanBreak: each check finds the engines that break its promise.
func TestEveryPromiseCanBreak(t *testing.T) {
	broken := map[string]bool{}
	for _, c := range []struct{ fault, promise, why string }{
		{"lazy", "it runs as many as wanted", "2 instances"},
		{"double", "it runs as many as wanted", "two instances have the name"},
		{"hoarder", "it runs none", "want 0"},
		{"restless", "the same goal changes nothing", "changed from"},
		{"restless", "more are added to those that exist", "was the process"},
		{"lowest", "the highest are asked and leave", "want the lowest two"},
		{"rude", "the highest are asked and leave", "nobody asked it"},
		{"restless", "the highest are asked and leave", "was the process"},
		{"haunted", "a process that leaves is not replaced", "nothing should change"},
		{"immortal", "a dead process comes back", "is still there"},
		{"careless", "a dead process comes back", "want 3"},
		{"renaming", "a dead process comes back", "came back"},
		{"fragile", "a dead process comes back", "was the process"},
		{"forgetful", "roles that are not listed stay", "nothing should change"},
		{"obedient", "a refused goal changes nothing", "was accepted"},
		{"nameless", "a refused goal changes nothing", "does not name"},
		{"terse", "a refused goal changes nothing", "cure"},
		{"half", "a refused goal changes nothing", "nothing should change"},
		{"deaf", "a cancelled request changes nothing", "apply with a cancelled"},
		{"blind", "a cancelled request changes nothing", "observe with a cancelled"},
		{"hasty", "a cancelled request changes nothing", "nothing should change"},
		{"double", "goals from several callers", "two instances"},
		{"crowding", "processes stay apart", "both run on host"},
		{"crowding", "a process that cannot be apart waits", "both run on host"},
	} {
		broken[c.promise] = true
		err := promises()[c.promise](newCheck(t.Context(), newFake(c.fault).engine()))
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("an engine that is %s: %q says %v, want %q", c.fault, c.promise, err, c.why)
		}
	}
	for promise := range promises() {
		if !broken[promise] {
			t.Errorf("no broken engine for %q", promise)
		}
	}
}
