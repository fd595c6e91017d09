package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// totals counts the verdicts by format.
type totals struct {
	of     map[string]*[verdicts]int
	cases  int
	broken int
	cpu    time.Duration
	wall   time.Duration
}

func (t *totals) add(format string, v verdict) {
	if t.of[format] == nil {
		t.of[format] = &[verdicts]int{}
	}
	t.of[format][v]++
	if v == broken {
		t.broken++
	}
}

// clock starts the clock and returns the function that stops it.
func (t *totals) clock() func() {
	wall, used := time.Now(), cpu()
	return func() { t.wall, t.cpu = time.Since(wall), cpu()-used }
}

// table returns the totals for people.
func (t *totals) table() string {
	return t.rows() + fmt.Sprintf("%d cases, %.0f s of CPU time, %.0f s\n", t.cases, t.cpu.Seconds(), t.wall.Seconds())
}

// rows returns the totals as a table of Markdown.
func (t *totals) rows() string {
	var b strings.Builder
	b.WriteString("| Format | Cases |")
	for v := range verdicts {
		fmt.Fprintf(&b, " %s |", v)
	}
	b.WriteString("\n" + strings.Repeat("| --- ", 2+int(verdicts)) + "|\n")
	var sum [verdicts]int
	for _, format := range sortedKeys(t.of) {
		for v, n := range t.of[format] {
			sum[v] += n
		}
		b.WriteString(row("`"+format+"`", t.of[format]))
	}
	b.WriteString(row("all", &sum))
	return b.String()
}

func row(name string, of *[verdicts]int) string {
	cases, cells := 0, ""
	for _, n := range of {
		cases += n
		cells += fmt.Sprintf(" %d |", n)
	}
	return fmt.Sprintf("| %s | %d |%s\n", name, cases, cells)
}

// Headings of the tables of the page to which totals are added.
const (
	formatsHead = "| Format | Cases |"
	runsHead    = "| When | Tree | Seeds | Cases | Broken |"
)

// appendTo adds the totals to the tables of a page: a row for the campaign, and its cases in the rows of the formats.
func (t *totals) appendTo(page string, c *campaign) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, table, after, ok := cutTable(string(text), formatsHead)
	if !ok {
		return errors.New(page + " has no table of formats")
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) == 2+int(verdicts) && cells[0] != "all" {
			t.addRow(cells)
		}
	}
	text = []byte(before + t.rows() + after)
	before, table, after, ok = cutTable(string(text), runsHead)
	if !ok {
		return errors.New(page + " has no table of campaigns")
	}
	tree, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return err
	}
	table += fmt.Sprintf("| %s | %s | %d-%d | %d | %d |\n", time.Now().Format(time.DateOnly),
		strings.TrimSpace(string(tree)), c.seed, c.seed+uint64(c.cases)-1, c.cases, t.broken)
	return os.WriteFile(page, []byte(before+table+after), 0o644)
}

// addRow adds the numbers of a row of the page.
func (t *totals) addRow(cells []string) {
	format := strings.Trim(cells[0], "`")
	for v := range verdicts {
		n, err := strconv.Atoi(cells[2+int(v)])
		if err != nil {
			return // the rows of the heading have no numbers
		}
		if t.of[format] == nil {
			t.of[format] = &[verdicts]int{}
		}
		t.of[format][v] += n
	}
}

// cutTable returns a table of a page, from its heading to its last row, and the text around it.
func cutTable(page, head string) (before, table, after string, ok bool) {
	at := strings.Index(page, head)
	if at < 0 {
		return "", "", "", false
	}
	end := strings.Index(page[at:], "\n\n")
	if end < 0 {
		return page[:at], strings.TrimRight(page[at:], "\n") + "\n", "", true
	}
	return page[:at], page[at : at+end+1], page[at+end+1:], true
}
