package dryrun

import (
	"context"

	"millrace"
	"millrace/app/config"
	"millrace/mixing"
	"millrace/orchestrator/planner"
)

// Outlook is the further course and the end of a run. Its floating point is for people: no plan depends on it.
type Outlook struct {
	Exact   bool // the run was planned to its end
	Endless bool // the run does not end
	Steps   uint64
	Tokens  float64
	Reason  string // why it ends
	Sources []Course
	Begins  []*millrace.Step // by stage: its first step; nil if the run ends before, or the walk did not reach it
}

// Fresh is the number of passes over a source that are about as good as new data. The value of further passes decays:
// Muennighoff et al., "Scaling Data-Constrained Language Models" (arXiv 2305.16264).
const Fresh = 4

// Course is the course of one source during the run.
type Course struct {
	Dry    *millrace.Step // the step in which it ends, or nil
	Stale  *millrace.Step // the step in which the pass after Fresh begins, or nil
	Share  float64        // in the unit of the weights, over the run or the examined part
	Tokens float64        // drawn; of an endless run, a step
}

// ToEnd plans the rest of a finite run from the current step. It calls tell after every step.
func (w *Walk) ToEnd(ctx context.Context, tell func(*Step)) (*Outlook, error) {
	for {
		s, err := w.Next(ctx)
		if err != nil {
			return nil, err
		}
		if s == nil {
			break
		}
		tell(s)
	}
	return w.Outlook(), nil
}

// Outlook returns the facts of the walk so far. It is exact if the walk reached the end.
func (w *Walk) Outlook() *Outlook {
	out := &Outlook{
		Exact:   w.over.Kind == planner.Finished || w.over.Reason != "",
		Reason:  string(w.over.Reason),
		Sources: make([]Course, len(w.found)),
		Begins:  w.begins,
	}
	if w.last == nil {
		return out
	}
	st := &w.last.After
	out.Steps, out.Tokens = uint64(w.last.Step)+1, float64(st.Tokens)
	counts := make([]float64, len(st.Sources))
	total := 0.0
	for i := range st.Sources {
		counts[i] = float64(st.Sources[i].Tokens)
		if w.opened.Config.Mixture.Unit == "samples" {
			counts[i] = float64(st.Sources[i].Samples)
		}
		total += counts[i]
	}
	for i := range counts {
		c := &out.Sources[i]
		c.Dry, c.Stale = w.dry[i], w.stale[i]
		if total > 0 {
			c.Share = counts[i] / total
		}
		c.Tokens = float64(st.Sources[i].Tokens)
	}
	return out
}

// Supply is the known or estimated content of a source.
type Supply struct {
	Tokens  float64 // of one pass
	Records float64 // of one pass
	Passes  uint32  // 0: endless
}

// mostPhases bounds the steps that are examined one by one while the mixture changes in each.
const mostPhases = 2_000_000

// Forecast estimates the course of a run whose sequences are filled with document tokens to the given fraction.
func Forecast(c *config.Config, spec *planner.Spec, supply []Supply, fill float64) *Outlook {
	f := &forecast{
		spec:       spec,
		milestones: c.Mixture.Milestones(),
		fill:       fill,
		left:       make([]float64, len(supply)),
		drawn:      make([]float64, len(supply)),
		weight: make(
			[]float64, len(supply),
		),
		active: make([]bool, len(supply)),
		out:    Outlook{Sources: make([]Course, len(supply)), Begins: make([]*millrace.Step, 1+len(spec.Stages))},
	}
	for i, s := range supply {
		f.active[i], f.weight[i], f.left[i] = true, 1, s.Tokens*float64(s.Passes)
		if spec.Unit == millrace.UnitSamples {
			f.left[i] = s.Records * float64(s.Passes)
			f.weight[i] = s.Tokens / max(s.Records, 1)
		}
	}
	f.run(supply)
	total := 0.0
	for _, d := range f.drawn {
		total += d
	}
	for i, d := range f.drawn {
		c := &f.out.Sources[i]
		if total > 0 {
			c.Share = d / total
		}
		c.Tokens = d * f.weight[i]
	}
	return &f.out
}

// forecast moves a mixture forward in stretches in which its shares and its batches stay the same.
type forecast struct {
	spec       *planner.Spec
	milestones []config.Milestone
	fill       float64
	perStep    float64   // tokens, 1 at least
	left       []float64 // of finite sources, in the unit of the weights
	drawn      []float64 // likewise
	weight     []float64 // tokens in one of those
	active     []bool
	step       float64
	out        Outlook
}

func (f *forecast) run(supply []Supply) {
	for range mostPhases {
		f.enter()
		shares := f.spec.Schedule.Divide(f.spec.Schedule.At(uint64(f.step), uint64(f.out.Tokens)), f.active)
		rate, ok := f.rates(shares)
		if !ok {
			f.end(string(planner.SourcesThrough))
			return
		}
		leap, first := f.leap(supply, rate)
		f.cross(supply, rate, leap)
		if first < 0 && leap == 0 {
			f.out.Endless = true
			f.out.Steps = uint64(f.step)
			f.drawn = rate
			return
		}
		for i := range rate {
			f.drawn[i] += rate[i] * leap
			f.left[i] -= rate[i] * leap
		}
		f.step += leap
		f.out.Tokens += f.perStep * leap
		if f.spec.StopSteps > 0 && f.step >= float64(f.spec.StopSteps) {
			f.end(string(planner.StepsReached))
			return
		}
		if f.spec.StopTokens > 0 && f.out.Tokens >= float64(f.spec.StopTokens) {
			f.end(string(planner.TokensReached))
			return
		}
		if first >= 0 {
			at := millrace.Step(f.step)
			f.out.Sources[first].Dry, f.active[first] = &at, false
			if e := f.spec.Sources[first].OnExhausted; e == millrace.StopRun || e == millrace.FailRun {
				f.end(string(e))
				return
			}
		}
	}
	f.out.Endless = true
}

func (f *forecast) end(reason string) {
	f.out.Reason, f.out.Steps = reason, uint64(f.step+0.999999)
}

// cross notes the sources whose fifth pass begins within that many steps; 0 means no end.
func (f *forecast) cross(supply []Supply, rate []float64, leap float64) {
	for i, s := range supply {
		pass := s.Tokens
		if f.spec.Unit == millrace.UnitSamples {
			pass = s.Records
		}
		if f.out.Sources[i].Stale != nil || rate[i] <= 0 || pass <= 0 || s.Passes > 0 && s.Passes <= Fresh {
			continue
		}
		if after := (Fresh*pass - f.drawn[i]) / rate[i]; leap == 0 || after < leap {
			at := millrace.Step(f.step + max(after, 0))
			f.out.Sources[i].Stale = &at
		}
	}
}

// rates returns the tokens that each source gives in a step. It returns false if no source is left that can receive
// weight.
func (f *forecast) rates(shares []uint32) ([]float64, bool) {
	mean := 0.0
	for i, s := range shares {
		mean += float64(s) / mixing.One * f.weight[i]
	}
	if mean == 0 {
		return nil, false
	}
	out := make([]float64, len(shares))
	for i, s := range shares {
		out[i] = float64(s) / mixing.One * f.perStep / mean
	}
	return out, true
}

// leap returns the number of steps in which nothing changes, and the source that ends then, or -1. 0 and -1 mean no
// end.
func (f *forecast) leap(supply []Supply, rate []float64) (leap float64, first int) {
	first = -1
	bound := func(steps float64) bool {
		if leap == 0 || steps < leap {
			leap = max(steps, 1e-9)
			return true
		}
		return false
	}
	if f.spec.StopSteps > 0 {
		bound(float64(f.spec.StopSteps) - f.step)
	}
	if f.spec.StopTokens > 0 {
		bound((float64(f.spec.StopTokens) - f.out.Tokens) / f.perStep)
	}
	f.stage(bound)
	if f.changing() && bound(1) {
		first = -1
	}
	for i := range rate {
		if supply[i].Passes > 0 && f.active[i] && rate[i] > 0 && bound(f.left[i]/rate[i]) {
			first = i
		}
	}
	return leap, first
}

// changing reports whether the schedule may have other shares later.
func (f *forecast) changing() bool {
	last := &f.milestones[len(f.milestones)-1]
	from, tokens := last.From()
	if tokens {
		return f.out.Tokens < float64(from+last.Over())
	}
	return f.step < float64(from+last.Over())
}
