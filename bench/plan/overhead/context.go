package overhead

import "millrace"

// Microbatches calls a function with the assignments of each microbatch of a plan.
func Microbatches(p *millrace.Plan, each func([]millrace.Assignment)) {
	for r := range p.Ranks {
		for m := range p.Microbatches {
			each(p.Part(millrace.Rank(r), m))
		}
	}
}

// slowest returns by how many percent the dearest context-parallel rank of each microbatch exceeds the mean.
func slowest(p *millrace.Plan, cp int, load func(part []millrace.Assignment, ranks []float64)) float64 {
	total, top := 0.0, 0.0
	Microbatches(p, func(part []millrace.Assignment) {
		ranks, most := make([]float64, cp), 0.0
		load(part, ranks)
		for _, x := range ranks {
			total += x / float64(cp)
			most = max(most, x)
		}
		top += most
	})
	return 100 * (top/total - 1)
}

// Sliced weighs context-parallel ranks that hold zigzag slices of each document, or whole documents if the plan says
// so. Padding costs as much as a document of its own.
func Sliced(p *millrace.Plan, m Model, cp int, pad uint32) float64 {
	return slowest(p, cp, func(part []millrace.Assignment, ranks []float64) {
		for i := range part {
			a := &part[i]
			wide := (a.Length + pad - 1) / pad * pad
			if a.Holder > 0 {
				ranks[a.Holder-1] += m.Of(a.Length) + m.Of(wide-a.Length)
				continue
			}
			piece := wide / uint32(2*cp)
			for at := range uint32(2 * cp) {
				to := int(min(at, uint32(2*cp)-1-at))
				from, until := at*piece, (at+1)*piece
				ranks[to] += m.Of(min(until, a.Length)) - m.Of(min(from, a.Length))
				ranks[to] += padding(m, a.Length, from, until)
			}
		}
	})
}

// padding returns the cost of the part of a piece after the end of its document.
func padding(m Model, length, from, until uint32) float64 {
	behind := func(at uint32) float64 { return m.Of(max(at, length) - length) }
	return behind(until) - behind(from)
}

// EvenParts weighs context-parallel ranks that hold equal parts of each microbatch regardless of its documents: one
// part after the other, or in zigzag.
func EvenParts(p *millrace.Plan, m Model, cp int, zigzag bool) float64 {
	parts := cp
	if zigzag {
		parts = 2 * cp
	}
	return slowest(p, cp, func(part []millrace.Assignment, ranks []float64) {
		tokens := uint32(0)
		for i := range part {
			tokens += part[i].Length
		}
		at := uint32(0)
		for i := range part {
			for done := uint32(0); done < part[i].Length; {
				piece := int(uint64(at) * uint64(parts) / uint64(tokens))
				end := uint32((uint64(piece+1)*uint64(tokens) + uint64(parts) - 1) / uint64(parts))
				n := min(part[i].Length-done, end-at)
				to := piece
				if zigzag {
					to = min(piece, parts-1-piece)
				}
				ranks[to] += m.Of(done+n) - m.Of(done)
				done, at = done+n, at+n
			}
		}
	})
}
