package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

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
