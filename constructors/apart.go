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

// Apart returns the content with the separate segments of each document, in place of the one segment of its plan: the
// two of a preference pair (docs/decisions/0021), and the sequences of a packed document (docs/decisions/0024). Without
// such documents it returns c itself. It does not change c. A masked segment stays one. A document whose segments
// cannot be separated is an error with the mark millrace.ErrMismatch.
func (c Content) Apart() (Content, error) {
	first := slices.IndexFunc(c.Tokens, isSeveral)
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
		isMasked, err := c.Masked != nil && c.Masked[i], error(nil)
		switch tokens := c.Tokens[i]; {
		case isMasked || !isSeveral(tokens):
			out.add(&c, i, c.Part[i], tokens)
		case isBegin(tokens.wide[0]):
			err = out.addPair(&c, i)
		default:
			err = out.addSequences(&c, i)
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// addPair appends the halves of a preference pair, which is segment i of another content.
func (c *Content) addPair(of *Content, i int) error {
	a, ids := of.Part[i], slices.Clone(of.Tokens[i].wide)
	border := 1 + slices.IndexFunc(ids[1:], isBegin)
	if border == 0 || a.Offset > 0 || a.More || a.Parts > 0 || int(a.Length) != len(ids) {
		return millrace.Errorf(millrace.ErrMismatch,
			"build microbatch: the preference pair of source %d, ordinal %d is cut: tokens %d to %d came; "+
				"pairs need packing other than concat, and no stage with a shorter sequence_length",
			a.Source, a.Ordinal, a.Offset, a.Offset+a.Length)
	}
	for _, first := range []int{0, border} { // out of the loss, as first tokens are
		ids[first] = ids[first]&^tokenid.Begin | tokenid.Untrained
	}
	chosen, rejected := between(a, 0, border), between(a, border, len(ids))
	chosen.Half, rejected.Half = Chosen, Rejected
	c.add(of, i, chosen, Wide(ids[:border]))
	c.add(of, i, rejected, Wide(ids[border:]))
	return nil
}

// addSequences appends the sequences of a packed document, of which segment i of another content is a part.
func (c *Content) addSequences(of *Content, i int) error {
	a, ids := of.Part[i], slices.Clone(of.Tokens[i].wide)
	if a.Parts > 0 {
		return millrace.Errorf(millrace.ErrMismatch, "build microbatch: the packed document of source %d, ordinal %d "+
			"is divided among ranks; its sequences need pad_multiple 1, and no split_documents", a.Source, a.Ordinal)
	}
	from, length := 0, int(a.Length)
	for at := 0; at < len(ids); at++ { // after the length is the label of the last token, if the document continues
		if !isStart(ids[at]) {
			continue
		}
		ids[at] = ids[at]&^tokenid.Start | tokenid.Untrained // out of the loss, as first tokens are
		if at > from && at < length {
			c.add(of, i, between(a, from, at), Wide(ids[from:at]))
			from = at
		}
	}
	c.add(of, i, between(a, from, length), Wide(ids[from:]))
	return nil
}

// between returns the assignment of the tokens from … to of a segment. Only its last part continues in another segment.
func between(a millrace.Assignment, from, to int) millrace.Assignment {
	a.More = a.More && to == int(a.Length)
	a.Offset, a.Start, a.Length = a.Offset+uint32(from), a.Start+uint32(from), uint32(to-from)
	return a
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

// isSeveral reports whether a document has several segments in a batch.
func isSeveral(t Tokens) bool {
	return len(t.wide) > 0 && (isBegin(t.wide[0]) || slices.ContainsFunc(t.wide, isStart))
}

func isBegin(id uint32) bool { return id&tokenid.Begin == tokenid.Begin }

func isStart(id uint32) bool { return id&(tokenid.Start|tokenid.Begin) == tokenid.Start }
