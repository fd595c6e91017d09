package report

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"slices"
	"strings"

	"millrace/app/dryrun"
)

// Plots collects the data of a page of plots. It keeps the costs of single microbatches for the most expensive step
// only.
type Plots struct {
	Mixture string
	Ranks   int
	steps   []*dryrun.Explained
	dearest *dryrun.Explained
	lengths [32]uint64 // segments by the logarithm of their tokens
}

// Add adds a step. Lengths counts its segments by the logarithm of their tokens.
func (p *Plots) Add(e *dryrun.Explained, lengths [32]uint64) {
	if p.dearest == nil || !e.Incomplete && e.Overhead.Of(e.Balance) > p.dearest.Overhead.Of(e.Balance) {
		p.dearest = e
	}
	kept := *e
	kept.Costs, kept.Ranks = nil, nil
	p.steps = append(p.steps, &kept)
	for i, n := range lengths {
		p.lengths[i] += n
	}
}

// pageHead is the head of a page. It loads nothing.
const pageHead = `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>%[1]s</title>
<style>
:root { color-scheme: light dark; --ink: #222; --dim: #888; --line: #ddd; --paper: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --dim: #888; --line: #444; --paper: #1a1a1a } }
body { font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.3rem } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem } p { margin: .2rem 0; color: var(--dim) }
svg { display: block; width: 100%%; height: auto } svg text { font: 11px system-ui, sans-serif; fill: var(--dim) }
.axis { stroke: var(--line); fill: none } .target { stroke-dasharray: 4 3 }
</style></head><body>
<h1>%[1]s</h1>
`

// Write writes the page to a file. Without steps it writes none.
func (p *Plots) Write(path string) error {
	if len(p.steps) == 0 {
		return nil
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, pageHead, html.EscapeString(p.Mixture))
	p.summary(&b)
	steps := make([]float64, len(p.steps))
	for i, e := range p.steps {
		steps[i] = float64(e.Step)
	}
	of := func(value func(*dryrun.Explained) float64) []float64 {
		out := make([]float64, len(p.steps))
		for i, e := range p.steps {
			out[i] = 100 * value(e)
		}
		return out
	}
	balance := p.steps[0].Balance
	section(
		&b,
		"Overhead",
		"the time that ranks wait for each other, in percent of the mean rank's compute, "+
			"with balance: "+balance+"; no placement of the same documents has less than the bound",
	)
	lines(&b, steps, []series{
		{name: "overhead", values: of(func(e *dryrun.Explained) float64 { return e.Overhead.Of(e.Balance) })},
		{name: "bound", values: of(func(e *dryrun.Explained) float64 { return e.Bound.Of(e.Balance) }), target: true}})
	section(&b, "Fill", "document tokens, in percent of a step's places")
	lines(&b, steps, []series{{name: "fill", values: of(func(e *dryrun.Explained) float64 { return e.Fill })}})
	section(&b, "Mixture", "the share of each source in all steps so far, in percent; its target is dashed")
	lines(&b, steps, p.mixed())
	section(
		&b,
		"Cost",
		fmt.Sprintf(
			"cost of each rank (down) and microbatch (across) in step %d, the most expensive one; darker is more "+
				"expensive",
			p.dearest.Step,
		),
	)
	heat(&b, p.dearest.Costs)
	section(&b, "Lengths", "segments, by their tokens")
	histogram(&b, p.lengths[:])
	b.WriteString("</body></html>\n")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the page of plots: %w", err)
	}
	return nil
}

func section(b *bytes.Buffer, title, says string) {
	fmt.Fprintf(b, "<h2>%s</h2><p>%s</p>\n", html.EscapeString(title), html.EscapeString(says))
}

func (p *Plots) summary(b *bytes.Buffer) {
	first, last := p.steps[0], p.steps[len(p.steps)-1]
	var tokens, stranded uint64
	var over []float64
	for _, e := range p.steps {
		tokens, stranded = tokens+e.Tokens, stranded+e.Stranded
		over = append(over, e.Overhead.Of(e.Balance))
	}
	slices.Sort(over)
	says := []string{
		fmt.Sprintf("steps %d to %d on %d ranks", first.Step, last.Step, p.Ranks), Count(tokens) + " tokens",
		Count(stranded) + " places stranded",
		fmt.Sprintf("overhead %s at the median, %s at most", Percent(over[len(over)/2]), Percent(over[len(over)-1])),
	}
	fmt.Fprintf(b, "<p>%s</p>\n", html.EscapeString(strings.Join(says, " · ")))
}

// mixed returns two lines for each source: its share of all placed tokens and its target.
func (p *Plots) mixed() (out []series) {
	for i, m := range p.steps[0].Mixture {
		placed, target := series{name: m.Source, color: i}, series{name: m.Source, color: i, target: true}
		for _, e := range p.steps {
			all := uint64(0)
			for _, m := range e.Mixture {
				all += m.Placed
			}
			placed.values = append(placed.values, 100*float64(e.Mixture[i].Placed)/float64(max(all, 1)))
			target.values = append(target.values, 100*float64(e.Mixture[i].Target)/float64(max(all, 1)))
		}
		out = append(out, placed, target)
	}
	return out
}
