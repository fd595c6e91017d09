package constructors

import (
	"slices"

	"millrace"
	"millrace/internal/tokenid"
)

// The values of millrace.Assignment.Half.
const (
	Chosen   = 1
	Rejected = 2
)

// Content is the content of a microbatch: an entry of each list for each segment. Masked and Fields may be nil.
type Content struct {
	Part   []millrace.Assignment
	Tokens []Tokens
	Masked []bool
	Fields []string // passed-through fields
}

// Apart returns the content with the two segments of each preference pair one behind the other, in place of the one
// segment of its plan (docs/decisions/0021). Without pairs it returns c itself. It does not change c. A masked pair
// stays one segment. A pair that a plan cut is an error with the mark millrace.ErrMismatch.
func (c Content) Apart() (Content, error) {
	first := slices.IndexFunc(c.Tokens, isPair)
	if first < 0 {
		return c, nil
	}
	out := Content{Part: slices.Clone(c.Part[:first]), Tokens: slices.Clone(c.Tokens[:first])}
	if c.Masked != nil {
		out.Masked = slices.Clone(c.Masked[:first])
	}
	if c.Fields != nil {
		out.Fields = slices.Clone(c.Fields[:first])
	}
	for i := first; i < len(c.Part); i++ {
		a, tokens := c.Part[i], c.Tokens[i]
		if !isPair(tokens) || c.Masked != nil && c.Masked[i] {
			out.add(&c, i, a, tokens)
			continue
		}
		border := 1 + slices.IndexFunc(tokens.wide[1:], isBegin)
		if border == 0 || a.Offset > 0 || a.More || a.Parts > 0 || int(a.Length) != len(tokens.wide) {
			return out, millrace.Errorf(millrace.ErrMismatch,
				"build microbatch: the preference pair of source %d, ordinal %d is cut: tokens %d to %d came; "+
					"pairs need packing other than concat, and no stage with a shorter sequence_length",
				a.Source, a.Ordinal, a.Offset, a.Offset+a.Length)
		}
		ids := slices.Clone(tokens.wide)
		for _, first := range []int{0, border} { // out of the loss, as first tokens are
			ids[first] = ids[first]&^tokenid.Begin | tokenid.Untrained
		}
		chosen, rejected := a, a
		chosen.Half, chosen.Length = Chosen, uint32(border)
		rejected.Half, rejected.Length = Rejected, a.Length-uint32(border)
		rejected.Offset, rejected.Start = a.Offset+uint32(border), a.Start+uint32(border)
		out.add(&c, i, chosen, Wide(ids[:border]))
		out.add(&c, i, rejected, Wide(ids[border:]))
	}
	return out, nil
}

// add appends a segment that is segment i of another content, or a half of it.
func (c *Content) add(of *Content, i int, a millrace.Assignment, tokens Tokens) {
	c.Part, c.Tokens = append(c.Part, a), append(c.Tokens, tokens)
	if of.Masked != nil {
		c.Masked = append(c.Masked, of.Masked[i])
	}
	if of.Fields != nil {
		c.Fields = append(c.Fields, of.Fields[i])
	}
}

func isPair(t Tokens) bool { return len(t.wide) > 0 && isBegin(t.wide[0]) }

func isBegin(id uint32) bool { return id&tokenid.Begin == tokenid.Begin }
