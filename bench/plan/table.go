package main

import (
	"fmt"
	"io"
	"strings"
)

// row is a goal beside what was measured.
type row struct {
	goal   string // G1
	claim  string // what is asked
	figure string // what the product does
	result result
	beside string // baselines of the same run
}

// result tells whether a goal is met.
type result string

const (
	met     result = "ok"
	missed  result = "**missed**"
	printed result = "–" // nothing is asked of it
)

// atMost is met by a figure that is no more than the limit.
func atMost(figure, limit float64) result {
	if figure <= limit {
		return met
	}
	return missed
}

// atLeast is met by a figure that is no less than the limit.
func atLeast(figure, limit float64) result {
	if figure >= limit {
		return met
	}
	return missed
}

// holds is met where something is so.
func holds(so bool) result {
	if so {
		return met
	}
	return missed
}

// percent writes a percentage with as many digits as it is worth.
func percent(x float64) string {
	switch {
	case x <= -.0005:
		return "-" + percent(-x)
	case x < 0:
		return percent(0)
	case x < 1:
		return fmt.Sprintf("%.3f %%", x)
	case x < 10 || x > 90 && x <= 100: // of a fill what counts is what is missing
		return fmt.Sprintf("%.2f %%", x)
	}
	return fmt.Sprintf("%.1f %%", x)
}

func heading(out io.Writer, columns ...string) {
	fmt.Fprintf(out, "\n| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

func line(out io.Writer, cells ...string) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

func (r row) write(out io.Writer) { line(out, r.goal, r.claim, r.figure, string(r.result), r.beside) }
