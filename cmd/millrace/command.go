package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"millrace"
	"millrace/app/config"
	"millrace/app/exit"
	"millrace/app/query"
	"millrace/app/supervisor"
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

// oldForm tells the user the new form of a command line. The old form works in this version.
func oldForm(c *cobra.Command, old, now string) {
	fmt.Fprintf(c.ErrOrStderr(),
		"millrace: `millrace %s` is now `millrace %s`: the next version refuses the old form\n", old, now)
}

// toolMemory bounds the heap of commands that read data.
const toolMemory = 1 << 30

// page passes standard output to write. A reader that closed its end is no error.
func page(c *cobra.Command, write func(w *bufio.Writer) error) error {
	w := bufio.NewWriterSize(c.OutOrStdout(), 64<<10)
	err := errors.Join(write(w), w.Flush())
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// meter shows the progress of long work on standard error if that is a terminal.
type meter struct {
	out  io.Writer
	what string
	bar  *progressbar.ProgressBar
}

func newMeter(c *cobra.Command) *meter {
	m := &meter{}
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

// streamFlag adds the flag --stream.
func streamFlag(f *pflag.FlagSet, name *string) {
	f.StringVar(name, "stream", string(millrace.Train), "the stream of the run, such as an evaluation set")
}

// loadStream reads a mixture file and returns one of its streams.
func loadStream(mixture, stream string) (*config.Config, error) {
	cfg, err := config.Load(mixture)
	if err != nil {
		return nil, err
	}
	return cfg.Stream(stream)
}

// streamDir returns the directory of a stream of a run.
func streamDir(runDir, stream string) (string, error) {
	dir := supervisor.StreamDir(runDir, stream)
	if dir == runDir || isDir(dir) {
		return dir, nil
	}
	names := []string{string(millrace.Train)}
	entries, _ := os.ReadDir(supervisor.StreamDir(runDir, "")) // no directory: no further streams
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return "", exit.Failuref("%s has no stream %s: --stream can be %s", runDir, stream, strings.Join(names, ", "))
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// newRun returns the run of a directory.
func newRun(dir string) query.Run { return query.Run{Dir: dir, Version: programVersion()} }

// runAt returns a stream of the run of a directory.
func runAt(dir, stream string) (query.Run, error) {
	dir, err := streamDir(dir, stream)
	return newRun(dir), err
}
