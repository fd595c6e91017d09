package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"millrace/app/dryrun"
)

// PrintExplanation writes the cost of a step with its causes.
func PrintExplanation(e *dryrun.Explained, w io.Writer) error {
	fmt.Fprintf(
		w, "step %d, stage %d: %d sequences of %s tokens, %d segments, content %s\n", e.Step, e.Stage, e.GlobalBatch,
		Count(uint64(e.SequenceLength)), e.Segments, e.Content,
	)
	if len(e.Ranks) > 1 {
		fmt.Fprintf(
			w, "  overhead %s, bound %s, gap %s with balance: %s (", Percent(e.Overhead.Of(e.Balance)),
			Percent(e.Bound.Of(e.Balance)), Percent(e.Gap.Of(e.Balance)), e.Balance,
		)
		fmt.Fprintf(
			w, "fsdp %s, dp %s, pp %s)\n", Percent(e.Overhead.FSDP), Percent(e.Overhead.DP), Percent(e.Overhead.PP),
		)
		fmt.Fprintln(
			w,
			"  (no placement of these documents has less overhead than the bound; another placement saves at most "+
				"the gap)",
		)
	}
	fmt.Fprintf(w, "  fill %s, %s places stranded, %s lost to pad_multiple; largest microbatch %s of %s tokens\n",
		Percent(e.Fill), Count(e.Stranded), Count(e.Rounding), Count(uint64(e.Largest)), Count(uint64(e.Cap)))
	if e.MovedMost > 0 {
		fmt.Fprintf(
			w, "  window and carry moved a document by %.2f steps on average, by %d at most\n", e.MovedMean,
			e.MovedMost,
		)
	}
	if e.Slices > 0 {
		fmt.Fprintf(w, "  %d slices of documents that are split over ranks\n", e.Slices)
	}
	if e.Context > 1 {
		fmt.Fprintf(w, "  max/mean cost of the context-parallel ranks of a microbatch: %.4f\n", e.Context)
	}
	rows := []string{Row("  SOURCE", "SHARE", "HERE", "TARGET SO FAR", "PLACED", "OFF")}
	for _, m := range e.Mixture {
		rows = append(
			rows,
			Row(
				"  "+m.Source, Percent(m.Share), Count(m.Here), Count(m.Target), Count(m.Placed),
				fmt.Sprintf("%+d", m.Off),
			),
		)
	}
	if err := Table(w, rows...); err != nil {
		return err
	}
	printRanks(w, e)
	_, err := fmt.Fprintln(w)
	return err
}

// The size of a picture of costs.
const (
	mostRows = 16
	barWidth = 40
	sparks   = 24
)

// printRanks draws the cost of each rank: a bar for its sum, and a column for each of its microbatches. Of many ranks
// it shows the most and the least expensive ones.
func printRanks(w io.Writer, e *dryrun.Explained) {
	order := make([]int, len(e.Ranks))
	for r := range order {
		order[r] = r
	}
	shown := order
	if len(order) > mostRows {
		byCost := slices.Clone(order)
		slices.SortStableFunc(byCost, func(a, b int) int { return cmp.Compare(e.Ranks[b], e.Ranks[a]) })
		shown = append(slices.Clone(byCost[:mostRows/2]), byCost[len(byCost)-mostRows/2:]...)
		fmt.Fprintf(
			w,
			"  cost of step %d relative to the mean rank; the %d most and the %d least expensive of %d ranks, the "+
				"median is %.4f\n",
			e.Step,
			mostRows/2,
			mostRows/2,
			len(order),
			e.Ranks[byCost[len(byCost)/2]],
		)
	} else {
		fmt.Fprintf(w, "  cost of step %d by data-parallel rank, relative to the mean rank, and of its microbatches\n",
			e.Step)
	}
	dearest, micro := slices.Max(e.Ranks), 0.0
	for _, costs := range e.Costs {
		micro = max(micro, slices.Max(costs))
	}
	for i, r := range shown {
		if i == mostRows/2 && len(order) > mostRows {
			fmt.Fprintln(w, "     ⋮")
		}
		fmt.Fprintf(w, "  %6d %s %.4f %s\n", r, bar(e.Ranks[r]/dearest, barWidth), e.Ranks[r], spark(e.Costs[r], micro))
	}
}

// bar is a horizontal bar, in eighths of a column.
func bar(part float64, width int) string {
	eighths := min(int(part*float64(8*width)+0.5), 8*width)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text + strings.Repeat(" ", width-(eighths+7)/8)
}

// spark is a row of columns. Each shows the most expensive one of several microbatches, so that all fit.
func spark(costs []float64, most float64) string {
	var out strings.Builder
	for part := range slices.Chunk(costs, (len(costs)+sparks-1)/sparks) {
		height := int(slices.Max(part)/most*8 + 0.5)
		out.WriteRune([]rune(" ▁▂▃▄▅▆▇█")[min(height, 8)])
	}
	return out.String()
}
