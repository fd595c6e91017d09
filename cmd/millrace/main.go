// Command millrace is the one binary: every role of a run and every tool around it. It holds wiring and flags only.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"millrace"
)

// The exit statuses that outside tools rely on.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// The statuses of a role that only its supervisor understands.
const (
	exitAsked  = 3 // it left since it was asked to
	exitNoRoom = 4 // the disk that it writes to is full
	exitDisk   = 5 // a write to the journal failed: only a fresh process knows what the disk holds
)

func main() { os.Exit(run(os.Args[1:])) }

// run carries out a command line and returns the exit status; the reason is the last line on standard error.
func run(args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return exitDone
	}
	var usage *usageError
	var left *departure
	if text := err.Error(); text != "" {
		// Names out of damaged files may be anything.
		fmt.Fprintln(os.Stderr, strings.ToValidUTF8(strings.TrimRight(text, "\n"), "\ufffd"))
	}
	if errors.As(err, &left) {
		return left.status
	}
	if errors.As(err, &usage) || errors.Is(err, millrace.ErrInvalid) {
		return exitUsage
	}
	return exitFailed
}

// usageError is wrong usage of the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// failure is an error of a running run: exit status 1 whatever it wraps, since the mixture itself was valid.
type failure struct{ reason string }

func (e *failure) Error() string { return e.reason }

// departure ends a role with a status for its supervisor; the reason may be empty.
type departure struct {
	status int
	reason string
}

func (e *departure) Error() string { return e.reason }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "One exact stream of length-balanced batches from many datasets to every trainer rank",
		Long: `Millrace feeds the training of large models: a mixture file names the sources and how they are mixed, ` + "`millrace up`" + ` serves
every trainer rank of this host on a Unix socket, and the same mixture file gives the same batches again, whatever dies on the way.

  millrace check mixture.yaml                             is it valid, and what will the run do?
  millrace up mixture.yaml --ranks 8 --run-dir runs/a     serve it
  millrace status runs/a                                  what is it doing?`,
		SilenceUsage: true, SilenceErrors: true, Args: noArgs, SuggestionsMinimumDistance: 2,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%s: %w: see `%s --help`", c.CommandPath(), err, c.CommandPath())}
	})
	root.AddCommand(upCommand(), checkCommand(), previewCommand(), planCommand(), indexCommand(), statusCommand(), ledgerCommand(), mixCommand(), restartCommand(),
		checkpointCommand(), versionCommand(), orchestratorCommand(), loaderCommand(), shadowCommand(), sidecarCommand())
	return root
}

// noArgs is cobra.NoArgs with our exit status; what stands there is most likely a command that was mistyped.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cure := ""
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		cure = fmt.Sprintf("did you mean %s? ", strings.Join(near, " or "))
	}
	return &usageError{fmt.Errorf("%s: unknown command %q: %ssee `%s --help`", c.CommandPath(), args[0], cure, c.CommandPath())}
}

// exactArgs is cobra.ExactArgs with our exit status and a cure.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return &usageError{fmt.Errorf("%s: want %s, got %d arguments: see `%s --help`", c.CommandPath(), what, len(args), c.CommandPath())}
		}
		return nil
	}
}

// version is set by the linker for releases.
var version = ""

// programVersion is the release, or the revision the binary was built from.
func programVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
