package scale

import "slices"

// Costs are the seconds of work of a token of each source; 0: not known.
type Costs []float64

// costs learns the cost of each source from the documents that loaders made.
//
// Documents are uneven: some take seconds, and some have few tokens for their time. So a cost is that of at least
// enough documents, however long they take, up to longest. If there are fewer, the missing ones count as if they had
// the cost that was known before.
type costs struct {
	now   Costs
	known Costs    // of enough documents, or from before the run
	past  []Sample // the oldest first
}

// enough is the number of documents of a source whose mean cost can be relied on.
const enough = 16

func newCosts(before Costs) costs {
	return costs{now: slices.Clone(before), known: slices.Clone(before)}
}

// learn takes a sample. Samples of another number of sources are not comparable.
func (c *costs) learn(x Sample) {
	if n := len(c.past); n > 0 && len(c.past[n-1].Made) != len(x.Made) {
		c.past = nil
	}
	for len(c.now) < len(x.Made) {
		c.now, c.known = append(c.now, 0), append(c.known, 0)
	}
	c.past = append(c.past, x)
	for x.At.Sub(c.past[0].At) > longest {
		c.past = c.past[1:]
	}
	all := c.all()
	for i := range x.Made {
		c.learnOf(i, all)
	}
}

// all returns the cost of a token of any source, 0 if there are too few documents.
func (c *costs) all() float64 {
	first, last := &c.past[0], &c.past[len(c.past)-1]
	made := total(last.Made) - total(first.Made)
	if made <= 0 || total(last.Docs)-total(first.Docs) < enough {
		return 0
	}
	return (total(last.Busy) - total(first.Busy)) / made
}

// learnOf learns the cost of a source. all is that of all sources.
func (c *costs) learnOf(source int, all float64) {
	first, last := &c.past[c.begin(source)], &c.past[len(c.past)-1]
	docs, made := last.Docs[source]-first.Docs[source], last.Made[source]-first.Made[source]
	if made <= 0 {
		return
	}
	measured := (last.Busy[source] - first.Busy[source]) / made
	if docs >= enough {
		c.now[source], c.known[source] = measured, measured
		return
	}
	before := c.known[source]
	if before == 0 {
		before = all
	}
	if before > 0 {
		c.now[source] = (docs*measured + (enough-docs)*before) / enough
	}
}

// begin returns the newest sample since which a source has enough documents, and all sources together fewDocs. It is
// not younger than recent. If there is none, it is the oldest sample.
func (c *costs) begin(source int) int {
	last := &c.past[len(c.past)-1]
	for i := len(c.past) - 1; i > 0; i-- {
		x := &c.past[i]
		if last.At.Sub(x.At) >= recent && last.Docs[source]-x.Docs[source] >= enough &&
			total(last.Docs)-total(x.Docs) >= fewDocs {
			return i
		}
	}
	return 0
}
