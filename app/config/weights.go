package config

import (
	"reflect"
	"slices"
	"strings"

	"millrace/app/config/decode"
	"millrace/app/config/tree"
	"millrace/app/config/value"
)

// Weights are the relative weights of sources: given one by one, or derived from their sizes.
type Weights struct {
	Given   []Weight // sorted by the source's name
	Derived *Derived // in place of Given
}

// Weight is the share of one source, as written.
type Weight struct {
	Source string
	Value  value.Ratio
}

// Of returns the weight of a source and whether it was given one.
func (w Weights) Of(source string) (value.Ratio, bool) {
	for _, x := range w.Given {
		if x.Source == source {
			return x.Value, true
		}
	}
	return value.Ratio{}, false
}

// Derived is a rule that derives weights from the sources' sizes: the tokens of one pass, or the records if the mixture
// counts samples.
type Derived struct {
	// From is the rule. uniform: equal weights. size: in proportion to size. temperature: in proportion to
	// size^(1/temperature). unimax: a budget is divided evenly, but no source is read more than max_epochs times.
	From Rule `yaml:"from" jsonschema:"required,enum=uniform,enum=size,enum=temperature,enum=unimax"`
	// Sources of the rule. Left out: all of the mixture. A group must name its own.
	Sources []string `yaml:"sources"`
	// Temperature of the rule temperature, at least 1. 1 is size; a higher temperature makes weights more equal.
	Temperature value.Decimal `yaml:"temperature"`
	// MaxEpochs of the rule unimax.
	MaxEpochs uint32 `yaml:"max_epochs" jsonschema:"minimum=1,maximum=1000000"`
	// BudgetTokens is the budget of the rule unimax if the mixture counts tokens. Left out: stop.tokens.
	BudgetTokens uint64 `yaml:"budget_tokens" jsonschema:"minimum=1,maximum=9007199254740991"`
	// BudgetSamples is the budget of the rule unimax if the mixture counts samples.
	BudgetSamples uint64 `yaml:"budget_samples" jsonschema:"minimum=1,maximum=9007199254740991"`
}

// Rule names a way to derive weights from sizes.
type Rule string

// The rules.
const (
	RuleUniform     Rule = "uniform"
	RuleSize        Rule = "size"
	RuleTemperature Rule = "temperature"
	RuleUniMax      Rule = "unimax"
)

// Groups are the groups of one level, sorted by name.
type Groups []Group

// Group is a part of the mixture that has one weight: sources, or further groups.
type Group struct {
	// Name of the group: its key in the file.
	Name string `yaml:"-"`
	// Weight of the group among the groups beside it.
	Weight value.Ratio `yaml:"weight" jsonschema:"required"`
	// Weights of the sources of the group, among themselves. Give this or groups.
	Weights Weights `yaml:"weights"`
	// Groups of the group. Give this or weights.
	Groups Groups `yaml:"groups"`
}

// Derives reports whether any weights are derived from sizes. The sizes must then be measured first.
func (m *Mixture) Derives() bool {
	for _, k := range m.Milestones() {
		if k.Weights.needsSizes() || slices.ContainsFunc(k.Groups, Group.derives) {
			return true
		}
	}
	return false
}

func (w Weights) needsSizes() bool { return w.Derived != nil && w.Derived.From != RuleUniform }

func (g Group) derives() bool {
	return g.Weights.needsSizes() || slices.ContainsFunc(g.Groups, Group.derives)
}

// Members returns the sources of a rule.
func (d *Derived) Members(all Sources) []string {
	if d.Sources == nil {
		return all.Names()
	}
	return d.Sources
}

// DecodeNode reads weights by source, or a rule: a mapping whose `from` is a word. A source may also
// have the name `from`.
func (w *Weights) DecodeNode(d *decode.Decoder, path string, n *tree.Node) {
	if n.Kind != tree.Mapping {
		d.WrongType(path, n, "a mapping from sources to numbers", "write it as `{web: 0.6, code: 0.4}`")
		return
	}
	for _, e := range n.Entries {
		if e.Key.Text == "from" && e.Value.Kind == tree.Scalar && e.Value.Class != tree.Number {
			w.Derived = new(Derived)
			d.Decode(path, n, reflect.ValueOf(w.Derived).Elem(), decode.Rules{})
			return
		}
	}
	for _, e := range n.Entries {
		at := decode.Join(path, e.Key.Text)
		d.Places[at] = e
		x := Weight{Source: e.Key.Text}
		switch {
		case e.Value.Kind != tree.Scalar:
			d.WrongType(at, e.Value, "a number", "write a decimal number, as 0.3")
		case e.Value.Class == tree.Null:
			d.Fail(at, e.Value, decode.Name(at)+" has no value", "write a number; 0 leaves the source unread")
		default:
			d.Literal(at, e.Value, &x.Value, decode.Rules{})
		}
		w.Given = append(w.Given, x)
	}
	slices.SortFunc(w.Given, func(a, b Weight) int { return strings.Compare(a.Source, b.Source) })
}

// DecodeNode reads groups by name.
func (g *Groups) DecodeNode(d *decode.Decoder, path string, n *tree.Node) {
	if n.Kind != tree.Mapping {
		d.WrongType(
			path, n, "a mapping from names to groups", "write it as `text: {weight: 0.7, weights: {web: 3, books: 1}}`",
		)
		return
	}
	*g = make(Groups, len(n.Entries))
	for i, e := range n.Entries {
		at := decode.Join(path, e.Key.Text)
		d.Places[at] = e
		if why := badName(e.Key.Text); why != "" {
			d.Fail(at, e.Key, "the name of this group "+why, "use letters, digits, - and _")
		}
		(*g)[i].Name = e.Key.Text
		d.Decode(at, e.Value, reflect.ValueOf(&(*g)[i]).Elem(), decode.Rules{})
	}
	slices.SortFunc(*g, func(a, b Group) int { return strings.Compare(a.Name, b.Name) })
}
