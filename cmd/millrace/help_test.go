package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// commands returns the commands of the program, without cobra's own and those that up starts.
func commands(of *cobra.Command) (out []*cobra.Command) {
	for _, c := range of.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if inner := commands(c); len(inner) > 0 {
			out = append(out, inner...)
		} else {
			out = append(out, c)
		}
	}
	return out
}

// TestEveryCommandThatPrintsTakesJSON holds the promise of README.md. `top` shows the numbers of `status --json`,
// `init` and `import` write YAML, and `etcd`, `up` and the commands of its roles serve.
func TestEveryCommandThatPrintsTakesJSON(t *testing.T) {
	all := commands(rootCommand())
	if len(all) < 13 {
		t.Fatalf("only %d commands were found", len(all))
	}
	for _, c := range all {
		flag, without := c.Flags().Lookup("json"), []string{"up", "top", "init", "import", "etcd",
			"orchestrator", "loader", "shadow", "sidecar"}
		if (flag == nil) != slices.Contains(without, strings.TrimPrefix(c.CommandPath(), "millrace ")) {
			t.Errorf("%s: --json is %v", c.CommandPath(), flag)
		}
	}
}

// TestHelpFitsATerminal: no line of a help text is longer than 120 columns.
func TestHelpFitsATerminal(t *testing.T) {
	for _, c := range append(commands(rootCommand()), rootCommand()) {
		text := c.Long + "\n" + c.Example + "\n" + c.UsageString()
		for line := range strings.SplitSeq(text, "\n") {
			if n := len([]rune(line)); n > 120 {
				t.Errorf("%s: %d columns: %s", c.CommandPath(), n, line)
			}
		}
		if c.Long == "" && !slices.Contains([]string{"version"}, c.Name()) {
			t.Errorf("%s has no description", c.CommandPath())
		}
	}
}
