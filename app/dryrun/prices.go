package dryrun

import (
	"context"
	"fmt"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/progress"
)

// Prices are the costs of the first steps with the settings of the mixture file, and with one setting changed. Scripts
// rely on the JSON names.
type Prices struct {
	Steps   int      `json:"steps"` // that were planned
	Choices []Choice `json:"choices"`
}

// Choice is one way to plan the same steps; the first is the mixture file's own.
type Choice struct {
	Choice    string     `json:"choice"`
	Overhead  Objectives `json:"overhead"` // over the mean of all planned steps
	Fill      float64    `json:"fill"`
	Largest   uint32     `json:"largest"` // places of the fullest microbatch that are taken; memory must hold them
	MovedMean float64    `json:"moved_mean"`
}

// The limits of a comparison: the steps of one window, in at most a second or two.
const (
	pricedSteps    = 4
	pricedSegments = 1 << 20 // placed in all
	otherWindow    = 4
	otherSlack     = 1150
)

// choice changes one setting.
type choice struct {
	name  string
	drawn drawn
	place place.Options
}

// drawn is the part of a choice that decides the content of steps.
type drawn struct{ window, carry int }

// choices returns the settings to compare; the first is the mixture file's own.
func (w *Walk) choices() []choice {
	is := choice{"as it is", drawn{w.strategy.Mix.Window, w.strategy.Mix.Carry}, w.strategy.Options()}
	out := []choice{is}
	if w.topology.DP() > 1 {
		packed := is.place
		packed.Layout, packed.CapPermille, packed.Local, packed.Split = millrace.Packed, 0, 0, place.Split{}
		if is.place.Layout != millrace.Packed {
			out = append(out, choice{"layout: packed", is.drawn, packed})
		}
		for _, slack := range []uint32{1000, otherSlack} {
			varlen := is.place
			varlen.Layout, varlen.CapPermille = millrace.Varlen, slack
			if is.place.Layout != millrace.Varlen || max(is.place.CapPermille, 1000) != slack {
				out = append(
					out, choice{fmt.Sprintf("layout: varlen, cap_slack: %g", float64(slack)/1000), is.drawn, varlen},
				)
			}
		}
		for _, b := range []millrace.Balance{millrace.BalanceFSDP, millrace.BalanceDP, millrace.BalancePP,
			millrace.BalanceNone} {
			if b != is.place.Balance && (b != millrace.BalancePP || w.topology.PP > 1) {
				other := is.place
				other.Balance = b
				out = append(out, choice{"balance: " + string(b), is.drawn, other})
			}
		}
		window := is
		if window.name, window.drawn.window = fmt.Sprintf("window: %d", otherWindow), otherWindow; is.drawn.window > 1 {
			window.name, window.drawn.window = "window: 1", 1
		}
		out = append(out, window)
	}
	if w.strategy.Mix.Packing == millrace.BestFit {
		carry := is
		if carry.name, carry.drawn.carry = "carry: auto", planner.AutoCarry; is.drawn.carry != 0 {
			carry.name, carry.drawn.carry = "carry: 0", 0
		}
		out = append(out, carry)
	}
	return out
}

// Prices plans the first steps of the run once for each setting. Call it before Next.
func (w *Walk) Prices(ctx context.Context) (*Prices, error) {
	all := w.choices()
	steps := map[drawn][]planner.Selection{}
	out := &Prices{}
	for i, c := range all {
		if _, known := steps[c.drawn]; !known {
			sels, err := w.draw(ctx, c.drawn)
			if err != nil && i == 0 {
				return nil, err
			}
			steps[c.drawn] = sels // none if the choice conflicts with the rest of the mixture file
		}
		sels := steps[c.drawn]
		if i == 0 && len(sels) > 0 {
			out.Steps = min(len(sels), max(1, pricedSegments/(len(all)*max(len(sels[0].Segments), 1))))
		}
		if len(sels) < out.Steps || out.Steps == 0 {
			continue
		}
		if priced, ok := w.price(c, sels[:out.Steps]); ok {
			out.Choices = append(out.Choices, priced)
		}
	}
	return out, ctx.Err()
}

// draw selects the first steps of the run. The offers stay queued, so that the steps can be drawn again.
func (w *Walk) draw(ctx context.Context, by drawn) ([]planner.Selection, error) {
	spec := w.strategy.Mix
	spec.Window, spec.Carry = by.window, by.carry
	selector, err := planner.NewSelector(&spec, progress.New(len(spec.Sources)))
	if err != nil {
		return nil, err
	}
	var out []planner.Selection
	for len(out) < pricedSteps {
		sel, outcome, err := selector.Advance(w.queues)
		switch {
		case err != nil:
			return nil, w.queues.Explain(err)
		case outcome.Kind == planner.Finished:
			return out, nil
		case outcome.Kind == planner.Waiting:
			if err := w.wait(ctx, outcome.Source, outcome.Ordinal); err != nil {
				return nil, err
			}
		default:
			out = append(out, sel)
		}
	}
	return out, nil
}

// price places the steps and adds up their costs. It returns false if the steps cannot be placed with this choice.
func (w *Walk) price(c choice, steps []planner.Selection) (Choice, bool) {
	out := Choice{Choice: c.name}
	var tokens, places, moved, segments float64
	for i := range steps {
		sel := &steps[i]
		plan, err := place.Plan(sel, w.topology, c.place)
		if err != nil {
			return out, false
		}
		weight := cost.Weigh(plan, c.place.Weighing(sel, w.topology))
		over := objectives(weight.Over)
		out.Overhead.FSDP += over.FSDP / float64(len(steps))
		out.Overhead.DP += over.DP / float64(len(steps))
		out.Overhead.PP += over.PP / float64(len(steps))
		out.Largest = max(out.Largest, weight.Fullest)
		tokens, places = tokens+float64(sel.Stats.Tokens), places+float64(sel.GlobalBatch)*float64(sel.SequenceLength)
		moved, segments = moved+float64(sel.Stats.Moved), segments+float64(len(sel.Segments))
	}
	out.Fill, out.MovedMean = tokens/places, moved/max(segments, 1)
	return out, true
}
