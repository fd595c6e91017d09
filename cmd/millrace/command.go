package main

import (
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"millrace/checkpoint"
	"millrace/clients"
	"millrace/internal/app/dryrun"
	"millrace/internal/app/exit"
	"millrace/internal/app/roles"
	"millrace/internal/app/rundir"
)

// noArgs is cobra.NoArgs with the status of wrong usage. It suggests commands with a similar name.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cure := ""
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		cure = fmt.Sprintf("did you mean %s? ", strings.Join(near, " or "))
	}
	return exit.Usagef("%s: unknown command %q: %ssee `%s --help`", c.CommandPath(), args[0], cure, c.CommandPath())
}

// exactArgs is cobra.ExactArgs with the status of wrong usage. Want names the arguments.
func exactArgs(n int, want string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return exit.Usagef(
				"%s: want %s, got %d arguments: see `%s --help`", c.CommandPath(), want, len(args), c.CommandPath(),
			)
		}
		return nil
	}
}

// version is set by the linker for wheels and images.
var version = ""

// programVersion returns the version in the form of PEP 440. The linker's value comes first. A build in a checkout of a
// tag has the tag's version; every other build has the version of the source tree and, if Go knows it, the revision.
func programVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return clients.Version()
	}
	return builtVersion(info)
}

var releaseTag = regexp.MustCompile(`^v(\d+\.\d+\.\d+)$`)

func builtVersion(info *debug.BuildInfo) string {
	if tag := releaseTag.FindStringSubmatch(info.Main.Version); tag != nil {
		return tag[1]
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return clients.Version() + "+g" + s.Value[:12]
		}
	}
	return clients.Version()
}

// firstProblem prints all problems of a failed opening but the last, and returns the last.
func firstProblem(c *cobra.Command, err error) error {
	var ps dryrun.Problems
	if !errors.As(err, &ps) {
		return err
	}
	for _, p := range ps[:len(ps)-1] {
		fmt.Fprintln(c.ErrOrStderr(), p)
	}
	return exit.Failure(ps[len(ps)-1])
}

// toolMemory bounds the heap of commands that read data.
const toolMemory = 1 << 30

// openJournal opens the journal of a stopped run for reading.
func openJournal(dir string) (*checkpoint.Store, error) {
	store, _, err := rundir.OpenJournal(dir, journalConfig(), checkpoint.OpenReadOnly)
	return store, err
}

func journalConfig() checkpoint.Config {
	return checkpoint.Config{CreatedBy: programVersion(), Logger: roles.NewLogger("journal")}
}
