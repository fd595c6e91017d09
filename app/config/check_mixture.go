package config

import (
	"fmt"
	"strings"

	"millrace/app/config/decode"
	"millrace/app/config/tree"
)

func (v *validator) checkMixture() {
	m := &v.c.Mixture
	_, schedule := v.Place("mixture.schedule")
	given := v.given("mixture", "weights", "groups", "schedule")
	switch {
	case !v.Sound("mixture"):
		// The milestones are still checked one by one. checkOrder needs all of them to be sound.
	case len(given) > 1:
		v.wrongKey("mixture."+given[1], "`mixture` has both "+tree.Quote(given[0])+" and "+tree.Quote(given[1]),
			"keep `weights` or `groups` for one mixture, or `schedule` for one that changes")
	case len(given) == 0:
		v.wrong(
			"mixture.weights", "`mixture` has neither `weights` nor `schedule`", "add `weights: {"+v.evenWeights()+"}`",
		)
	case schedule && len(m.Schedule) == 0:
		v.wrong(
			"mixture.schedule", "`mixture.schedule` is empty",
			"begin with `- {from_step: 0, weights: {"+v.evenWeights()+"}}`",
		)
	}
	v.checkFractions()
	v.checkShares("mixture", m.Weights, m.Groups)
	for i := range m.Schedule {
		path := fmt.Sprintf("mixture.schedule[%d]", i)
		k := &m.Schedule[i]
		if at, _ := v.Place(path); at.Kind == tree.Mapping && v.Sound(path) {
			switch given := v.given(path, "weights", "groups"); len(given) {
			case 0:
				v.wrong(path+".weights", decode.Missing(path, "weights"), v.RequiredCure("weights"))
			case 2:
				v.wrongKey(path+".groups", decode.Name(path)+" has both `weights` and `groups`", "keep one of them")
			}
		}
		v.checkShares(path, k.Weights, k.Groups)
		v.checkMilestone(path, k, i == 0)
	}
	if v.Sound("mixture.schedule") {
		v.checkOrder("mixture.schedule", m.Schedule)
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

// checkMilestone checks the keys of one milestone against each other.
func (v *validator) checkMilestone(path string, k *Milestone, first bool) {
	if !v.Sound(path+".from_step", path+".from_tokens", path+".ramp", path+".over_steps", path+".over_tokens") {
		return
	}
	if at, _ := v.Place(path); at.Kind != tree.Mapping {
		return
	}
	if k.FromStep == nil && k.FromTokens == nil {
		v.wrong(
			path+".from_step", decode.Name(path)+" has neither `from_step` nor `from_tokens`",
			"add `from_step: ` with the step at which it begins",
		)
		return
	}
	if k.FromStep != nil && k.FromTokens != nil {
		v.wrongKey(path+".from_tokens", decode.Name(path)+" has both `from_step` and `from_tokens`", "keep one of them")
		return
	}
	from, tokens := k.From()
	own, other, key := ".over_steps", ".over_tokens", ".from_step"
	if tokens {
		own, other, key = other, own, ".from_tokens"
	}
	_, hasOwn := v.Place(path + own)
	_, hasOther := v.Place(path + other)
	switch {
	case first && from != 0:
		v.wrong(path+key, "the first milestone must begin at 0, not "+fmt.Sprint(from), "write `"+key[1:]+": 0`")
	case hasOther:
		v.wrongKey(
			path+other, tree.Quote(other[1:])+" does not go with "+tree.Quote(key[1:]), "write "+tree.Quote(own[1:]),
		)
	case first && k.Ramp != RampNone:
		v.wrong(
			path+".ramp", "the first milestone has nothing to ramp from",
			"leave `ramp` out; give the second milestone one",
		)
	case k.Ramp != RampNone && !hasOwn:
		v.wrong(path+".ramp", "a ramp needs a length", "add `"+own[1:]+": ` with the length of the ramp")
	case k.Ramp == RampNone && hasOwn:
		v.wrongKey(path+own, tree.Quote(own[1:])+" needs a ramp", "add `ramp: linear`, or take it out")
	}
}

// checkOrder checks that milestones follow each other in one unit and that a ramp ends before the next milestone
// begins.
func (v *validator) checkOrder(list string, milestones []Milestone) {
	for i := 1; i < len(milestones); i++ {
		before, inTokens := milestones[i-1].From()
		from, tokens := milestones[i].From()
		key, want := "from_step", "from_tokens"
		if tokens {
			key, want = want, key
		}
		path := fmt.Sprintf("%s[%d].", list, i)
		end := before + milestones[i-1].Over()
		switch {
		case tokens != inTokens:
			v.wrongKey(
				path+key, "a schedule counts in steps or in tokens, not in both",
				"write "+tree.Quote(want)+" as the milestone before",
			)
			return
		case from <= before:
			v.wrong(
				path+key, fmt.Sprintf("milestones must be in order: %d is not after %d", from, before),
				"sort the schedule by "+tree.Quote(key),
			)
		case from < end:
			v.wrong(
				path+key,
				fmt.Sprintf(
					"this milestone begins at %d, before the ramp of the milestone before ends at %d", from, end,
				),
				fmt.Sprintf("begin at %d or later, or shorten that ramp", end),
			)
		}
	}
}
