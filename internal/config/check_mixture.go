package config

import (
	"fmt"
	"slices"
	"strings"
)

func (v *validator) checkMixture() {
	m := &v.c.Mixture
	_, weights := v.place("mixture.weights")
	_, schedule := v.place("mixture.schedule")
	switch {
	case !v.sound("mixture"):
		// What is wrong in one knot says nothing of the others, but the order of knots needs all of them.
	case weights && schedule:
		v.wrongKey("mixture.schedule", "`mixture` has both `weights` and `schedule`", "keep `weights` for one mixture, or `schedule` for one that changes")
	case !weights && !schedule:
		v.wrong("mixture.weights", "`mixture` has neither `weights` nor `schedule`", "add `weights: {"+v.evenWeights()+"}`")
	case schedule && len(m.Schedule) == 0:
		v.wrong("mixture.schedule", "`mixture.schedule` is empty", "begin with `- {from_step: 0, weights: {"+v.evenWeights()+"}}`")
	}
	if weights {
		v.checkWeights("mixture.weights", m.Weights)
	}
	for i := range m.Schedule {
		path := fmt.Sprintf("mixture.schedule[%d]", i)
		v.checkWeights(path+".weights", m.Schedule[i].Weights)
		v.checkKnot(path, &m.Schedule[i], i == 0)
	}
	if v.sound("mixture.schedule") {
		v.checkOrder(m.Schedule)
	}
}

// evenWeights writes a weight of 1 for the first sources, as an example.
func (v *validator) evenWeights() string {
	names := v.c.Sources.Names()
	parts := make([]string, 0, 4)
	for _, n := range names[:min(len(names), 3)] {
		parts = append(parts, n+": 1")
	}
	if len(names) > 3 {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}

// checkWeights compares one set of weights with the sources; needed at every knot, so that no source is forgotten half-way.
func (v *validator) checkWeights(path string, w Weights) {
	at, written := v.place(path)
	if !written || at.kind != mapping {
		return
	}
	names := v.c.Sources.Names()
	haveSources := v.sourcesNamed()
	for _, x := range w {
		if _, known := v.c.Source(x.Source); haveSources && !known {
			cure := "add it under `sources`, or take its weight out"
			if near := nearest(x.Source, names); near != "" {
				cure = "did you mean " + quote(near) + "?"
			}
			v.wrongKey(join(path, x.Source), "weight for an unknown source "+quote(x.Source), cure)
		}
	}
	for _, n := range names {
		if _, ok := w.Of(n); !ok && haveSources {
			v.fail(path, v.keyOf(path), "source "+quote(n)+" has no weight", "add `"+n+": ` with a number; 0 leaves it unread")
		}
	}
	if !v.sound(path) {
		return
	}
	if !slices.ContainsFunc(w, func(x Weight) bool { return !x.Value.IsZero() }) {
		v.fail(path, at, "all weights are zero", "give at least one source a weight above 0")
	}
}

// sourcesNamed tells whether the names of the sources are known, whatever else may be wrong with them.
func (v *validator) sourcesNamed() bool {
	at, ok := v.place("sources")
	return ok && at.kind == mapping
}

// checkKnot checks the keys of one knot against each other.
func (v *validator) checkKnot(path string, k *Knot, first bool) {
	if !v.sound(path+".from_step", path+".from_tokens", path+".ramp", path+".over_steps", path+".over_tokens") {
		return
	}
	if at, _ := v.place(path); at.kind != mapping {
		return
	}
	if k.FromStep == nil && k.FromTokens == nil {
		v.wrong(path+".from_step", name(path)+" has neither `from_step` nor `from_tokens`", "add `from_step: ` with the step at which it begins")
		return
	}
	if k.FromStep != nil && k.FromTokens != nil {
		v.wrongKey(path+".from_tokens", name(path)+" has both `from_step` and `from_tokens`", "keep one of them")
		return
	}
	from, tokens := k.From()
	own, other, key := ".over_steps", ".over_tokens", ".from_step"
	if tokens {
		own, other, key = other, own, ".from_tokens"
	}
	_, hasOwn := v.place(path + own)
	_, hasOther := v.place(path + other)
	switch {
	case first && from != 0:
		v.wrong(path+key, "the first knot must begin at 0, not "+fmt.Sprint(from), "write `"+key[1:]+": 0`")
	case hasOther:
		v.wrongKey(path+other, quote(other[1:])+" does not go with "+quote(key[1:]), "write "+quote(own[1:]))
	case first && k.Ramp != RampNone:
		v.wrong(path+".ramp", "the first knot has nothing to ramp from", "leave `ramp` out; give the second knot one")
	case k.Ramp != RampNone && !hasOwn:
		v.wrong(path+".ramp", "a ramp needs a length", "add `"+own[1:]+": ` with the length of the ramp")
	case k.Ramp == RampNone && hasOwn:
		v.wrongKey(path+own, quote(own[1:])+" needs a ramp", "add `ramp: linear`, or take it out")
	}
}

// checkOrder checks that knots follow each other in one unit and that a ramp is through before the next knot begins.
func (v *validator) checkOrder(knots []Knot) {
	for i := 1; i < len(knots); i++ {
		before, inTokens := knots[i-1].From()
		from, tokens := knots[i].From()
		key, want := "from_step", "from_tokens"
		if tokens {
			key, want = want, key
		}
		path := fmt.Sprintf("mixture.schedule[%d].", i)
		end := before + knots[i-1].Over()
		switch {
		case tokens != inTokens:
			v.wrongKey(path+key, "a schedule counts in steps or in tokens, not in both", "write "+quote(want)+" as the knot before")
			return
		case from <= before:
			v.wrong(path+key, fmt.Sprintf("knots must be in order: %d is not after %d", from, before), "sort the schedule by "+quote(key))
		case from < end:
			v.wrong(path+key, fmt.Sprintf("this knot begins at %d, before the ramp of the knot before ends at %d", from, end),
				fmt.Sprintf("begin at %d or later, or shorten that ramp", end))
		}
	}
}
