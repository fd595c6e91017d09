package placertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/orchestrator/placer"
)

func (c *check) runs() error {
	for _, n := range []int{1, 3, Room} {
		if _, err := c.settle(c.Role, n); err != nil {
			return err
		}
	}
	return nil
}

func (c *check) repeats() error {
	before, err := c.settle(c.Role, 3)
	if err != nil {
		return err
	}
	for range 3 {
		if err := c.Placer.Apply(c.ctx, want(c.Role, 3)); err != nil {
			return fmt.Errorf("apply the same goal again: %w", err)
		}
	}
	return c.stays(c.Role, before)
}

func (c *check) grows() error {
	before, err := c.settle(c.Role, 2)
	if err != nil {
		return err
	}
	now, err := c.settle(c.Role, Room)
	if err != nil {
		return err
	}
	return before.keeps(now, before.names()...)
}

func (c *check) shrinks() error {
	before, err := c.settle(c.Role, Room)
	if err != nil {
		return err
	}
	now, err := c.settle(c.Role, 2)
	if err != nil {
		return err
	}
	names := before.names()
	if got := now.names(); !slices.Equal(got, names[:2]) {
		return fmt.Errorf("of %v, %v are left, want the lowest two", names, got)
	}
	if err := before.keeps(now, names[:2]...); err != nil {
		return err
	}
	for _, name := range names[2:] {
		if !c.Asked(before[name]) {
			return fmt.Errorf("%s was ended, and nobody asked it to leave first", name)
		}
	}
	return nil
}

// leaves looks for longer than shrinks at a role that has got smaller.
func (c *check) leaves() error {
	if _, err := c.settle(c.Role, 3); err != nil {
		return err
	}
	now, err := c.settle(c.Role, 1)
	if err != nil {
		return err
	}
	return c.stays(c.Role, now)
}

func (c *check) runsNone() error {
	for _, n := range []int{2, 0, 2} {
		if _, err := c.settle(c.Role, n); err != nil {
			return err
		}
	}
	return nil
}

func (c *check) restarts() error {
	before, err := c.settle(c.Role, 3)
	if err != nil {
		return err
	}
	names := before.names()
	victim := names[1]
	if err := c.Kill(victim); err != nil {
		return fmt.Errorf("kill %s: %w", victim, err)
	}
	return c.await(func() error {
		now, err := c.crewOf(c.Role, 3)
		if err != nil {
			return err
		}
		if now[victim] == before[victim] {
			return &unready{victim + " was killed, and its process is still there"}
		}
		if _, ok := now[victim]; !ok {
			return fmt.Errorf("%s was killed, and %v came back", victim, now.names())
		}
		return before.keeps(now, names[0], names[2])
	})
}

func (c *check) others() error {
	before, err := c.settle(c.Role, 2)
	if err != nil {
		return err
	}
	if err := c.Placer.Apply(c.ctx, placer.Desired{}); err != nil {
		return fmt.Errorf("apply a goal without roles: %w", err)
	}
	if err := c.stays(c.Role, before); err != nil || c.Beside == "" {
		return err
	}
	beside, err := c.settle(c.Beside, 2)
	if err != nil {
		return err
	}
	if err := c.stays(c.Role, before); err != nil {
		return err
	}
	if _, err := c.settle(c.Role, 1); err != nil {
		return err
	}
	return c.stays(c.Beside, beside)
}

// refuses asks for goals that no engine can have. Each also asks for one more process of a role that it has.
func (c *check) refuses() error {
	before, err := c.settle(c.Role, 2)
	if err != nil {
		return err
	}
	more := placer.Wanted{Role: c.Role, Count: 3}
	for _, bad := range [][]placer.Wanted{
		{more, {Role: "poet", Count: 1}},
		{{Role: "poet", Count: 1}, more},
		{{Role: c.Role, Count: -1}},
		{more, {Role: c.Role, Count: Room}},
	} {
		err := c.Placer.Apply(c.ctx, placer.Desired{Roles: bad})
		if err == nil {
			return fmt.Errorf("the goal %v was accepted", bad)
		}
		role := c.Role
		if slices.ContainsFunc(bad, func(w placer.Wanted) bool { return w.Role == "poet" }) {
			role = "poet"
		}
		if err := explains(err.Error(), c.Name, role); err != nil {
			return err
		}
		if err := c.stays(c.Role, before); err != nil {
			return fmt.Errorf("after the refused goal %v: %w", bad, err)
		}
	}
	return nil
}

// explains expects that an error names the engine and the role, and ends with a cure.
func explains(text string, words ...string) error {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return fmt.Errorf("the error %q does not name %q", text, word)
		}
	}
	if cure := text[strings.LastIndex(text, ": ")+1:]; len(strings.Fields(cure)) < 3 {
		return fmt.Errorf("the error %q does not end with a cure", text)
	}
	return nil
}

func (c *check) cancelled() error {
	before, err := c.settle(c.Role, 2)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	if err := c.Placer.Apply(ctx, want(c.Role, 3)); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("apply with a cancelled context: %v, want %v", err, context.Canceled)
	}
	if _, err := c.Placer.Observe(ctx); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("observe with a cancelled context: %v, want %v", err, context.Canceled)
	}
	return c.stays(c.Role, before)
}

func (c *check) concurrent() error {
	const callers = 6
	errs := make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := range Room {
				if err := c.Placer.Apply(c.ctx, want(c.Role, 1+(i+n)%Room)); err != nil {
					errs[i] = fmt.Errorf("apply beside %d others: %w", callers-1, err)
					return
				}
				if _, errs[i] = c.look(c.Role); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	now, err := c.settle(c.Role, 2)
	if err != nil {
		return err
	}
	return c.stays(c.Role, now)
}

// isApart expects that no process of a role runs on the host of another one of the role that it keeps away from.
func (c *check) isApart(goal placer.Wanted) error {
	all, err := c.Placer.Observe(c.ctx)
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	for _, a := range all {
		for _, b := range all {
			if a.Role == goal.Role && b.Role == goal.Apart && a.Name != b.Name && a.Host == b.Host &&
				a.State == placer.Running && b.State == placer.Running {
				return fmt.Errorf("%s and %s both run on host %q", a.Name, b.Name, a.Host)
			}
		}
	}
	return nil
}

func (c *check) apart() error {
	if c.Spread == nil {
		return nil
	}
	if c.Hosts < 2 {
		return errors.New("an engine that keeps processes apart has at least two hosts")
	}
	if _, err := c.settle(c.Spread.Role, 0); err != nil { // an engine need not move processes that run
		return err
	}
	if err := c.Placer.Apply(c.ctx, placer.Desired{Roles: []placer.Wanted{*c.Spread}}); err != nil {
		return fmt.Errorf("apply %+v: %w", *c.Spread, err)
	}
	return c.await(func() error {
		if err := c.isApart(*c.Spread); err != nil {
			return err
		}
		_, err := c.crewOf(c.Spread.Role, c.Spread.Count)
		return err
	})
}

// crowded wants more processes apart from each other than hosts. The engine refuses that, or some of them never run.
func (c *check) crowded() error {
	role := c.Role
	if c.Spread != nil {
		role = c.Spread.Role
	}
	before, err := c.settle(role, 0)
	if err != nil {
		return err
	}
	goal := placer.Wanted{Role: role, Count: c.Hosts + 1, Apart: role}
	if err := c.Placer.Apply(c.ctx, placer.Desired{Roles: []placer.Wanted{goal}}); err != nil {
		if err := explains(err.Error(), c.Name, goal.Role); err != nil {
			return err
		}
		return c.stays(role, before)
	}
	for end := time.Now().Add(c.Calm); time.Now().Before(end); time.Sleep(pause) {
		if err := c.isApart(goal); err != nil {
			return err
		}
	}
	return nil
}
