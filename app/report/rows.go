package report

import (
	"time"
)

// The rows of the tables of `--to`. Scripts read the names of their columns.

// PlanRow is a segment of a step of `millrace plan`.
type PlanRow struct {
	Step      uint64 `json:"step"`
	Content   string `json:"content_digest"`
	Placement string `json:"placement_digest"`
	Segment
	Changes []string `json:"changes"` // of the mixture, with this step
}

// Rows returns a row for each segment.
func (line *Step) Rows() []PlanRow {
	out := make([]PlanRow, len(line.Segments))
	for i, s := range line.Segments {
		out[i] = PlanRow{line.Step, line.Content, line.Placement, s, linesOf(line.Changes)}
	}
	return out
}

// LedgerRow is a segment of a step, or a range of ordinals of a step whose plan the run has dropped.
type LedgerRow struct {
	Attempt      uint32   `json:"attempt"`
	Step         uint64   `json:"step"`
	Content      string   `json:"content_digest"`
	Placement    string   `json:"placement_digest"`
	Acknowledged bool     `json:"acknowledged"`
	Complete     bool     `json:"complete"`
	Kind         string   `json:"kind"` // segment or range
	Source       string   `json:"source"`
	Ordinal      uint64   `json:"ordinal"`
	LastOrdinal  uint64   `json:"last_ordinal"` // of a range; of a segment its ordinal
	*Held                 // nil: a range
	Changes      []string `json:"changes"` // of the mixture, with this step
}

// Held is the place of a segment and its part of the document.
type Held struct {
	ID         string `json:"id"`
	Epoch      uint32 `json:"epoch"`
	Offset     uint32 `json:"offset"`
	Length     uint32 `json:"length"`
	Rank       uint32 `json:"rank"`
	Microbatch uint32 `json:"microbatch"`
	Row        uint32 `json:"row"`
	Start      uint32 `json:"start"`
	Masked     bool   `json:"masked"`
}

// Rows returns a row for each segment, and for each range if segments are missing.
func (l *LedgerStep) Rows() []LedgerRow {
	of := LedgerRow{Attempt: l.Attempt, Step: l.Step, Content: l.Content, Placement: l.Placement,
		Acknowledged: l.Acknowledged, Complete: l.Complete, Changes: linesOf(l.Changes)}
	var out []LedgerRow
	for _, s := range l.Segments {
		row := of
		row.Kind, row.Source, row.Ordinal, row.LastOrdinal = "segment", s.Source, s.Ordinal, s.Ordinal
		row.Held = &Held{s.ID, s.Epoch, s.Offset, s.Length, s.Rank, s.Microbatch, s.Row, s.Start, s.Masked}
		out = append(out, row)
	}
	if l.Complete {
		return out
	}
	for _, x := range l.Ranges {
		row := of
		row.Kind, row.Source, row.Ordinal, row.LastOrdinal = "range", x.Source, x.From, x.To
		out = append(out, row)
	}
	return out
}

// linesOf returns a line for each change.
func linesOf(changes []Change) []string {
	out := make([]string, len(changes))
	for i, c := range changes {
		out[i] = c.Line()
	}
	return out
}

// MixRow is one fact of `millrace mix show`. Kind says which columns it has: weight (source, weight), schedule (text),
// change (all others), or costs (text).
type MixRow struct {
	Kind    string   `json:"kind"`
	Source  *string  `json:"source"`
	Weight  *float64 `json:"weight"` // the weights add up to 1
	Text    *string  `json:"text"`
	AtStep  *uint64  `json:"at_step"`
	By      *string  `json:"by"`
	Why     *string  `json:"why"`
	InForce *bool    `json:"in_force"`
	Attempt *uint32  `json:"attempt"`
}

// Rows returns the weights, the schedule and the changes.
func (m *Mixture) Rows() []MixRow {
	var out []MixRow
	for _, name := range Names(m.Weights) {
		out = append(out, MixRow{Kind: "weight", Source: &name, Weight: new(m.Weights[name])})
	}
	for _, text := range m.Milestones {
		out = append(out, MixRow{Kind: "schedule", Text: &text})
	}
	for _, c := range m.Changes {
		out = append(out, MixRow{Kind: "change", Text: &c.Text, AtStep: &c.AtStep, By: &c.By, Why: &c.Why,
			InForce: &c.InForce, Attempt: &c.Attempt})
	}
	if m.Costs != nil {
		out = append(out, MixRow{Kind: "costs", Text: new(m.Costs.String())})
	}
	return out
}

// StatusRow is a source of a stream in `millrace status`.
type StatusRow struct {
	Time    time.Time `json:"time"` // when the run was asked
	Running bool      `json:"running"`
	Stream  string    `json:"stream"`
	Step    *uint64   `json:"step"`
	Planned *uint64   `json:"planned"`
	Attempt uint32    `json:"attempt"`
	Ended   bool      `json:"ended"`
	Waiting string    `json:"waiting"`
	Source  string    `json:"source"`
	Tokens  uint64    `json:"tokens"`
	Trained *uint64   `json:"trained_tokens"` // null: all are trained on
	Samples uint64    `json:"samples"`
	Epoch   uint32    `json:"epoch"`
	Share   float64   `json:"share"`
	Passed  uint64    `json:"passed_over"`
	Missing uint64    `json:"missing"`
	TooLong uint64    `json:"too_long"`
	Bad     uint64    `json:"quarantined"`
	Shuffle string    `json:"shuffle"`
}

// Rows returns a row for each source of the stream of this name, and of the further streams.
func (v *Status) Rows(stream string, now time.Time) []StatusRow {
	var out []StatusRow
	for _, name := range Names(v.Sources) {
		s := v.Sources[name]
		out = append(out, StatusRow{Time: now, Running: v.Running, Stream: stream, Step: v.Step, Planned: v.Planned,
			Attempt: v.Attempt, Ended: v.Ended, Waiting: v.Waiting, Source: name, Tokens: s.Tokens, Trained: s.Trained,
			Samples: s.Samples, Epoch: s.Epoch, Share: s.Share, Passed: s.Passed, Missing: s.Missing,
			TooLong: s.TooLong, Bad: s.Bad, Shuffle: s.Shuffle})
	}
	for _, name := range Names(v.Streams) {
		out = append(out, v.Streams[name].Rows(name, now)...)
	}
	return out
}
