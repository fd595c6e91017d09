package report

import (
	"fmt"
	"io"
	"strconv"

	"millrace/orchestrator/facts"
	"millrace/proto"
)

// Change is one change of a run's mixture. Scripts read its JSON names.
type Change struct {
	AtStep  uint64 `json:"at_step"` // first step that it decides
	Text    string `json:"text"`
	By      string `json:"by"`            // millrace mix, or the name of an adaptive policy
	Why     string `json:"why,omitempty"` // the observation of an adaptive policy
	InForce bool   `json:"in_force"`      // false: in force only after a restart at or before its step
	Attempt uint32 `json:"attempt"`       // in which it was made, or from which on it holds
}

// Mixture is the mixture of a run. Scripts read its JSON names.
type Mixture struct {
	Weights    map[string]float64 `json:"weights,omitempty"` // at the next step to be planned; they add up to 1
	Milestones []string           `json:"schedule,omitempty"`
	Changes    []Change           `json:"changes"`           // the newest
	Earlier    uint64             `json:"earlier,omitempty"` // changes before these
	Costs      *Costs             `json:"costs,omitempty"`   // null if they are the mixture file's
	Fit        *Fit               `json:"fit,omitempty"`     // null if trainers report no times
}

// Costs are coefficients of the cost.
type Costs struct {
	Linear    uint64 `json:"linear"`
	Quadratic uint64 `json:"quadratic"`
}

// String is the coefficients in words.
func (c Costs) String() string { return fmt.Sprintf("linear %d, quadratic %d", c.Linear, c.Quadratic) }

// Fit says how well predicted costs follow reported times: R2 of the coefficients in force, and BestR2 of the best
// ones.
type Fit struct {
	Reports uint64  `json:"reports"`
	R2      float64 `json:"r2"`
	Best    Costs   `json:"best"`
	BestR2  float64 `json:"best_r2"`
}

// NewChange describes a change.
func NewChange(c *proto.MixChange) Change {
	return Change{AtStep: c.AtStep, Text: c.Text, By: c.By, Why: c.Why, InForce: c.InForce, Attempt: c.Attempt}
}

// NewChanges describes changes.
func NewChanges(list []*proto.MixChange) []Change {
	out := make([]Change, len(list))
	for i, c := range list {
		out[i] = NewChange(c)
	}
	return out
}

// NewMixture describes a mixture. It returns nil for nil.
func NewMixture(m *proto.MixtureStatus) *Mixture {
	if m == nil {
		return nil
	}
	out := &Mixture{Weights: map[string]float64{}, Milestones: m.Milestones, Changes: NewChanges(m.Changes),
		Earlier: m.Earlier}
	for _, w := range m.Weights {
		if share, err := strconv.ParseFloat(w.Weight, 64); err == nil {
			out.Weights[w.Source] = share
		}
	}
	if c := m.Costs; c != nil {
		out.Costs = &Costs{c.Linear, c.Quadratic}
	}
	if f := m.Calibration; f != nil {
		out.Fit = &Fit{
			Reports: f.Reports,
			R2:      f.R2,
			Best:    Costs{f.Best.GetLinear(), f.Best.GetQuadratic()},
			BestR2:  f.BestR2,
		}
	}
	return out
}

// storedChanges returns the changes of the mixture from the journal of a stopped run.
func storedChanges(s *facts.State) []Change {
	out, names := []Change{}, Names(s.Manifests)
	for _, c := range s.Mixed {
		out = append(
			out,
			Change{
				AtStep:  c.AtStep,
				Text:    facts.Describe(c, names),
				By:      c.By,
				Why:     c.Why,
				InForce: s.IsInForce(c),
				Attempt: c.Attempt,
			},
		)
	}
	return out
}

// printChanges writes a line for each of the newest changes.
func (m *Mixture) printChanges(w io.Writer) {
	if m.Earlier > 0 {
		fmt.Fprintf(w, "%d earlier changes of the mixture: `millrace ledger DIR --step N` has those of a step\n",
			m.Earlier)
	}
	printChanges(w, m.Changes)
}

// printChanges writes a line for each change.
func printChanges(w io.Writer, changes []Change) {
	for _, c := range changes {
		fmt.Fprintln(w, c.Line())
	}
}

// Line is the change in one line.
func (c Change) Line() string {
	text := fmt.Sprintf("mixture from step %d on: %s (%s)", c.AtStep, c.Text, c.By)
	if c.Why != "" {
		text += ": " + c.Why
	}
	if !c.InForce {
		text += fmt.Sprintf("; in force once the ranks start again from a state at or before step %d", c.AtStep)
	}
	return text
}

// Print writes the mixture for people.
func (m *Mixture) Print(w io.Writer) error {
	rows := []string{Row("SOURCE", "WEIGHT")}
	for _, name := range Names(m.Weights) {
		rows = append(rows, Row(name, Percent(m.Weights[name])))
	}
	if err := Table(w, rows...); err != nil {
		return err
	}
	for _, k := range m.Milestones {
		fmt.Fprintln(w, "schedule:", k)
	}
	if m.Costs != nil {
		fmt.Fprintf(w, "costs: %v\n", m.Costs)
	}
	if f := m.Fit; f != nil {
		fmt.Fprintf(
			w,
			"%d reported times follow the predicted cost with R² %.3f; with linear %d, quadratic %d it would be %.3f\n",
			f.Reports, f.R2, f.Best.Linear, f.Best.Quadratic, f.BestR2,
		)
	}
	m.printChanges(w)
	return nil
}
