package tier

import (
	"fmt"

	"millrace"
	"millrace/constructors"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar/incoming"
)

// received implements sidecar.Payload with the rows of ranks that a constructor has sent.
type received struct {
	plan   *millrace.Plan
	starts map[millrace.Rank]int // the number of the first row
	rows   []*millrace.Assignment
	tokens []constructors.Tokens
	masked []bool   // nil: none is
	fields []string // nil: none has any
	bytes  int64    // of the tokens of replies: rows keep their memory
	joined incoming.Rows
	next   int // the lowest number that the next row may have
}

func newReceived(plan *millrace.Plan, ranks []millrace.Rank) *received {
	p := &received{plan: plan, starts: map[millrace.Rank]int{}}
	for _, r := range ranks {
		p.starts[r] = len(p.rows)
		for m := range plan.Microbatches {
			part := plan.Part(r, m)
			for i := range part {
				p.rows = append(p.rows, &part[i])
			}
		}
	}
	p.tokens = make([]constructors.Tokens, len(p.rows))
	return p
}

// take files the rows of a reply. It refuses a row that the plan does not have, and a row of another length.
func (p *received) take(r *proto.FetchReply) error {
	p.bytes += int64(len(r.Tokens))
	for row, err := range wire.Rows(r, false) {
		if err != nil {
			return err
		}
		i := int(row.Number)
		if i >= len(p.rows) || i < p.next {
			return millrace.Errorf(millrace.ErrMismatch, "row %d of %d in place of row %d", i, len(p.rows), p.next)
		}
		tokens, isWhole, err := p.joined.Add(&row, p.rows[i])
		if err != nil {
			return err
		}
		if !isWhole {
			continue
		}
		p.tokens[i], p.next = tokens, i+1
		if row.Fields != "" {
			p.setFields(i, row.Fields)
		}
	}
	return nil
}

func (p *received) setFields(i int, fields string) {
	if p.fields == nil {
		p.fields = make([]string, len(p.rows))
	}
	p.fields[i] = fields
}

// settle drops the masked rows. All others must be here.
func (p *received) settle(isMasked func(*millrace.Assignment) bool) error {
	for i, a := range p.rows {
		switch {
		case isMasked(a):
			if p.masked == nil {
				p.masked = make([]bool, len(p.rows))
			}
			p.masked[i], p.tokens[i] = true, constructors.Tokens{}
			if p.fields != nil {
				p.fields[i] = ""
			}
		case p.tokens[i].IsNone(): // it knows of a mask that has not come here
			return millrace.Errorf(millrace.ErrFenced, "it left out source %d, ordinal %d, offset %d", a.Source,
				a.Ordinal, a.Offset)
		}
	}
	return nil
}

// span returns the numbers of a microbatch's rows: from … to.
func (p *received) span(rank millrace.Rank, microbatch uint32) (from, to int) {
	from = p.starts[rank]
	for m := range microbatch {
		from += len(p.plan.Part(rank, m))
	}
	return from, from + len(p.plan.Part(rank, microbatch))
}

// Tokens implements sidecar.Payload.
func (p *received) Tokens(rank millrace.Rank, microbatch uint32) ([]constructors.Tokens, error) {
	from, to := p.span(rank, microbatch)
	if to > len(p.tokens) {
		return nil, fmt.Errorf("the payload of step %d has been released", p.plan.Step)
	}
	return p.tokens[from:to], nil
}

// Masked implements sidecar.Payload.
func (p *received) Masked(rank millrace.Rank, microbatch uint32) []bool {
	if p.masked == nil {
		return nil
	}
	from, to := p.span(rank, microbatch)
	return p.masked[from:to]
}

// Fields implements sidecar.Payload.
func (p *received) Fields(rank millrace.Rank, microbatch uint32) []string {
	if p.fields == nil {
		return nil
	}
	from, to := p.span(rank, microbatch)
	return p.fields[from:to]
}

// Bytes implements sidecar.Payload.
func (p *received) Bytes() int64 {
	n := p.bytes
	for _, fields := range p.fields {
		n += int64(len(fields))
	}
	return n
}

// Release implements sidecar.Payload.
func (p *received) Release() { p.tokens, p.fields = nil, nil }
