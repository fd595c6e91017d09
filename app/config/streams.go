package config

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/tree"
)

// Streams are further streams of a run beside the stream for training, sorted by name.
type Streams []Stream

// Stream is a further stream of batches, such as an evaluation set.
type Stream struct {
	Name   string
	Config *Config // of the stream alone: the keys of the run with the stream's own keys laid over them

	at *tree.Node // its mapping in the file
}

// The limits of streams. Names are parts of the paths of sockets.
const (
	maxStreams    = 16
	maxStreamName = 32
)

// StreamKey is the key that further streams alone have.
const StreamKey = "ranks"

// RunKeys returns the keys that all streams of a run share. A stream cannot have one of its own.
func RunKeys() []string {
	return []string{"version", "streams", "parallelism", "limits", "loaders", "reliability", "index_dir", "cache"}
}

// isInherited reports whether a stream that lacks a key has the run's. It has no key that describes the course of a
// training.
func isInherited(key string) bool {
	return !slices.Contains([]string{"streams", StreamKey, "stages", "rampup_batch_size", "adaptive", "refit"}, key)
}

// DecodeNode reads the names of streams and finds their mappings. Parse reads the mappings.
func (s *Streams) DecodeNode(d *decode.Decoder, path string, n *tree.Node) {
	if n.Kind != tree.Mapping {
		d.WrongType(path, n, "a mapping from names to streams", "write it as `eval: {mixture: {…}, sources: {…}}`")
		return
	}
	if len(n.Entries) > maxStreams {
		d.Fail(path, n.Entries[maxStreams].Key, "too many streams", fmt.Sprintf("write at most %d", maxStreams))
		return
	}
	for _, e := range n.Entries {
		at := decode.Join(path, e.Key.Text)
		d.Places[at] = e
		if msg, cure := badStream(e.Key.Text); msg != "" {
			d.Fail(at, e.Key, msg, cure)
			continue
		}
		if e.Value.Kind != tree.Mapping {
			d.WrongType(at, e.Value, "a mapping", "write it as `eval: {mixture: {…}, sources: {…}}`")
			continue
		}
		if checkStreamKeys(d, at, e.Value) {
			*s = append(*s, Stream{Name: e.Key.Text, at: e.Value})
		}
	}
	slices.SortFunc(*s, func(a, b Stream) int { return strings.Compare(a.Name, b.Name) })
}

// badStream returns the mistake in the name of a stream and the cure, or nothing.
func badStream(name string) (msg, cure string) {
	isUnfit := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}
	switch {
	case name == string(millrace.Train):
		return "a stream cannot be named `train`",
			"the keys at the top level of the file are the stream `train`; give this one another name, as `eval`"
	case name == "" || len(name) > maxStreamName || strings.ContainsFunc(name, isUnfit):
		return "the name of a stream must have 1 to " + fmt.Sprint(maxStreamName) + " characters, each a letter, " +
			"a digit, - or _, not " + tree.Quote(name), "write a name such as `eval`"
	}
	return "", ""
}

// checkStreamKeys refuses the keys of a stream that all streams share, and reports whether there is none.
func checkStreamKeys(d *decode.Decoder, path string, n *tree.Node) (ok bool) {
	ok = true
	own := map[string]bool{}
	for _, e := range n.Entries {
		own[e.Key.Text] = true
		if slices.Contains(RunKeys(), e.Key.Text) {
			d.Fail(
				decode.Join(path, e.Key.Text),
				e.Key,
				"a stream cannot have its own "+tree.Quote(
					e.Key.Text,
				),
				"write it at the top level: all streams share it",
			)
			ok = false
		}
	}
	if own["sources"] && !own["mixture"] {
		d.Fail(path, d.KeyOf(path), decode.Name(path)+" has its own `sources`, but no `mixture`",
			"add `mixture: {weights: {` with a weight for each of its sources")
		ok = false
	}
	return ok
}

// parseStreams reads the mappings of all streams of c. Its errors name the stream, except those that the run has too.
func (c *Config) parseStreams(run tree.Errors) (errs tree.Errors) {
	for i := range c.Streams {
		s := &c.Streams[i]
		doc := c.doc.Over(s.at, isInherited)
		inner, mistakes := decodeConfig(c.File, doc, c.Base)
		s.Config = inner
		for _, e := range mistakes {
			isRuns := func(r *tree.Error) bool { return r.Line == e.Line && r.Column == e.Column && r.Msg == e.Msg }
			if !slices.ContainsFunc(run, isRuns) {
				e.Msg = "stream " + tree.Quote(s.Name) + ": " + e.Msg
				errs = append(errs, e)
			}
		}
	}
	return errs
}

// decodeConfig reads and checks one stream's document.
func decodeConfig(file string, doc *tree.Document, base string) (*Config, tree.Errors) {
	c := &Config{File: file, Base: base, doc: doc}
	d := decode.Decoder{Document: doc, Hints: hints()}
	d.Decode("", doc.Root, reflect.ValueOf(c).Elem(), decode.Rules{})
	v := validator{Decoder: &d, c: c}
	v.check()
	if _, given := v.Place("seekable_copies"); !given {
		_, given = v.Place("shuffle")
		c.SeekableCopies = given && c.Shuffle == millrace.Global
	}
	return c, d.Errs
}

// All returns the streams by their names. The first is c itself, the stream `train`.
func (c *Config) All() iter.Seq2[string, *Config] {
	return func(yield func(string, *Config) bool) {
		if !yield(string(millrace.Train), c) {
			return
		}
		for i := range c.Streams {
			if !yield(c.Streams[i].Name, c.Streams[i].Config) {
				return
			}
		}
	}
}

// Stream returns the configuration of a stream by its name. The error names the streams that exist; it wraps
// millrace.ErrInvalid.
func (c *Config) Stream(name string) (*Config, error) {
	var names []string
	for known, stream := range c.All() {
		if known == name {
			return stream, nil
		}
		names = append(names, known)
	}
	return nil, c.ErrorAt("streams", fmt.Sprintf("there is no stream %s", tree.Quote(name)),
		"the streams of this file: "+strings.Join(names, ", "))
}
