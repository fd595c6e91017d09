package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"millrace/internal/needs"
)

// slow is the duration from which on the summary names a package or a test.
const slow = 5 * time.Second

// report collects results and prints failures as they come.
type report struct {
	out                     io.Writer
	passed, failed, skipped int
	skips                   []skipped
	failures                []string
	packages, tests         []timing // slow ones
}

type skipped struct{ name, reason string }

type timing struct {
	name string
	took time.Duration
}

func (r *report) pass(string) { r.passed++ }

func (r *report) fail(name, output string) {
	r.failed++
	r.failures = append(r.failures, name)
	fmt.Fprintf(r.out, "--- FAIL %s\n%s", name, output)
}

func (r *report) skip(name, reason string) {
	r.skipped++
	r.skips = append(r.skips, skipped{name, reason})
}

// add takes over the results of another report and prints its output.
func (r *report) add(o *report, output string) {
	fmt.Fprint(r.out, output)
	r.passed, r.failed, r.skipped = r.passed+o.passed, r.failed+o.failed, r.skipped+o.skipped
	r.skips, r.failures = append(r.skips, o.skips...), append(r.failures, o.failures...)
	r.packages, r.tests = append(r.packages, o.packages...), append(r.tests, o.tests...)
}

// part notes the end of a package.
func (r *report) part(name, verdict string, took time.Duration) {
	fmt.Fprintf(r.out, "%-6s %s  %.1f s\n", verdict, name, took.Seconds())
	if took >= slow {
		r.packages = append(r.packages, timing{name, took})
	}
}

// test notes the duration of a test that has no subtests.
func (r *report) test(name string, seconds float64) {
	if took := time.Duration(seconds * float64(time.Second)); took >= slow {
		r.tests = append(r.tests, timing{name, took})
	}
}

// slowest prints the slow packages or tests.
func (r *report) slowest(what string, all []timing) {
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b timing) int { return int(b.took - a.took) })
	fmt.Fprintf(r.out, "\n%s of %v and more:\n", what, slow)
	for _, t := range all {
		fmt.Fprintf(r.out, "  %6.1f s  %s\n", t.took.Seconds(), t.name)
	}
}

// summary prints the tables, the names of failed tests and the totals. It returns false if a test failed.
func (r *report) summary() bool {
	for _, s := range r.skips {
		if why := needs.Refuse(s.reason); why != "" {
			r.fail(s.name, why+"\n")
		}
	}
	r.slowest("packages", r.packages)
	r.slowest("tests", r.tests)
	fmt.Fprintln(r.out, "\nskipped:")
	for _, s := range r.skips {
		fmt.Fprintf(r.out, "  %s: %s\n", s.name, s.reason)
	}
	if len(r.skips) == 0 {
		fmt.Fprintln(r.out, "  none")
	}
	// The failures are last: who reads only the end of a long log must see them.
	if len(r.failures) > 0 {
		fmt.Fprintln(r.out, "\nfailed:")
		for _, name := range r.failures {
			fmt.Fprintf(r.out, "  %s\n", name)
		}
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	return r.failed == 0
}
