package report

import (
	"fmt"
	"io"

	"millrace/proto"
)

// LedgerStep is the answer of `millrace ledger` about one step of one attempt. Scripts read its JSON names.
type LedgerStep struct {
	Attempt      uint32          `json:"attempt"`
	Step         uint64          `json:"step"`
	Content      string          `json:"content_digest"`
	Placement    string          `json:"placement_digest"`
	Acknowledged bool            `json:"acknowledged"` // every rank has consumed it
	Complete     bool            `json:"complete"`     // Segments has every segment of the step
	Segments     []LedgerSegment `json:"segments"`
	Ranges       []Range         `json:"ranges"`
	Changes      []Change        `json:"changes,omitempty"` // of the mixture, with this step
}

// LedgerSegment is a segment and whether it was masked.
type LedgerSegment struct {
	Segment
	Masked bool `json:"masked"`
}

// Range says that a step holds segments of the ordinals From to To of a source, both included.
type Range struct {
	Source string `json:"source"`
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
}

// NewLedgerStep describes a ledger's reply. Sources are the names of the run's sources in order.
func NewLedgerStep(r *proto.LedgerReply, sources []string) *LedgerStep {
	l := &LedgerStep{
		Attempt:      r.Attempt,
		Step:         r.Step,
		Content:      fmt.Sprintf("%x", r.Content),
		Placement:    fmt.Sprintf("%x", r.Placement),
		Acknowledged: r.Acknowledged,
		Complete:     r.Complete,
		Segments:     []LedgerSegment{},
		Ranges:       []Range{},
	}
	a := r.GetSegments()
	for i := range a.GetSource() {
		s := LedgerSegment{
			Segment: Segment{Epoch: a.Epoch[i], Ordinal: a.Ordinal[i], Offset: a.Offset[i], Length: a.Length[i],
				Rank: a.Rank[i], Microbatch: a.Microbatch[i], Row: a.Row[i], Start: a.Start[i]},
		}
		s.Source, s.ID = at(r.Sources, i), at(r.Ids, i)
		s.Masked = i < len(r.Masked) && r.Masked[i]
		l.Segments = append(l.Segments, s)
	}
	l.Changes = NewChanges(r.Changes)
	for _, x := range r.Ranges {
		l.Ranges = append(l.Ranges, Range{Source: at(sources, int(x.Source)), From: x.From, To: x.To})
	}
	return l
}

// at returns an entry of a column, or nothing if the column is too short.
func at(column []string, i int) string {
	if i < len(column) {
		return column[i]
	}
	return ""
}

// Print writes the step for people.
func (l *LedgerStep) Print(w io.Writer) error {
	state := "not yet consumed by every rank"
	if l.Acknowledged {
		state = "consumed by every rank"
	}
	fmt.Fprintf(
		w, "step %d, attempt %d: %s; content %s, placement %s\n", l.Step, l.Attempt, state, l.Content, l.Placement,
	)
	printChanges(w, l.Changes)
	if !l.Complete {
		fmt.Fprintln(
			w,
			"its full plan was dropped; its ordinals are in these ranges; `millrace plan` computes the plan from "+
				"the mixture file",
		)
		rows := []string{Row("SOURCE", "FROM", "TO")}
		for _, x := range l.Ranges {
			rows = append(rows, Row(x.Source, x.From, x.To))
		}
		return Table(w, append(rows, "")...)
	}
	rows := []string{
		Row("RANK", "MICRO", "ROW", "START", "LENGTH", "OFFSET", "SOURCE", "ID", "EPOCH", "ORDINAL", "MASKED"),
	}
	for _, s := range l.Segments {
		masked := ""
		if s.Masked {
			masked = "masked"
		}
		rows = append(
			rows,
			Row(s.Rank, s.Microbatch, s.Row, s.Start, s.Length, s.Offset, s.Source, s.ID, s.Epoch, s.Ordinal, masked),
		)
	}
	return Table(w, append(rows, "")...)
}
