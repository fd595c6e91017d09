package main

import (
	"fmt"
	"io"

	"millrace/proto"
)

// ledgerLine is what `millrace ledger --json` prints of one step of one attempt: its names and meanings stay.
type ledgerLine struct {
	Attempt      uint32          `json:"attempt"`
	Step         uint64          `json:"step"`
	Content      string          `json:"content_digest"`
	Placement    string          `json:"placement_digest"`
	Acknowledged bool            `json:"acknowledged"` // every rank has consumed it
	Complete     bool            `json:"complete"`     // segments holds all that was asked for
	Segments     []ledgerSegment `json:"segments"`
	Ranges       []ledgerRange   `json:"ranges"`
	Changes      []mixView       `json:"changes,omitempty"` // of the mixture, with this step
}

type ledgerSegment struct {
	segmentLine
	Masked bool `json:"masked"`
}

// ledgerRange: the step holds segments of ordinals from … to, both included, of a source.
type ledgerRange struct {
	Source string `json:"source"`
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
}

func newLedgerLine(r *proto.LedgerReply, sources []string) *ledgerLine {
	l := &ledgerLine{Attempt: r.Attempt, Step: r.Step, Content: fmt.Sprintf("%x", r.Content), Placement: fmt.Sprintf("%x", r.Placement),
		Acknowledged: r.Acknowledged, Complete: r.Complete, Segments: []ledgerSegment{}, Ranges: []ledgerRange{}}
	a := r.GetSegments()
	for i := range a.GetSource() {
		s := ledgerSegment{segmentLine: segmentLine{Epoch: a.Epoch[i], Ordinal: a.Ordinal[i], Offset: a.Offset[i], Length: a.Length[i],
			Rank: a.Rank[i], Microbatch: a.Microbatch[i], Row: a.Row[i], Start: a.Start[i]}}
		s.Source, s.ID = at(r.Sources, i), at(r.Ids, i)
		s.Masked = i < len(r.Masked) && r.Masked[i]
		l.Segments = append(l.Segments, s)
	}
	l.Changes = mixViews(r.Changes)
	for _, x := range r.Ranges {
		l.Ranges = append(l.Ranges, ledgerRange{Source: at(sources, int(x.Source)), From: x.From, To: x.To})
	}
	return l
}

// at is an entry of a column that may be shorter than the others.
func at(column []string, i int) string {
	if i < len(column) {
		return column[i]
	}
	return ""
}

func (l *ledgerLine) print(w io.Writer) error {
	state := "not yet consumed by every rank"
	if l.Acknowledged {
		state = "consumed by every rank"
	}
	fmt.Fprintf(w, "step %d, attempt %d: %s; content %s, placement %s\n", l.Step, l.Attempt, state, l.Content, l.Placement)
	printChanges(w, l.Changes)
	if !l.Complete {
		fmt.Fprintln(w, "its full plan is not kept any more; it held ordinals in these ranges, and `millrace plan` makes it anew from the mixture file")
		rows := []string{row("SOURCE", "FROM", "TO")}
		for _, x := range l.Ranges {
			rows = append(rows, row(x.Source, x.From, x.To))
		}
		return table(w, append(rows, "")...)
	}
	rows := []string{row("RANK", "MICRO", "ROW", "START", "LENGTH", "OFFSET", "SOURCE", "ID", "EPOCH", "ORDINAL", "MASKED")}
	for _, s := range l.Segments {
		masked := ""
		if s.Masked {
			masked = "masked"
		}
		rows = append(rows, row(s.Rank, s.Microbatch, s.Row, s.Start, s.Length, s.Offset, s.Source, s.ID, s.Epoch, s.Ordinal, masked))
	}
	return table(w, append(rows, "")...)
}
