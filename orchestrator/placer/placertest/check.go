package placertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/orchestrator/placer"
)

// check is one check of an engine. Its methods return the broken promises of the engine.
type check struct {
	Engine
	ctx context.Context
}

func newCheck(ctx context.Context, e Engine) *check {
	e.Patience = cmp.Or(e.Patience, 30*time.Second)
	e.Calm = cmp.Or(e.Calm, 300*time.Millisecond)
	return &check{Engine: e, ctx: ctx}
}

// pause is the time between two looks at the engine.
const pause = 10 * time.Millisecond

// want returns a goal for one role.
func want(role string, count int) placer.Desired {
	return placer.Desired{Roles: []placer.Wanted{{Role: role, Count: count}}}
}

// crew is the identity of each running process of a role, by the instance's name.
type crew map[string]string

// names returns the names in the order of their ordinals.
func (c crew) names() []string {
	return slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Compare(ordinal(a), ordinal(b)) })
}

// ordinal returns the number at the end of a name, -1 if there is none.
func ordinal(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}

// look returns the instances of a role. Names are unique at any time.
func (c *check) look(role string) ([]placer.Instance, error) {
	all, err := c.Placer.Observe(c.ctx)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	seen := map[string]bool{}
	var out []placer.Instance
	for _, i := range all {
		if seen[i.Name] {
			return nil, fmt.Errorf("two instances have the name %s: %v", i.Name, all)
		}
		seen[i.Name] = true
		if i.Role == role {
			out = append(out, i)
		}
	}
	return out, nil
}

// unready is the error of a role that has not reached its goal yet.
type unready struct{ text string }

func (u *unready) Error() string { return u.text }

// crewOf returns the crew of a role if it has exactly count instances, and all run.
func (c *check) crewOf(role string, count int) (crew, error) {
	there, err := c.look(role)
	if err != nil {
		return nil, err
	}
	out, marks := crew{}, map[string]bool{}
	for _, i := range there {
		mark, err := c.Identity(i.Name)
		if i.State != placer.Running || err != nil {
			return nil, &unready{fmt.Sprintf("%s is %s (%v)", i.Name, i.State, err)}
		}
		out[i.Name], marks[mark] = mark, true
	}
	if len(out) != count || len(marks) != count {
		return nil, &unready{fmt.Sprintf("%d instances of %d processes of role %s run, want %d: %v",
			len(out), len(marks), role, count, there)}
	}
	return out, nil
}

// await waits until a function no longer returns an unready error.
func (c *check) await(try func() error) error {
	var why *unready
	for deadline := time.Now().Add(c.Patience); ; time.Sleep(pause) {
		if err := try(); !errors.As(err, &why) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", c.Patience, why)
		}
	}
}

// settle makes count the goal of a role and waits until it is reached.
func (c *check) settle(role string, count int) (got crew, err error) {
	if err := c.Placer.Apply(c.ctx, want(role, count)); err != nil {
		return nil, fmt.Errorf("apply %d of role %s: %w", count, role, err)
	}
	err = c.await(func() (err error) {
		got, err = c.crewOf(role, count)
		return err
	})
	return got, err
}

// stays expects that a crew does not change.
func (c *check) stays(role string, before crew) error {
	for end := time.Now().Add(c.Calm); time.Now().Before(end); time.Sleep(pause) {
		now, err := c.crewOf(role, len(before))
		if err != nil {
			return fmt.Errorf("nothing should change: %w", err)
		}
		if !maps.Equal(now, before) {
			return fmt.Errorf("role %s changed from %v to %v", role, before, now)
		}
	}
	return nil
}

// keeps expects that the processes of a crew are the same ones as before.
func (before crew) keeps(now crew, names ...string) error {
	for _, name := range names {
		if now[name] != before[name] {
			return fmt.Errorf("%s was the process %q and is the process %q", name, before[name], now[name])
		}
	}
	return nil
}
