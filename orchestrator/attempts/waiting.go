package attempts

import (
	"fmt"
	"strings"

	"millrace"
)

// Waiting says which ranks an attempt waits for, empty for none: those that have not connected and, once a rank starts
// again, those that have not.
func (r *Ranks) Waiting() string {
	if len(r.others) > 0 {
		var here []string
		for _, i := range r.Here() {
			here = append(here, fmt.Sprint(i))
		}
		return fmt.Sprintf("rank %d of %s waits until %s of %s left", r.others[0].msg.Rank,
			describe(topologyOf(r.others[0].msg)), listed(here, "", ""), describe(r.cfg.Shape()))
	}
	if next, is := r.services.next(r.cfg.Shape()); is && r.cfg.Reshape != nil {
		return fmt.Sprintf("waiting for the ranks of another topology, %s, to connect and say where they start",
			describe(next))
	}
	again := -1 // a rank that starts again
	for i := range r.ranks {
		if r.ranks[i].join != nil {
			again = i
			break
		}
	}
	var absent, going []string
	for i := range r.ranks {
		switch k := &r.ranks[i]; {
		case k.join != nil:
		case again >= 0 && k.serving && !k.away:
			going = append(going, fmt.Sprint(i))
		case again >= 0 || !k.serving && !r.wasThrough(i):
			absent = append(absent, fmt.Sprint(i))
		}
	}
	switch {
	case len(absent) > 0:
		return "waiting for " + listed(absent, " to connect and say where it starts",
			" to connect and say where they start")
	case len(going) == 0:
		return ""
	}
	k := &r.ranks[again]
	at := &k.join.start
	if k.serving && at.kind == millrace.StartLatest && k.below > at.step {
		return fmt.Sprintf("rank %d goes on at step %d when %s consumed the steps before it", again, k.below,
			listed(going, " has", " have"))
	}
	return fmt.Sprintf(
		"rank %d starts again at step %d, and the run goes on when all ranks do: restart %s too, from the same "+
			"checkpoint", again, at.step, listed(going, "", ""))
}

// listed lists ranks with the verb for one or for several.
func listed(ranks []string, one, several string) string {
	if len(ranks) == 1 {
		return "rank " + ranks[0] + one
	}
	return "ranks " + strings.Join(ranks, ", ") + several
}

// Spread returns the first step that no rank has consumed. It lists the ranks that have consumed the fewest steps, nil
// if all have consumed the same number.
func (r *Ranks) Spread() (most uint64, slowest []uint32) {
	least := ^uint64(0)
	for i := range r.ranks {
		least, most = min(least, r.ranks[i].below), max(most, r.ranks[i].below)
	}
	for i := range r.ranks {
		if least < most && r.ranks[i].below == least {
			slowest = append(slowest, uint32(i))
		}
	}
	return most, slowest
}
