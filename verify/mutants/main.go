package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const patches = "verify/mutants/patches"

func main() {
	only := flag.String("only", "", "names, separated by commas; all if it is empty")
	seeds := flag.Int("seeds", 1000, "seeds of the simulation that a mutant may survive")
	faults := flag.Int("faults", 150, "faults of real processes that a mutant may survive")
	flag.Parse()
	if err := run(os.Stdout, *only, *seeds, *faults); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run judges the unchanged product and then the mutants, and prints a row for each. It fails if a mutant was not
// caught.
func run(out io.Writer, only string, seeds, faults int) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	all, err := load(filepath.Join(root, patches))
	if err != nil {
		return err
	}
	if only != "" {
		names := strings.Split(only, ",")
		all = slices.DeleteFunc(all, func(m *mutant) bool { return !slices.Contains(names, m.name) })
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no mutant %s", patches, only)
	}
	scratch, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	b := &bench{root: root, scratch: scratch, seeds: seeds, faults: faults, limit: 10 * time.Minute}
	return b.all(context.Background(), out, all)
}

// all judges mutants one after the other.
func (b *bench) all(ctx context.Context, out io.Writer, list []*mutant) error {
	judges := map[string]bool{}
	for _, m := range list {
		judges[m.judge] = true
	}
	for _, judge := range slices.Sorted(maps.Keys(judges)) {
		v, err := b.try(ctx, nil, judge)
		if err != nil || v.caught {
			return fmt.Errorf("the product as it is does not pass %s: %s %w", judge, v.how, err)
		}
		fmt.Fprintf(out, "| (none) | the product as it is | %s | passes %s | %.1f |\n", judge, v.how, v.cpu.Seconds())
	}
	var survivors []string
	for _, m := range list {
		v, err := b.try(ctx, m, m.judge)
		how := "**survived** " + v.how
		switch {
		case err != nil:
			how = "**not judged**: " + err.Error()
		case v.caught:
			how = short(v.how)
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %.1f |\n", m.name, m.breaks, m.judge, how, v.cpu.Seconds())
		if !v.caught {
			survivors = append(survivors, m.name)
		}
	}
	if len(survivors) > 0 {
		return fmt.Errorf("%d of %d mutants were not caught: %s", len(survivors), len(list),
			strings.Join(survivors, ", "))
	}
	return nil
}

// short returns a finding, shortened for a table.
func short(how string) string {
	how = strings.NewReplacer("|", "/", "\n", " ").Replace(how)
	return how[:min(len(how), 140)]
}
