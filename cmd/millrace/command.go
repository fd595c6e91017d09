package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"millrace"
	"millrace/app/exit"
	"millrace/app/query"
	"millrace/app/report"
)

// The groups of commands in the help.
const (
	dataGroup    = "data"
	runGroup     = "run"
	inspectGroup = "inspect"
	clusterGroup = "cluster"
)

// in puts commands into a group of the help.
func in(group string, commands ...*cobra.Command) []*cobra.Command {
	for _, c := range commands {
		c.GroupID = group
	}
	return commands
}

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

// leastArgs refuses fewer than n arguments, with the status of wrong usage. Want names the arguments.
func leastArgs(n int, want string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < n {
			return exactArgs(n, want)(c, args)
		}
		return nil
	}
}

// oldForm shows the user the new form of a command line. The old form works in this version.
func oldForm(c *cobra.Command, old, now string) {
	fmt.Fprintf(c.ErrOrStderr(),
		"millrace: `millrace %s` is now `millrace %s`: the next version refuses the old form\n", old, now)
}

// limitMemory bounds the heap of a command that reads data.
func limitMemory() { debug.SetMemoryLimit(1 << 30) }

// page passes standard output to write. A reader that closed its end is no error.
func page(c *cobra.Command, write func(w *bufio.Writer) error) error {
	w := bufio.NewWriterSize(c.OutOrStdout(), 64<<10)
	err := errors.Join(write(w), w.Flush())
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// lines returns a function that writes an answer at once, as JSON or by print, so that a reader that closed its end
// stops the command.
func lines[T any](w *bufio.Writer, asJSON bool, print func(T, io.Writer) error) func(T) error {
	return func(answer T) (err error) {
		if asJSON {
			err = report.Encode(w, answer)
		} else {
			err = print(answer, w)
		}
		return errors.Join(err, w.Flush())
	}
}

// meter shows the progress of long work on standard error if that is a terminal.
type meter struct {
	out  io.Writer // nil: it is none
	err  io.Writer // standard error
	what string
	bar  *progressbar.ProgressBar
}

func newMeter(c *cobra.Command) *meter {
	m := &meter{err: c.ErrOrStderr()}
	if f, ok := c.ErrOrStderr().(*os.File); ok && isTerminal(f) {
		m.out = f
	}
	return m
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// show updates the line of one piece of work. A new piece begins a new line. Calls must not overlap.
func (m *meter) show(what string, done, total int64) {
	if m.out == nil {
		return
	}
	if m.bar == nil || m.what != what {
		m.clear()
		m.what = what
		m.bar = progressbar.NewOptions64(
			total,
			progressbar.OptionSetWriter(m.out),
			progressbar.OptionSetDescription(what),
			progressbar.OptionThrottle(
				100*time.Millisecond,
			),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionSetWidth(30),
		)
	}
	if m.bar.GetMax64() != total {
		m.bar.ChangeMax64(total)
	}
	_ = m.bar.Set64(done) // the work continues without a display
}

// clear removes the line before other output.
func (m *meter) clear() {
	if m.bar != nil {
		_ = m.bar.Clear()
		m.bar = nil
	}
}

// Write writes to standard error, in place of the progress.
func (m *meter) Write(text []byte) (int, error) {
	m.clear()
	return m.err.Write(text)
}

// cleared removes the progress of a meter before each answer.
func cleared[T any](m *meter, show func(T) error) func(T) error {
	return func(answer T) error {
		m.clear()
		return show(answer)
	}
}

// streamFlag adds the flag --stream.
func streamFlag(f *pflag.FlagSet, name *string) {
	f.StringVar(name, "stream", string(millrace.Train), "the stream of the run, such as an evaluation set")
}

// newRun returns the run of a directory.
func newRun(dir string) query.Run { return query.Run{Dir: dir, Version: programVersion()} }

// runAt returns a stream of the run of a directory.
func runAt(dir, stream string) (query.Run, error) { return query.At(dir, stream, programVersion()) }

// untilStopped returns a context that ends with SIGINT and SIGTERM. The caller calls the function at its end.
func untilStopped(c *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
}
