package roles

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"millrace"
	"millrace/app/rundir"
	"millrace/app/setup"
	"millrace/app/supervisor"
	"millrace/internal/event"
)

// stream is one stream of batches of the run, as a process serves it. A process runs its role once for each stream.
type stream struct {
	name   millrace.Stream
	dir    string // laid out as a run directory
	of     *setup.Stream
	events *event.Log
}

// isFurther reports whether the run has the stream beside the one that it is for.
func (s *stream) isFurther() bool { return s.name != millrace.Train }

// openStreams reads the configurations of the streams that `up` serves. The stream `train` comes first.
func openStreams(runDir string, events *event.Log) ([]*stream, error) {
	var out []*stream
	for _, name := range append([]string{string(millrace.Train)}, supervisor.Streams(runDir)...) {
		s := &stream{name: millrace.Stream(name), dir: supervisor.StreamDir(runDir, name), events: events.Of(name)}
		text, err := os.ReadFile(rundir.ConfigFile(s.dir))
		if err != nil {
			return nil, fmt.Errorf("read the run's configuration: %w", err)
		}
		if s.of, err = setup.ReadStream(text); err != nil {
			return nil, fmt.Errorf("read the run's configuration: %w", err)
		}
		out = append(out, s)
	}
	return out, nil
}

// failed names the stream in an error, unless the run has no other.
func (s *stream) failed(err error) error {
	if err == nil || !s.isFurther() {
		return err
	}
	return fmt.Errorf("stream %s: %w", s.name, err)
}

// lines returns a writer of lines for people that name the stream.
func (s *stream) lines(w io.Writer) io.Writer {
	if !s.isFurther() {
		return w
	}
	return &namedLines{w, "stream " + string(s.name) + ": "}
}

// namedLines writes a name before each line, after the word that says the line's kind. Each Write is one line.
type namedLines struct {
	w    io.Writer
	name string
}

// Write implements io.Writer.
func (n *namedLines) Write(line []byte) (int, error) {
	kind := ""
	for _, k := range []string{"warning: ", "over: "} {
		if bytes.HasPrefix(line, []byte(k)) {
			kind = k
		}
	}
	_, err := fmt.Fprintf(n.w, "%s%s%s", kind, n.name, line[len(kind):])
	return len(line), err
}
