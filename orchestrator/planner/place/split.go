package place

import (
	"millrace"
	"millrace/orchestrator/planner/cost"
)

// splitUp packs the pieces after it sliced the documents that Split names, so that no slice costs more than the mean
// microbatch. Long documents have fewer tokens for their cost. With few large slices, the token cap keeps other
// microbatches below the mean. So it tries finer slices until the step is within one part in splitGood of the mean, and
// keeps the best result. It returns nil if no document is split or a piece finds no room.
func (g *group) splitUp() []position {
	const splitGood = 256
	var best *bins
	for _, eighths := range [...]uint64{8, 6, 4, 3, 2} {
		limit := cost.MulDiv(g.mean(), eighths, 8)
		cut := g.split(limit)
		if cut == nil {
			continue
		}
		if b := cut.arrays(limit); b != nil && (best == nil || b.columnTime() < best.columnTime()) {
			best = b
		}
		if best != nil && best.columnTime() <= uint64(g.columns)*(g.mean()+g.mean()/splitGood) {
			break
		}
	}
	if best != nil {
		*g = *best.group
	}
	return best.positions()
}

// split returns the group with every document that costs more than the mean in slices of at most limit; nil if there is
// none. Causal attention costs the same in each of a zigzag's slices. The patches of a document stay with slice 0,
// which has its first token. The time in which slices exchange keys and values is not counted.
func (g *group) split(limit uint64) *group {
	mean, out := g.mean(), &group{}
	*out = *g
	out.order, out.cut = nil, false
	out.reserve(len(g.pieces), g.opt.Cost.Phases())
	for i := range g.pieces {
		parts := uint32(1)
		if limit > 0 && g.costs[i] > mean && g.sel.Segments[g.pieces[i].segment].Length > g.opt.Split.AboveTokens {
			parts = uint32(min((g.costs[i]+limit-1)/limit, uint64(g.ranks)))
		}
		out.cut = out.cut || parts > 1
		out.slice(g, i, parts)
	}
	if !out.cut {
		return nil
	}
	return out
}

// slice adds a piece of another group, cut into `parts` parts.
func (g *group) slice(from *group, at int, parts uint32) {
	encoder := uint64(0)
	if from.encoder != nil {
		encoder = from.encoder[at]
	}
	backbone := from.costs[at] - encoder
	for part := range parts {
		p, units, cost := from.pieces[at], from.units[at], backbone/uint64(parts)
		if uint64(part) < backbone%uint64(parts) {
			cost++
		}
		if parts > 1 {
			p.part, p.parts = part, parts
			a := millrace.Assignment{Segment: g.sel.Segments[p.segment], Parts: parts}
			units = a.Columns(g.sel.PadMultiple) / g.sel.PadMultiple
		}
		g.pieces, g.bin, g.units = append(g.pieces, p), append(g.bin, from.bin[at]), append(g.units, units)
		g.costs = append(g.costs, cost+encoder)
		if g.encoder != nil {
			g.encoder = append(g.encoder, encoder)
		}
		encoder = 0
	}
}
