package config

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/tree"
	"millrace/app/config/value"
)

// checkShares checks the weights or groups of one mapping. Every source must be in it, so that no source is forgotten.
func (v *validator) checkShares(path string, w Weights, g Groups) {
	if at, ok := v.Place(path + ".weights"); ok && at.Kind == tree.Mapping {
		m := members{validator: v, at: path + ".weights", seen: map[string]string{}}
		m.weights(m.at, w, true)
		m.end(at)
	}
	if at, ok := v.Place(path + ".groups"); ok && at.Kind == tree.Mapping {
		m := members{validator: v, at: path + ".groups", seen: map[string]string{}}
		m.groups(m.at, g)
		m.end(at)
	}
}

// members walks one tree of weights and notes the sources that it names.
type members struct {
	*validator
	at      string            // the path of the whole
	seen    map[string]string // the place of each source
	weighty []string          // sources that may have weight
	partial bool              // a mistake hides the sources of some group
}

// weights checks the weights of sources. Whole is false for the weights of a group.
func (m *members) weights(path string, w Weights, whole bool) {
	at, _ := m.Place(path)
	if at.Kind != tree.Mapping {
		return
	}
	if w.Derived != nil {
		m.derived(path, w.Derived, whole)
		return
	}
	for _, x := range w.Given {
		m.source(decode.Join(path, x.Source), x.Source, "weight for an unknown source "+tree.Quote(x.Source))
		if !x.Value.IsZero() {
			m.weighty = append(m.weighty, x.Source)
		}
	}
	if !whole && len(w.Given) == 0 && m.Sound(path) {
		m.wrong(path, "this group has no source", "write weights of its sources, or take the group out")
	}
	m.allZero(
		path,
		(whole || len(w.Given) > 0) && !slices.ContainsFunc(w.Given, func(x Weight) bool { return !x.Value.IsZero() }),
	)
}

// allZero notes a set of weights that are all zero. It is reported at the end if the set has no other mistake.
func (m *members) allZero(path string, isZero bool) {
	if isZero && m.sourcesKnown(path) {
		at, _ := m.Place(path)
		m.Fail(path, at, "all weights are zero", "give at least one source a weight above 0")
	}
}

// sourcesKnown reports whether no mistake was found below a path, left-out sources included.
func (m *members) sourcesKnown(path string) bool {
	if path != m.at || !m.sourcesNamed() {
		return m.Sound(path)
	}
	for _, n := range m.c.Sources.Names() {
		if m.seen[n] == "" {
			return false
		}
	}
	return m.Sound(path)
}

// source notes the source at a path, and reports an unknown or repeated one.
func (m *members) source(path, source, unknown string) {
	if _, known := m.c.Source(source); m.sourcesNamed() && !known {
		cure := "add it under `sources`, or take its weight out"
		if near := decode.Nearest(source, m.c.Sources.Names()); near != "" {
			cure = "did you mean " + tree.Quote(near) + "?"
		}
		m.wrongKey(path, unknown, cure)
		return
	}
	if m.seen[source] != "" {
		m.wrongKey(
			path, "source "+tree.Quote(source)+" is in the mixture already, at "+tree.Quote(m.seen[source]),
			"name each source once",
		)
		return
	}
	m.seen[source] = path
}

// groups checks the groups of one level.
func (m *members) groups(path string, g Groups) {
	if len(g) == 0 && m.Sound(path) {
		m.wrong(path, decode.Name(path)+" is empty", "write it as `text: {weight: 0.7, weights: {web: 3, books: 1}}`")
	}
	for i := range g {
		at := decode.Join(path, g[i].Name)
		if n, _ := m.Place(at); n.Kind != tree.Mapping || !m.Sound(at+".weight", at+".weights", at+".groups") {
			m.partial = true // the other groups are still checked
			continue
		}
		switch given := m.given(at, "weights", "groups"); len(given) {
		case 0:
			m.wrong(
				at, "group "+tree.Quote(g[i].Name)+" has neither `weights` nor `groups`",
				"add `weights: ` with the sources of the group",
			)
			m.partial = true
		case 2:
			m.wrongKey(
				at+".groups", "group "+tree.Quote(g[i].Name)+" has both `weights` and `groups`",
				"keep one of them; a source beside groups can be a group of its own",
			)
		}
		if g[i].Groups != nil {
			m.groups(at+".groups", g[i].Groups)
		} else {
			m.weights(at+".weights", g[i].Weights, false)
		}
	}
	m.allZero(path, len(g) > 0 && !slices.ContainsFunc(g, func(x Group) bool { return !x.Weight.IsZero() }))
}

// end reports sources that are left out, and bounds that the named sources cannot keep.
func (m *members) end(at *tree.Node) {
	if !m.sourcesNamed() || m.partial {
		return
	}
	for _, n := range m.c.Sources.Names() {
		if m.seen[n] == "" {
			m.Fail(
				m.at, m.KeyOf(m.at), "source "+tree.Quote(n)+" has no weight",
				"add `"+n+": ` with a number; 0 leaves it unread",
			)
		}
	}
	if m.Sound(m.at, "sources", "mixture.floor") && len(m.weighty) > 0 {
		m.bounds()
	}
}

// derived checks a rule and its sources.
func (m *members) derived(path string, d *Derived, whole bool) {
	if !m.Sound(path) {
		m.partial = true
		return
	}
	if !whole && d.Sources == nil {
		m.wrong(path+".sources", "the rule of a group has to name its sources", "add `sources: [web, books]`")
		m.partial = true
		return
	}
	for i, n := range d.Members(m.c.Sources) {
		at := path
		if d.Sources != nil {
			at = fmt.Sprintf("%s.sources[%d]", path, i)
		}
		m.source(at, n, "unknown source "+tree.Quote(n))
		m.weighty = append(m.weighty, n)
	}
	m.takes(path, d)
}

// takes checks that a rule has the keys that it needs and no others.
func (m *members) takes(path string, d *Derived) {
	budget, other := "budget_tokens", "budget_samples"
	if m.c.Mixture.Unit == millrace.UnitSamples {
		budget, other = other, budget
	}
	needs := map[Rule][]string{RuleTemperature: {"temperature"}, RuleUniMax: {"max_epochs", budget}}[d.From]
	for _, key := range m.given(path, "temperature", "max_epochs", budget, other) {
		if key == other && d.From == RuleUniMax {
			m.wrongKey(
				path+"."+key, tree.Quote(key)+" does not go with unit "+string(m.c.Mixture.Unit),
				"write "+tree.Quote(budget),
			)
		} else if !slices.Contains(needs, key) {
			m.wrongKey(path+"."+key, tree.Quote(key)+" does not go with the rule "+string(d.From), "take it out")
		}
	}
	switch num, den := d.Temperature.Fraction(); {
	case !m.Sound(path):
	case d.From == RuleTemperature && d.Temperature.Text == "":
		m.wrong(
			path+".temperature", "the rule temperature lacks `temperature`",
			"add `temperature: 3`; 1 is in proportion to size, and more makes weights more equal",
		)
	case d.From == RuleTemperature && num < den:
		m.wrong(
			path+".temperature", "the temperature must be at least 1, not "+d.Temperature.Text,
			"1 is in proportion to size, and more makes weights more equal; for an exponent alpha write 1/alpha",
		)
	case d.From == RuleUniMax && d.MaxEpochs == 0:
		m.wrong(
			path+".max_epochs", "the rule unimax lacks `max_epochs`",
			"add `max_epochs: 4`, the most passes over any source",
		)
	case d.From == RuleUniMax && m.Sound("stop") && m.c.Budget(d) == 0:
		m.wrong(
			path+"."+budget, "the rule unimax lacks "+tree.Quote(budget),
			"add the length of the run, or write `stop: {tokens: ...}`",
		)
	}
}

// checkFractions checks the bounds of each source.
func (v *validator) checkFractions() {
	for i := range v.c.Sources {
		s := &v.c.Sources[i]
		for _, key := range []string{"max_fraction", "min_fraction"} {
			path := decode.Join("sources", s.Name) + "." + key
			if _, ok := v.Place(path); ok && v.Sound(path) {
				v.fraction(
					path, map[string]value.Decimal{"max_fraction": s.MaxFraction, "min_fraction": s.MinFraction}[key],
					key == "max_fraction",
				)
			}
		}
		if path := decode.Join("sources", s.Name); v.Sound(path) && s.MaxFraction.Text != "" &&
			s.MinFraction.Billionths() > s.MaxFraction.Billionths() {
			v.wrong(
				path+".min_fraction",
				fmt.Sprintf("min_fraction %s is above max_fraction %s", s.MinFraction.Text, s.MaxFraction.Text),
				"write no more than max_fraction",
			)
		}
	}
	if _, ok := v.Place("mixture.floor"); ok && v.Sound("mixture.floor") {
		v.fraction("mixture.floor", v.c.Mixture.Floor, false)
	}
}

func (v *validator) fraction(path string, d value.Decimal, positive bool) {
	switch {
	case d.Billionths() > value.Billion:
		v.wrong(
			path, decode.Leaf(path)+" must be a fraction from 0 to 1, not "+d.Text,
			"0.05 is a twentieth of the mixture",
		)
	case positive && d.IsZero():
		v.wrong(path, decode.Leaf(path)+" is zero", "give the source a weight of 0 to leave it unread")
	}
}

// bounds compares the bounds of the sources that have weight here with the whole mixture.
func (m *members) bounds() {
	least, most := uint64(0), uint64(0)
	for _, n := range m.weighty {
		s, _ := m.c.Source(n)
		low, high := m.c.Bounds(s)
		least, most = least+low, most+high
	}
	switch {
	case least > value.Billion:
		m.Fail(
			m.at,
			m.KeyOf(m.at),
			fmt.Sprintf(
				"the least fractions of the sources with weight here add up to %s, more than 1",
				value.FromBillionths(least),
			),
			"lower `min_fraction` of sources, or `mixture.floor`",
		)
	case most < value.Billion:
		m.Fail(
			m.at,
			m.KeyOf(m.at),
			fmt.Sprintf(
				"the largest fractions of the sources with weight here add up to %s, less than 1",
				value.FromBillionths(most),
			),
			"raise `max_fraction` of sources, or give more sources weight",
		)
	}
}
