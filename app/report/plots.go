package report

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
)

// series is one line of a plot.
type series struct {
	name   string
	values []float64
	color  int
	target bool // dashed, and without a name if it shares the color of another line
}

// The plots' measures, in SVG units.
const (
	plotWidth, plotHeight = 900, 220
	plotLeft, plotBottom  = 60, 24
	plotTop, plotRight    = 10, 10
	mostPoints            = 900 // of a line
	mostCells             = 128 // of a side of a heat map
)

func hue(i int) string { return fmt.Sprintf("hsl(%d 65%% 50%%)", (210+i*137)%360) }

// lines plots series over x, from the least to the largest of all values.
func lines(b *bytes.Buffer, x []float64, all []series) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range all {
		low, high = min(low, slices.Min(s.values)), max(high, slices.Max(s.values))
	}
	if high-low < 1e-9 {
		low, high = low-.5, high+.5
	}
	from, to := x[0], max(x[len(x)-1], x[0]+1)
	px := func(v float64) float64 { return plotLeft + (v-from)/(to-from)*(plotWidth-plotLeft-plotRight) }
	py := func(v float64) float64 { return plotTop + (high-v)/(high-low)*(plotHeight-plotTop-plotBottom) }
	fmt.Fprintf(b, `<svg viewBox="0 0 %d %d">`, plotWidth, plotHeight)
	for i := range 5 {
		v := low + (high-low)*float64(i)/4
		fmt.Fprintf(
			b, `<path class="axis" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%.4g</text>`, plotLeft,
			py(v), plotWidth-plotRight, plotLeft-6, py(v)+4, v,
		)
		s := from + (to-from)*float64(i)/4
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`, px(s), plotHeight-6, s)
	}
	named := 0
	for _, s := range all {
		class := ""
		if s.target {
			class = ` class="target"`
		}
		fmt.Fprintf(b, `<path%s fill="none" stroke="%s" stroke-width="1.5" d="`, class, hue(s.color))
		every := (len(x) + mostPoints - 1) / mostPoints
		for i := 0; i < len(x); i += every {
			fmt.Fprintf(b, "%c%.1f %.2f", "ML"[min(i, 1)], px(x[i]), py(s.values[i]))
		}
		if len(x) == 1 {
			fmt.Fprintf(b, "H%d", plotWidth-plotRight)
		}
		fmt.Fprintf(b, `"><title>%s</title></path>`, html.EscapeString(s.name))
		if !s.target || len(all) == 2 {
			fmt.Fprintf(
				b, `<text x="%d" y="%d" style="fill:%s">%s</text>`, plotLeft+8+named%8*104, plotTop+14+named/8*14,
				hue(s.color), html.EscapeString(s.name),
			)
			named++
		}
	}
	b.WriteString("</svg>\n")
}

// heat plots costs by rank and microbatch. A cell shows the most expensive one of several, so that all fit.
func heat(b *bytes.Buffer, costs [][]float64) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, of := range costs {
		low, high = min(low, slices.Min(of)), max(high, slices.Max(of))
	}
	ranks, micros := (len(costs)+mostCells-1)/mostCells, (len(costs[0])+mostCells-1)/mostCells
	down, across := (len(costs)+ranks-1)/ranks, (len(costs[0])+micros-1)/micros
	cell := min(16, float64(plotWidth-plotLeft)/float64(across))
	tall := max(4, min(16, 400/float64(down)))
	fmt.Fprintf(b, `<svg viewBox="0 0 %d %.0f">`, plotWidth, tall*float64(down)+20)
	for i := range down {
		if i%max(1, down/8) == 0 {
			fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%d</text>`, plotLeft-6, tall*float64(i)+9, i*ranks)
		}
		for k := range across {
			dearest := 0.0
			for _, of := range costs[i*ranks : min((i+1)*ranks, len(costs))] {
				dearest = max(dearest, slices.Max(of[k*micros:min((k+1)*micros, len(of))]))
			}
			part := (dearest - low) / max(high-low, 1e-9)
			fmt.Fprintf(
				b,
				`<rect x="%.1f" y="%.1f" width="%.2f" height="%.2f" `+
					`fill="hsl(210 70%% %.0f%%)"><title>%.4f</title></rect>`,
				plotLeft+cell*float64(k),
				tall*float64(i),
				cell,
				tall,
				92-67*part,
				dearest,
			)
		}
	}
	fmt.Fprintf(
		b, `<text x="%d" y="%.1f">%.4f to %.4f of the mean microbatch</text></svg>`+"\n", plotLeft,
		tall*float64(down)+15, low, high,
	)
}

// histogram plots counts by powers of two.
func histogram(b *bytes.Buffer, counts []uint64) {
	first := slices.IndexFunc(counts, func(n uint64) bool { return n > 0 })
	if first < 0 {
		return
	}
	last := len(counts) - 1
	for counts[last] == 0 {
		last--
	}
	most := slices.Max(counts)
	wide := float64(plotWidth-plotLeft-plotRight) / float64(last-first+1)
	fmt.Fprintf(
		b, `<svg viewBox="0 0 %d %d"><text x="%d" y="%d" text-anchor="end">%s</text>`, plotWidth, plotHeight,
		plotLeft-6, plotTop+8, Count(most),
	)
	for i := first; i <= last; i++ {
		tall := float64(counts[i]) / float64(most) * (plotHeight - plotTop - plotBottom)
		x := plotLeft + wide*float64(i-first)
		fmt.Fprintf(
			b,
			`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s">`+
				`<title>%s segments of %s to %s tokens</title></rect>`,
			x+1,
			plotHeight-plotBottom-tall,
			max(wide-2, 1),
			tall,
			hue(0),
			Count(counts[i]),
			Count(1<<i),
			Count(1<<(i+1)-1),
		)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x, plotHeight-6, Count(1<<i))
	}
	b.WriteString("</svg>\n")
}
