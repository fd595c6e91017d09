package report

import (
	"fmt"
	"io"

	"millrace"
	"millrace/app/setup"
)

// Step is the answer of `millrace plan` about one step. Scripts read its JSON names.
type Step struct {
	Step      uint64    `json:"step"`
	Content   string    `json:"content_digest"`
	Placement string    `json:"placement_digest"`
	Segments  []Segment `json:"segments"`
	Changes   []Change  `json:"changes,omitempty"` // changes of the mixture that a run made with this step
}

// Segment is one segment of a step: its sample and its place.
type Segment struct {
	Source     string `json:"source"`
	ID         string `json:"id"`
	Epoch      uint32 `json:"epoch"`
	Ordinal    uint64 `json:"ordinal"`
	Offset     uint32 `json:"offset"`
	Length     uint32 `json:"length"`
	Rank       uint32 `json:"rank"`
	Microbatch uint32 `json:"microbatch"`
	Row        uint32 `json:"row"`
	Start      uint32 `json:"start"`
}

// NewSegment describes an assignment. Manifests are those of the run, by the number of their source.
func NewSegment(a *millrace.Assignment, ms []*millrace.Manifest) Segment {
	s := Segment{
		Epoch:      uint32(a.Epoch),
		Ordinal:    uint64(a.Ordinal),
		ID:         a.ID.String(),
		Offset:     a.Offset,
		Length:     a.Length,
		Rank:       uint32(a.Rank),
		Microbatch: a.Microbatch,
		Row:        a.Row,
		Start:      a.Start,
	}
	if int(a.Source) < len(ms) {
		s.Source, s.ID = setup.Names(ms)[a.Source], ms[a.Source].SampleName(a.ID)
	}
	return s
}

// NewStep describes a plan. Changes are the changes of the mixture that the run made with this step.
func NewStep(of *millrace.Plan, ms []*millrace.Manifest, changes []Change) *Step {
	line := &Step{
		Changes:   changes,
		Step:      uint64(of.Step),
		Content:   of.Content.String(),
		Placement: of.Placement.String(),
		Segments:  make([]Segment, len(of.Assignments)),
	}
	for i := range of.Assignments {
		line.Segments[i] = NewSegment(&of.Assignments[i], ms)
	}
	return line
}

// Print writes the step for people.
func (line *Step) Print(w io.Writer) error {
	tokens := uint64(0)
	rows := []string{Row("RANK", "MICRO", "ROW", "START", "LENGTH", "OFFSET", "SOURCE", "ID", "EPOCH", "ORDINAL")}
	for _, s := range line.Segments {
		tokens += uint64(s.Length)
		rows = append(
			rows, Row(s.Rank, s.Microbatch, s.Row, s.Start, s.Length, s.Offset, s.Source, s.ID, s.Epoch, s.Ordinal),
		)
	}
	fmt.Fprintf(
		w, "step %d: %d segments, %s tokens, content %s, placement %s\n", line.Step, len(line.Segments), Count(tokens),
		line.Content, line.Placement,
	)
	printChanges(w, line.Changes)
	return Table(w, append(rows, "")...)
}
