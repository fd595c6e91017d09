package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"millrace/app/query"
	"millrace/app/report"
	"millrace/app/rundir"
)

// every is the pause between two pages.
const every = time.Second

// reader returns the status of a run now. running is false after the run has ended.
type reader func(ctx context.Context) (status *report.Status, running bool, err error)

// Show shows a run once a second until the user or ctx ends it, or the run ends. On a terminal it shows pages, and
// gives the terminal back as it was. On anything else it prints a line each time. A reader of out that closed its end
// is no error.
func Show(ctx context.Context, run query.Run, in, out *os.File) error {
	read := func(ctx context.Context) (*report.Status, bool, error) {
		way := rundir.NewWay(run.Dir)
		defer way.Close()
		return run.Status(ctx, way)
	}
	show := onLines
	if term.IsTerminal(int(out.Fd())) {
		show = func(ctx context.Context, read reader, out *os.File) error {
			return onTerminal(ctx, run.Dir, read, in, out)
		}
	}
	if err := show(ctx, read, out); !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil
}

// onLines prints a line each time.
func onLines(ctx context.Context, read reader, out *os.File) error {
	var h History
	for {
		status, running, err := read(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		h.Add(time.Now(), status)
		if _, err := fmt.Fprintln(out, h.Line()); err != nil || !running {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// The codes of a terminal.
const (
	enter      = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leave      = "\x1b[?25h\x1b[?1049l" // back
	home       = "\x1b[H"               // to the first line
	eol        = "\x1b[K"               // clears the rest of the line
	eos        = "\x1b[J"               // clears the rest of the screen
	quits      = "qQ\x03\x04"           // keys: q, Ctrl-C, Ctrl-D
	wide, tall = 80, 24                 // of a terminal that does not report its size
)

func onTerminal(ctx context.Context, dir string, read reader, in, out *os.File) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if fd := int(in.Fd()); term.IsTerminal(fd) {
		old, err := term.MakeRaw(fd)
		if err != nil {
			return fmt.Errorf("take single keys from the terminal: %w", err)
		}
		defer func() { _ = term.Restore(fd, old) }()
		go readKeys(in, stop) // ends with the process: a read of a terminal cannot be ended
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	if _, err := fmt.Fprint(out, enter); err != nil {
		return err
	}
	last := ""
	defer func() {
		_, failed := fmt.Fprint(out, leave, last)
		if err == nil {
			err = failed
		}
	}()
	var h History
	for {
		status, running, err := read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		h.Add(time.Now(), status)
		if !running {
			last = h.Line() + "\r\n"
			return nil
		}
		for next := time.After(every); next != nil; {
			if err := h.draw(dir, out); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-resized:
			case <-next:
				next = nil
			}
		}
	}
}

// draw writes the newest page over the one before.
func (h *History) draw(dir string, out *os.File) error {
	width, height, err := term.GetSize(int(out.Fd()))
	if err != nil || width < 1 || height < 1 {
		width, height = wide, tall
	}
	lines := h.Page(dir, width, height)
	_, err = fmt.Fprint(out, home+strings.Join(lines, eol+"\r\n")+eol+eos)
	return err
}

// readKeys calls stop when the user asks to quit, or when the input ends.
func readKeys(in *os.File, stop func()) {
	key := make([]byte, 1)
	for {
		if n, err := in.Read(key); err != nil || n == 1 && strings.ContainsRune(quits, rune(key[0])) {
			stop()
			return
		}
	}
}
