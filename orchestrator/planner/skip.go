package planner

import (
	"fmt"
	"slices"

	"millrace"
)

// MaxSkip bounds the steps that one Skip passes over: until it is through, all their metadata is held.
const MaxSkip = 4096

// Skip passes over what steps From to To, To excluded, would have held: step From holds what step To would have held but for the mixture of the step and what the
// sources are owed, which passing over does not change.
type Skip struct{ From, To millrace.Step }

// validate tells whether the skip can be planned.
func (k Skip) validate() error {
	switch {
	case k.To <= k.From:
		return millrace.Errorf(millrace.ErrInvalid, "skip steps %s to %s: the second is excluded and has to be larger than the first", k.From, k.To)
	case k.To-k.From > MaxSkip:
		return millrace.Errorf(millrace.ErrInvalid, "skip steps %s to %s: one skip passes over at most %d steps: say several", k.From, k.To, MaxSkip)
	}
	return nil
}

// passing is a skip under way: the steps that are passed over are drawn as any others, by a selector that nobody hears of.
type passing struct {
	skip  Skip
	draws *Selector
	left  millrace.Step
	after State
}

// pass moves the state over the skip that begins at its step, if there is one that is not through.
func (s *Selector) pass(o Offers) (*missing, error) {
	if s.passing == nil {
		at := slices.IndexFunc(s.spec.Skips, func(k Skip) bool { return k.From == s.state.Step })
		if at < 0 || s.passed == s.state.Step+1 {
			return nil, nil
		}
		skip := s.spec.Skips[at]
		spec := *s.spec
		spec.Skips, spec.StopSteps, spec.StopTokens, spec.LastStep, spec.Window = nil, 0, 0, millrace.PadLast, 1
		draws, err := NewSelector(&spec, s.state)
		if err != nil {
			return nil, err
		}
		s.passing = &passing{skip: skip, draws: draws, left: skip.To - skip.From, after: s.state}
	}
	p := s.passing
	for p.left > 0 {
		sel, out, err := p.draws.Advance(o)
		switch {
		case err != nil:
			return nil, fmt.Errorf("pass over steps %s to %s: %w", p.skip.From, p.skip.To, err)
		case out.Kind == Waiting:
			return &missing{out.Source, out.Ordinal}, nil
		case out.Kind == Finished:
			p.left = 0
		default:
			p.left--
			p.after = sel.After
		}
	}
	s.state, s.passing, s.passed = s.state.past(p.after), nil, s.state.Step+1
	return nil, nil
}

// past returns the state with its sources where they are after steps that were passed over: nothing was placed and nobody is owed more. What was
// carried before is carried still, and nothing else.
func (s State) past(after State) State {
	out := after.Clone()
	out.Step, out.Tokens, out.Carried = s.Step, s.Tokens, slices.Clone(s.Carried)
	for i := range out.Sources {
		src, was := &out.Sources[i], &s.Sources[i]
		src.Tokens, src.Samples, src.Deficit = was.Tokens, was.Samples, was.Deficit
		if src.SeekPoint.Ordinal > out.Floor(i) {
			src.SeekPoint = was.SeekPoint
		}
	}
	return out
}
