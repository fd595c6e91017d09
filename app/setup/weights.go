package setup

import (
	"errors"
	"fmt"
	"slices"

	"millrace/app/config"
	"millrace/mixing"
)

// weights returns the weights of one milestone of the schedule for each source.
func weights(c *config.Config, of config.Facts, k *config.Milestone) ([]mixing.Weight, error) {
	root, err := node(c, of, k.Weights, k.Groups)
	if err != nil {
		return nil, err
	}
	if k.Groups == nil && k.Weights.Derived == nil {
		out := make([]mixing.Weight, len(c.Sources))
		for _, n := range root.Parts {
			out[n.Source] = n.Weight
		}
		return out, nil
	}
	return mixing.Flatten(len(c.Sources), root)
}

// node translates a set of weights or of groups for mixing.
func node(c *config.Config, of config.Facts, w config.Weights, groups config.Groups) (out mixing.Node, err error) {
	if w.Derived != nil {
		return derived(c, of, w.Derived)
	}
	names := c.Sources.Names()
	for _, x := range w.Given {
		weight, err := mixing.ParseWeight(x.Value.String())
		if err != nil {
			return out, fmt.Errorf("weight of source %s: %w", x.Source, err)
		}
		at, _ := slices.BinarySearch(names, x.Source)
		out.Parts = append(out.Parts, mixing.Node{Weight: weight, Source: at})
	}
	for i := range groups {
		g := &groups[i]
		inner, err := node(c, of, g.Weights, g.Groups)
		if err == nil {
			inner.Weight, err = mixing.ParseWeight(g.Weight.String())
		}
		if err != nil {
			return out, fmt.Errorf("group %s: %w", g.Name, err)
		}
		out.Parts = append(out.Parts, inner)
	}
	return out, nil
}

// errUnmeasured is a fault of the program: the sizes must be measured before planning.
var errUnmeasured = errors.New("derive weights: the sizes of the sources were not measured")

// derived returns the weights that a rule derives from the sizes of its sources.
func derived(c *config.Config, of config.Facts, d *config.Derived) (out mixing.Node, err error) {
	if d.From != config.RuleUniform && of.Sizes == nil {
		return out, errUnmeasured
	}
	var sizes []uint64
	names := c.Sources.Names()
	for _, name := range d.Members(c.Sources) {
		at, _ := slices.BinarySearch(names, name)
		out.Parts = append(out.Parts, mixing.Node{Source: at})
		if of.Sizes != nil {
			sizes = append(sizes, of.Sizes[at])
		} else {
			sizes = append(sizes, 0) // equal weights need no sizes
		}
	}
	rule := map[config.Rule]mixing.Rule{
		config.RuleUniform:     mixing.Uniform,
		config.RuleSize:        mixing.BySize,
		config.RuleTemperature: mixing.ByTemperature,
		config.RuleUniMax:      mixing.UniMax,
	}
	out.Derived, err = mixing.Derivation{
		Rule:        rule[d.From],
		Temperature: d.Temperature.Rat(),
		MaxEpochs:   d.MaxEpochs,
		Budget:      c.Budget(d),
	}.Sizes(
		sizes,
	)
	return out, err
}

// bounds returns the bounds of fractions in the mixture file, or none.
func bounds(c *config.Config) (b mixing.Bounds) {
	const unit = 1_000_000_000
	said := !c.Mixture.Floor.IsZero()
	for i := range c.Sources {
		least, most := c.Bounds(&c.Sources[i])
		said = said || least > 0 || most < unit
		b.Least = append(b.Least, mixing.Whole/unit*least+mixing.Whole%unit*least/unit)
		b.Most = append(b.Most, mixing.Whole/unit*most+mixing.Whole%unit*most/unit)
	}
	if !said {
		return mixing.Bounds{}
	}
	return b
}
