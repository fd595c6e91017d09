package main

import (
	"os"
	"path/filepath"
	"regexp"
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

// TestWrongFlagsAreWrongUsage: every command refuses a flag that it does not have, and names its help.
func TestWrongFlagsAreWrongUsage(t *testing.T) {
	for _, c := range commands(rootCommand()) {
		root := rootCommand()
		root.SetArgs(append(strings.Fields(c.CommandPath())[1:], "--wrong"))
		err := root.Execute()
		if exit.Status(err) != exit.Usage || !strings.Contains(err.Error(), c.CommandPath()+" --help`") {
			t.Errorf("%s --wrong: status %d, %v", c.CommandPath(), exit.Status(err), err)
		}
	}
}

// TestNoArgumentsAreWrongUsage: every command that needs an argument names it.
func TestNoArgumentsAreWrongUsage(t *testing.T) {
	for _, c := range commands(rootCommand()) {
		if c.Name() == "version" {
			continue
		}
		root := rootCommand()
		root.SetArgs(strings.Fields(c.CommandPath())[1:])
		err := root.Execute()
		if exit.Status(err) != exit.Usage || !strings.HasPrefix(err.Error(), c.CommandPath()) {
			t.Errorf("%s: status %d, %v", c.CommandPath(), exit.Status(err), err)
		}
	}
}

// TestWrongPathsAreWrongUsage: every command that reads a mixture file, another file or a run directory refuses a path
// that is missing, and a directory and a file in place of each other. The error has the status of wrong usage, the path
// and the cure.
func TestWrongPathsAreWrongUsage(t *testing.T) {
	missing, dir := filepath.Join(t.TempDir(), "missing"), t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	if err := os.WriteFile(file, []byte("version: 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []string{"import", "inspect", "check", "index", "plan --steps 0..1", "preview", "bench", "up --run-dir r",
		"mix schedule " + dir}
	dirs := []string{"mix show", "mix costs --refit", "restart", "topology --ranks 1", "status", "top",
		"ledger --step 1", "checkpoint dump", "checkpoint verify", "checkpoint compact", "etcd --program true --dir",
		"certs init --hosts a --dir"}
	for _, command := range append(files, dirs...) {
		wrong := []string{missing, dir}
		if slices.Contains(dirs, command) {
			wrong = []string{missing, file}
		}
		for _, path := range wrong {
			makes := strings.HasSuffix(command, "--dir") // the directory
			plans := strings.HasPrefix(command, "plan")  // it takes a run directory, too
			if makes && path == missing || plans && path == dir {
				continue
			}
			root := rootCommand()
			root.SetArgs(append(strings.Fields(command), path))
			root.SetErr(t.Output())
			err := root.Execute()
			if exit.Status(err) != exit.Usage || !strings.Contains(err.Error(), path) ||
				!hasCure.MatchString(err.Error()) {
				t.Errorf("%s %s: status %d, %v", command, path, exit.Status(err), err)
			}
		}
	}
}

// hasCure finds the cure of a wrong path.
var hasCure = regexp.MustCompile("(name (a file|the DIR|a directory)|correct the path|add `format)")

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
