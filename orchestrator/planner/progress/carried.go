package progress

import (
	"cmp"

	"millrace"
)

// The most steps that a carried segment waits, by the rule that packs it. With windows of more steps, it waits for one
// window.
const (
	// MostWaits holds for best-fit-decreasing.
	MostWaits = 8
	// PoolWaits holds if steps are packed from a pool. After PoolUrgent steps a segment comes before all others. The
	// segments of a pool fill fewer than four steps, and urgent ones fill at least half of each.
	PoolWaits  = 24
	PoolUrgent = 16
	// Loaders keep all documents from the oldest waiting one on. So in windows of many bins, segments are urgent after
	// the steps of PoolUrgentBins bins, but not before PoolUrgentLeast steps.
	PoolUrgentBins  = 2048
	PoolUrgentLeast = 2
	// BucketWaits is for bucketed packing: after this number of steps, rare lengths take the next step that has room.
	BucketWaits = 30
)

const (
	// mostCarried is the most segments in a state. It is twice the limit of `carry`: a stage with shorter bins than the
	// stage before may pack the middle of a waiting segment, and two segments remain.
	mostCarried = 2 * millrace.MostCarried

	maxAge = 1<<5 - 1 // the age has five bits in the compact form
)

// Carried is a segment that was drawn and charged to its source, and that waits for a later step with room. Its
// document is read again when a run starts from the state, so loaders keep documents from State.Floor on.
type Carried struct {
	Source  uint32           `json:"source"`
	Ordinal millrace.Ordinal `json:"ordinal"`
	Offset  uint32           `json:"offset"` // tokens of the document before it
	Length  uint32           `json:"length"` // tokens
	More    bool             `json:"more"`   // the document continues after it
	Age     uint32           `json:"age"`    // steps that it has waited
}

// Compare orders carried segments by source, ordinal and offset. A State holds them in this order, each once.
func (c Carried) Compare(o Carried) int {
	return cmp.Or(cmp.Compare(c.Source, o.Source), cmp.Compare(c.Ordinal, o.Ordinal), cmp.Compare(c.Offset, o.Offset))
}

// Joins reports whether the other segment begins at the end of this one and has waited as long.
func (c Carried) Joins(o Carried) bool {
	return c.Source == o.Source && c.Ordinal == o.Ordinal && uint64(c.Offset)+uint64(c.Length) == uint64(o.Offset) &&
		c.Age == o.Age
}

// Older returns an age after more steps. It stops at 31: segments that old are packed first in any case.
func Older(age, steps uint32) uint32 { return min(age+min(steps, maxAge), maxAge) }

// LengthOf returns the sum of the segments' tokens.
func LengthOf(list []Carried) (tokens uint64) {
	for i := range list {
		tokens += uint64(list[i].Length)
	}
	return tokens
}
