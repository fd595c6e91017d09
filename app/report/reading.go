package report

import (
	"fmt"
	"io"
	"slices"

	"millrace/app/dryrun"
)

// mostReadings is the number of sources whose ways of reading are printed; JSON has all.
const mostReadings = 8

// printReadings writes the cost of the ways to read each source. Sources that another way suits better come first.
func printReadings(w io.Writer, r *dryrun.Report) error {
	var all []*dryrun.SourceReport
	for i := range r.Sources {
		if r.Sources[i].Reading != nil {
			all = append(all, &r.Sources[i])
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b *dryrun.SourceReport) int { return rank(b) - rank(a) })
	rows := []string{Row("\nREADING", "CHOICE", "BYTES READ", "CPU S/M TOKENS", "")}
	size := uint64(0)
	for _, s := range all {
		if s.Reading.Recommended != s.Reading.Choices[0].Choice {
			size += s.Reading.CacheBytes
		}
	}
	for _, s := range all[:min(len(all), mostReadings)] {
		name := s.Name
		for i, c := range s.Reading.Choices {
			note := ""
			switch {
			case c.Choice == s.Reading.Recommended && i == 0:
				note = "as it is; recommended"
			case c.Choice == s.Reading.Recommended:
				note = "recommended"
			case i == 0:
				note = "as it is"
			}
			rows = append(rows, Row(name, c.Choice, fmt.Sprintf("%.1f", c.BytesRead), fmt.Sprintf("%.3f", c.CPU), note))
			name = ""
		}
	}
	if err := Table(w, rows...); err != nil {
		return err
	}
	fmt.Fprintln(w, "Estimates. BYTES READ counts the bytes unpacked for each byte used.")
	if n := len(all) - mostReadings; n > 0 {
		fmt.Fprintf(w, "… and %d more sources; --json lists them\n", n)
	}
	if size > 0 {
		fmt.Fprintf(w, "A token cache for the recommended sources takes about %s: "+
			"add `cache: {tokens: …, dir: …}`, and run `millrace index --tokens`.\n", Size(int64(size)))
	}
	return nil
}

// rank orders sources by the advice about them.
func rank(s *dryrun.SourceReport) int {
	if s.Reading.Recommended != s.Reading.Choices[0].Choice {
		return 1
	}
	return 0
}
