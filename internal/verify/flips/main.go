// Command flips damages small files of every format and reads them, as a campaign of many random cases.
//
// A case flips bits of a sample file, cuts it, extends it, or overwrites a part. The reader must report an error that
// names the file, report bad records, or give records. verdict.go has the rules.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	var c campaign
	flag.IntVar(&c.cases, "count", 100_000, "cases, divided evenly among the samples")
	flag.Uint64Var(&c.seed, "seed", 1, "first seed: case i has seed + i")
	only := flag.String("only", "", "samples whose names contain this word; all if it is empty")
	record := flag.String("record", "", "page to which a row of totals is appended")
	flag.Parse()
	if err := run(os.Stdout, &c, *only, *record); err != nil {
		fmt.Fprintln(os.Stderr, "flips:", err)
		os.Exit(1)
	}
}

// run plays a campaign over the samples of the repository in the working directory, and prints its totals. It fails if
// a case broke a rule.
func run(out io.Writer, c *campaign, only, page string) error {
	samples, err := loadSamples(".")
	if err != nil {
		return err
	}
	for _, s := range samples {
		if strings.Contains(s.name, only) {
			c.samples = append(c.samples, s)
		}
	}
	if len(c.samples) == 0 {
		return fmt.Errorf("no sample has %q in its name", only)
	}
	if c.dir, err = os.MkdirTemp("", "flips-"); err != nil {
		return err
	}
	defer os.RemoveAll(c.dir)
	t, err := c.play(out)
	if err != nil {
		return err
	}
	fmt.Fprint(out, t.table())
	if page != "" {
		if err := t.appendTo(page, c); err != nil {
			return err
		}
	}
	if t.broken > 0 {
		return fmt.Errorf("%d cases broke a rule", t.broken)
	}
	return nil
}
