package main

import (
	"fmt"
	"io"
	"strings"
)

// row is one line of the table of goals.
type row struct {
	name   string // of the goal, such as G1
	claim  string // the goal
	figure string // of the product
	result result
	beside string // baselines of the same run
}

// result is the verdict on a goal.
type result string

const (
	met     result = "ok"
	missed  result = "**missed**"
	printed result = "–" // a figure without a goal
)

// atMost returns met if the figure does not exceed the limit.
func atMost(figure, limit float64) result {
	if figure <= limit {
		return met
	}
	return missed
}

// atLeast returns met if the figure reaches the limit.
func atLeast(figure, limit float64) result {
	if figure >= limit {
		return met
	}
	return missed
}

// holds returns met if a condition is true.
func holds(condition bool) result {
	if condition {
		return met
	}
	return missed
}

// percent formats a percentage with three to five digits.
func percent(x float64) string {
	switch {
	case x <= -.0005:
		return "-" + percent(-x)
	case x < 0:
		return percent(0)
	case x < 1:
		return fmt.Sprintf("%.3f %%", x)
	case x < 10 || x > 90 && x <= 100: // for a fill, the missing part counts
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

func (r row) write(out io.Writer) { line(out, r.name, r.claim, r.figure, string(r.result), r.beside) }
