package main

import (
	"fmt"
	"io"
	"strconv"

	"millrace/orchestrator/facts"
	"millrace/proto"
)

// mixView is a change of the mixture as scripts read it.
type mixView struct {
	AtStep  uint64 `json:"at_step"` // first step that it decides
	Text    string `json:"text"`
	By      string `json:"by"`            // millrace mix, or the name of an adaptive policy
	Why     string `json:"why,omitempty"` // of an adaptive policy: what it saw
	InForce bool   `json:"in_force"`      // false: it holds once the ranks start again from a state at or before its step
	Attempt uint32 `json:"attempt"`       // in which it was made, or from which on it holds
}

// mixtureView is the mixture of a run as scripts read it.
type mixtureView struct {
	Weights    map[string]float64 `json:"weights,omitempty"` // in force at the next step to be planned; they add up to 1
	Milestones []string           `json:"schedule,omitempty"`
	Changes    []mixView          `json:"changes"`
	Costs      *costsView         `json:"costs,omitempty"` // where they are others than the mixture file's
	Fit        *fitView           `json:"fit,omitempty"`   // where trainers report times
}

type costsView struct {
	Linear    uint64 `json:"linear"`
	Quadratic uint64 `json:"quadratic"`
}

// fitView says how well predicted costs go with reported times: r2 of the coefficients in force, and of the best there are.
type fitView struct {
	Reports uint64    `json:"reports"`
	R2      float64   `json:"r2"`
	Best    costsView `json:"best"`
	BestR2  float64   `json:"best_r2"`
}

func newMixView(c *proto.MixChange) mixView {
	return mixView{AtStep: c.AtStep, Text: c.Text, By: c.By, Why: c.Why, InForce: c.InForce, Attempt: c.Attempt}
}

func mixViews(list []*proto.MixChange) []mixView {
	out := make([]mixView, len(list))
	for i, c := range list {
		out[i] = newMixView(c)
	}
	return out
}

func newMixtureView(m *proto.MixtureStatus) *mixtureView {
	if m == nil {
		return nil
	}
	out := &mixtureView{Weights: map[string]float64{}, Milestones: m.Milestones, Changes: mixViews(m.Changes)}
	for _, w := range m.Weights {
		if share, err := strconv.ParseFloat(w.Weight, 64); err == nil {
			out.Weights[w.Source] = share
		}
	}
	if c := m.Costs; c != nil {
		out.Costs = &costsView{c.Linear, c.Quadratic}
	}
	if f := m.Calibration; f != nil {
		out.Fit = &fitView{Reports: f.Reports, R2: f.R2, Best: costsView{f.Best.GetLinear(), f.Best.GetQuadratic()}, BestR2: f.BestR2}
	}
	return out
}

// storedChanges are the changes of the mixture that the journal of a stopped run holds.
func storedChanges(s *facts.State) []mixView {
	out, names := []mixView{}, sortedNames(s.Manifests)
	for _, c := range s.Mixed {
		out = append(out, mixView{AtStep: c.AtStep, Text: facts.Describe(c, names), By: c.By, Why: c.Why, InForce: s.InForce(c), Attempt: c.Attempt})
	}
	return out
}

// printChanges writes a line for each change.
func printChanges(w io.Writer, changes []mixView) {
	for _, c := range changes {
		fmt.Fprintln(w, c.line())
	}
}

func (c mixView) line() string {
	text := fmt.Sprintf("mixture from step %d on: %s (%s)", c.AtStep, c.Text, c.By)
	if c.Why != "" {
		text += ": " + c.Why
	}
	if !c.InForce {
		text += fmt.Sprintf("; in force once the ranks start again from a state at or before step %d", c.AtStep)
	}
	return text
}

func (m *mixtureView) print(w io.Writer) error {
	rows := []string{row("SOURCE", "WEIGHT")}
	for _, name := range sortedNames(m.Weights) {
		rows = append(rows, row(name, percent(m.Weights[name])))
	}
	if err := table(w, rows...); err != nil {
		return err
	}
	for _, k := range m.Milestones {
		fmt.Fprintln(w, "schedule:", k)
	}
	if m.Costs != nil {
		fmt.Fprintf(w, "costs: linear %d, quadratic %d\n", m.Costs.Linear, m.Costs.Quadratic)
	}
	if f := m.Fit; f != nil {
		fmt.Fprintf(w, "%d reported times follow the predicted cost with R² %.3f; with linear %d, quadratic %d it would be %.3f\n", f.Reports, f.R2, f.Best.Linear, f.Best.Quadratic, f.BestR2)
	}
	printChanges(w, m.Changes)
	return nil
}
