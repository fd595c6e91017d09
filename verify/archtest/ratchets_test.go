package archtest

import (
	"sort"
	"testing"
)

// A gauge is one measure of the code.
type gauge struct {
	name    string
	measure func(*testing.T, []source) []offender
}

// gauges describe the code. They refuse nothing: a room may be as large as its one idea. `make gauges` prints them.
var gauges = []gauge{
	{"files of a package", filesOfPackages},
	{"methods of a type over all its files", methodsOfTypes},
	{"exported names of a package", exportsOfPackages},
}

// A ratchet holds one gauge. limit is the worst value that passes today, goal the value that we want. A change may
// lower a limit, and never raises one.
type ratchet struct {
	gauge
	limit int
	goal  int
}

// An offender is one place and its value.
type offender struct {
	where   string
	value   int
	isPlace bool // a place that a total counts
}

var ratchets = []ratchet{
	{gauge{"percent of a package's arrows between files that run upward", upwardArrows}, 25, 10},
	{gauge{"lines above 120 columns", longLines}, 0, 0},
	{gauge{"noun clauses of the kind \"what is\" in 1,000 comment lines", clausesInComments}, 1, 1},
	{gauge{"noun clauses of the kind \"what is\" in 1,000 lines of pages", clausesInPages}, 1, 1},
	{gauge{"exported names that only tests use", exportsForTests}, 0, 0},
}

// TestGauges prints the largest places of each gauge. It fails only if a gauge finds nothing.
func TestGauges(t *testing.T) {
	sources := parseAll(t)
	for _, g := range gauges {
		found := g.ranked(t, sources)
		if len(found) == 0 {
			t.Errorf("%s: nothing was counted", g.name)
		}
		t.Logf("%s:", g.name)
		for _, o := range found[:min(len(found), 15)] {
			t.Logf("    %s: %d", o.where, o.value)
		}
	}
}

// ranked returns the measured places: totals before places, and large values before small ones.
func (g gauge) ranked(t *testing.T, sources []source) []offender {
	found := g.measure(t, sources)
	sort.SliceStable(found,
		func(i, j int) bool { return !found[i].isPlace && found[j].isPlace || found[i].value > found[j].value })
	return found
}

// TestRatchets fails when a measure is worse than its limit. With -v it prints the worst places of each.
func TestRatchets(t *testing.T) {
	sources := parseAll(t)
	for _, r := range ratchets {
		found := r.ranked(t, sources)
		worst := 0
		if len(found) > 0 {
			worst = found[0].value
		}
		t.Logf("%s: %d (limit %d, goal %d)", r.name, worst, r.limit, r.goal)
		for _, o := range found[:min(len(found), 15)] {
			if o.value > r.goal || o.isPlace {
				t.Logf("    %s: %d", o.where, o.value)
			}
		}
		if worst > r.limit {
			t.Errorf("%s: %s has %d, the limit is %d (goal %d)", r.name, found[0].where, worst, r.limit, r.goal)
		}
		if r.limit < r.goal {
			t.Errorf("%s: the limit %d is below its goal %d", r.name, r.limit, r.goal)
		}
	}
}

// total returns the count over the whole tree, followed by the places that it counts.
func total(places map[string]int) []offender {
	sum := 0
	out := offenders(places)
	for i, o := range out {
		sum += o.value
		out[i].isPlace = true
	}
	return append([]offender{{where: "the tree", value: sum}}, out...)
}
