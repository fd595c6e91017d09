package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"millrace/app/exit"
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

// TestEveryCommandThatPrintsTakesJSON holds the promise of docs/commands.md. `top` shows the numbers of
// `status --json`, `init` and `import` write YAML, and `etcd`, `up` and the commands of its roles serve.
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

// TestSurplusArgumentsAreWrongUsage: every command refuses more arguments than it takes in our own words, with the
// status of wrong usage.
func TestSurplusArgumentsAreWrongUsage(t *testing.T) {
	takesAny := []string{"init", "restart", "mix set", "help"}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, inner := range c.Commands() {
			walk(inner)
		}
		name := strings.TrimPrefix(c.CommandPath(), "millrace ")
		if slices.Contains(takesAny, name) || name == "mix" || strings.HasPrefix(name, "__") {
			return
		}
		err := c.ValidateArgs([]string{"a", "b", "c", "d"})
		if exit.Status(err) != exit.Usage || strings.Contains(err.Error(), "arg(s)") {
			t.Errorf("%s: %v", c.CommandPath(), err)
		}
	}
	walk(rootCommand())
}

// TestHelpFitsATerminal: no line of a help text is longer than 120 columns.
func TestHelpFitsATerminal(t *testing.T) {
	all := append(append(commands(rootCommand()), singleCommands()...), rootCommand())
	for _, c := range all {
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
