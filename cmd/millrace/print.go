package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// page lets write print to standard output. A reader that has seen enough is no failure.
func page(c *cobra.Command, write func(w *bufio.Writer) error) error {
	w := bufio.NewWriterSize(c.OutOrStdout(), 64<<10)
	err := errors.Join(write(w), w.Flush())
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// encode prints one line of JSON, for scripts and eyes: < stays <.
func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table prints rows of tab-separated cells in columns, the first row as their heads.
func table(w io.Writer, rows ...string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, r)
	}
	return t.Flush()
}

// row joins cells.
func row(cells ...any) string {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = fmt.Sprint(c)
	}
	return strings.Join(texts, "\t")
}

// about marks a number that was estimated.
func about(n uint64, exact bool) string {
	if exact {
		return count(n)
	}
	return "~" + count(n)
}

// count writes a number with its thousands apart.
func count(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// size writes bytes in the unit that fits.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}

func percent(f float64) string { return fmt.Sprintf("%.2f%%", 100*f) }

// meter shows how far long work is, on standard error and only where that is a terminal.
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

// show moves the line of one piece of work; a new piece begins a new line. Calls must not overlap.
func (m *meter) show(what string, done, total int64) {
	if m.out == nil {
		return
	}
	if m.bar == nil || m.what != what {
		m.clear()
		m.what = what
		m.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(m.out), progressbar.OptionSetDescription(what),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
	}
	if m.bar.GetMax64() != total {
		m.bar.ChangeMax64(total)
	}
	_ = m.bar.Set64(done) // a display that fails is no reason to fail
}

// clear takes the line away before something else is printed.
func (m *meter) clear() {
	if m.bar != nil {
		_ = m.bar.Clear()
		m.bar = nil
	}
}
