package regex

import (
	"fmt"
	"slices"
)

// step is a part of a compiled expression, with the step behind it. A nil step is the end of a match.
type step struct {
	kind     kind
	class    uint8 // of repeat, and of one
	mode     mode
	negative bool
	min, max int
	branches []branch // of choice
	body     *step    // of ahead and atomic
	next     *step

	first set // characters with which a match from this step on begins
	empty bool
}

// branch is an alternative. Unless always, its match begins with a character of class.
type branch struct {
	start  *step
	class  uint8
	always bool
}

// compiler makes steps of trees.
type compiler struct {
	sets []set // by class
	full bool
}

func (t *tree) compile() (*Expression, error) {
	c := &compiler{}
	e := &Expression{start: c.step(t, nil)}
	e.first = c.class(e.start.first)
	if c.full {
		return nil, fmt.Errorf("it has more than %d different classes of characters", maxClasses)
	}
	var err error
	e.classes, err = newClasses(c.sets)
	return e, err
}

// class returns the number of a set.
func (c *compiler) class(s set) uint8 {
	i := slices.IndexFunc(c.sets, func(known set) bool { return slices.Equal(known, s) })
	if i < 0 {
		i = len(c.sets)
		if i >= maxClasses {
			c.full = true
			return 0
		}
		c.sets = append(c.sets, s)
	}
	return uint8(i)
}

// step returns the first step of a tree that a step follows.
func (c *compiler) step(t *tree, next *step) *step {
	switch t.kind {
	case one:
		return c.run(t, 1, 1, possessive, next)
	case sequence:
		for _, part := range slices.Backward(t.parts) {
			next = c.step(part, next)
		}
		return next
	case choice:
		s := &step{kind: choice, next: next}
		for _, part := range t.parts {
			s.branch(c, c.step(part, next))
		}
		return s
	case repeat:
		return c.repeat(t, next)
	case atomic:
		s := &step{kind: atomic, body: c.step(t.parts[0], nil), next: next}
		s.first, s.empty = s.body.beginning()
		if s.empty {
			rest, empty := next.beginning()
			s.first, s.empty = s.first.union(rest), empty
		}
		return s
	default:
		s := &step{kind: t.kind, negative: t.negative, next: next}
		if t.kind == ahead {
			s.body = c.step(t.parts[0], nil)
		}
		s.first, s.empty = next.beginning()
		return s
	}
}

// beginning returns the characters with which a match from a step on begins, and whether it may be empty.
func (s *step) beginning() (set, bool) {
	if s == nil {
		return nil, true
	}
	return s.first, s.empty
}

// branch adds an alternative.
func (s *step) branch(c *compiler, start *step) {
	first, empty := start.beginning()
	b := branch{start: start, always: empty}
	if !empty {
		b.class = c.class(first)
	}
	s.branches = append(s.branches, b)
	s.first, s.empty = s.first.union(first), s.empty || empty
}

func (c *compiler) repeat(t *tree, next *step) *step {
	item := t.parts[0]
	if item.kind == one {
		return c.run(item, t.min, t.max, t.mode, next)
	}
	if t.mode == possessive {
		plain := &tree{kind: repeat, parts: t.parts, min: t.min, max: t.max}
		return c.step(&tree{kind: atomic, parts: []*tree{plain}}, next)
	}
	behind := next
	for i := t.max; i > 0; i-- {
		s := c.step(item, behind)
		if i > t.min {
			s = c.optional(s, next, t.mode == lazy)
		}
		behind = s
	}
	return behind
}

// optional returns a choice between a step and the one behind it.
func (c *compiler) optional(taken, skipped *step, isLazy bool) *step {
	s := &step{kind: choice, next: skipped}
	if isLazy {
		taken, skipped = skipped, taken
	}
	s.branch(c, taken)
	s.branch(c, skipped)
	return s
}

// run returns a step for characters of one set. It takes all of them for good if the step behind it needs another
// character.
func (c *compiler) run(item *tree, least, most int, m mode, next *step) *step {
	s := &step{kind: repeat, class: c.class(item.chars), min: least, max: most, mode: m, next: next}
	first, empty := next.beginning()
	if m == greedy && (next == nil || !empty && len(first.intersection(item.chars)) == 0) {
		s.mode = possessive
	}
	s.first = item.chars
	if least == 0 {
		s.first, s.empty = s.first.union(first), empty
	}
	return s
}
