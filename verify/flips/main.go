// Command flips damages small files of every format, of tokenizers, templates and mixtures, and reads them, as a
// campaign of many random cases.
//
// A case flips bits of a file, cuts it, extends it, or overwrites a part. The reader must report an error that
// names the file, report bad records, or give records. verdict.go has the rules.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
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
	settings, err := loadSettings(".")
	if err != nil {
		return err
	}
	isLeftOut := func(name string) bool { return !strings.Contains(name, only) }
	c.samples = slices.DeleteFunc(samples, func(s *sample) bool { return isLeftOut(s.name) })
	c.settings = slices.DeleteFunc(settings, func(s *setting) bool { return isLeftOut(s.name) })
	if len(c.samples)+len(c.settings) == 0 {
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
