// Package pretokenize divides a text in stages: each stage divides every part that the stage before has left, as if the
// part were a text of its own. These are the pre-tokenizers of Hugging Face's tokenizers.
package pretokenize

import "strings"

// Stage divides a text into parts.
type Stage interface {
	// Next returns the end of the part of t that begins at i, which is less than len(t) and the end of a part. The end
	// of a part depends on nothing before its beginning.
	Next(t []byte, i int) int
	// String returns the stage's text. It decides the parts of every text.
	String() string
}

// Stages divide a text one after the other. There is at least one of them. They never change.
type Stages []Stage

// String returns the texts of all stages.
func (s Stages) String() string {
	texts := make([]string, len(s))
	for i, stage := range s {
		texts[i] = stage.String()
	}
	return strings.Join(texts, ", ")
}

// Cursor finds the pieces of one text after another: the parts of the last stage.
type Cursor struct {
	stages Stages
	ends   []int // by stage, the end of its part that contains the next piece
}

// NewCursor returns a cursor.
func (s Stages) NewCursor() *Cursor { return &Cursor{stages: s, ends: make([]int, len(s))} }

// Reset makes the cursor ready for a text, which the caller passes to each call of Pieces.
func (c *Cursor) Reset() { clear(c.ends) }

// Pieces fills ends with the ends of the next pieces of t from pos on, and returns their number. pos is 0 after Reset,
// or else the end of the last piece. It finds at least one piece unless no text is left.
func (c *Cursor) Pieces(t []byte, pos int, ends []int) (n int) {
	last := len(c.stages) - 1
	for n < len(ends) && pos < len(t) {
		within := len(t)
		for i, stage := range c.stages {
			if c.ends[i] <= pos {
				c.ends[i] = stage.Next(t[:within], pos)
			}
			within = c.ends[i]
		}
		pos = c.ends[last]
		ends[n] = pos
		n++
	}
	return n
}
