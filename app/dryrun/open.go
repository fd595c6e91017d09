package dryrun

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"

	"millrace"
	"millrace/app/config"
	"millrace/app/config/tree"
	"millrace/app/setup"
	"millrace/internal/activity"
	"millrace/sources"
	"millrace/sources/find"
	"millrace/sources/store/cache"
	"millrace/sources/store/remote"
	"millrace/text/tokenize"
)

// Options say how sources are opened.
type Options struct {
	Deep     bool                                   // hash every byte and compare with the hash first seen
	OnePass  bool                                   // every source ends after one pass; overrides the mixture file
	Only     string                                 // open this source alone; empty: all
	Looked   func(source string, done, total int64) // files looked at
	Progress func(source string, done, total int64) // bytes indexed
	Logger   *slog.Logger                           // default: none
	Meter    *activity.Meter                        // nil: no measurements
	Measure  bool                                   // measure the sources if weights are derived from their sizes
	Part     *setup.Part                            // of the stream in the limits; nil: all limits of the file
	Whole    bool                                   // documents are read whole; overrides the mixture file
}

// Opened is the sources of a mixture, sorted by name. It is safe for concurrent use until Close.
type Opened struct {
	Config   *config.Config
	Facts    config.Facts       // about the data; the sizes are among them if Options.Measure asks for them
	Encoding *tokenize.Encoding // nil if no source is text
	Sources  []*sources.Source
	memory   int64 // bytes for documents that are read
	host     *sources.Host
	buffers  *setup.ReadBuffers
	stores   *remote.Host
	files    []sources.FS     // of each source
	cache    *cache.Store     // nil without a token cache
	skipped  [][]find.Skipped // of each source: files of its path that are not read
}

// Problem says why a source cannot be read. Place is the key in the mixture file that could cure it, or nil.
type Problem struct {
	Source string
	Err    error
	Place  *tree.Error
}

// Error names the place in the mixture file (if there is one), the source, the cause and the cure.
func (p *Problem) Error() string {
	text := p.Err.Error()
	if prefix := "source " + p.Source + ": "; !strings.HasPrefix(text, prefix) {
		text = prefix + text
	}
	var limit *sources.LimitError
	switch {
	case errors.As(p.Err, &limit):
		text += fmt.Sprintf(", or take it out of sources.%s.path", p.Source)
	case errors.Is(p.Err, millrace.ErrDamaged), errors.Is(p.Err, fs.ErrNotExist):
		text += fmt.Sprintf("; restore the file, or take it out of sources.%s.path", p.Source)
	}
	if p.Place != nil {
		return fmt.Sprintf("%s:%d:%d: %s", p.Place.File, p.Place.Line, p.Place.Column, text)
	}
	return text
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// Problems are the problems of a mixture's sources.
type Problems []*Problem

// Error returns one line a problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Open opens the sources of a mixture one after the other. Its error is Problems if sources cannot be read; it then
// also returns the opened sources. Any other error is a mistake in the mixture file. The caller closes the result.
func Open(ctx context.Context, c *config.Config, o Options) (*Opened, error) {
	encoding, err := setup.Tokenizer(c)
	if err != nil {
		return nil, err
	}
	if o.Looked == nil {
		o.Looked = func(string, int64, int64) {}
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	o.Part = orAlone(o.Part, c, 0)
	host := sources.NewHost(sources.HostOptions{OpenFiles: o.Part.OpenFiles, Logger: o.Logger})
	stores, err := setup.Stores(c, o.Part.WalkBuffers, nil, o.Logger)
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	out := &Opened{Config: c, Facts: config.Facts{Vocabulary: setup.Vocabulary(encoding)}, Encoding: encoding,
		memory: o.Part.Walk, host: host, stores: stores,
		buffers: setup.NewReadBuffers(2*runtime.GOMAXPROCS(0), o.Part.WalkBuffers, stores)}
	if out.cache, err = setup.TokenCache(c, o.Logger); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	var problems Problems
	for i := range c.Sources {
		s := &c.Sources[i]
		if o.Only != "" && o.Only != s.Name {
			continue
		}
		if p, err := out.open(ctx, s, o); err != nil {
			out.Close()
			return nil, err
		} else if p != nil {
			problems = append(problems, p)
		}
	}
	if len(problems) == 0 && o.Measure && c.Mixture.Derives() {
		var sizes []uint64
		if sizes, problems, err = out.measure(ctx); err != nil {
			out.Close()
			return nil, err
		}
		out.Facts = config.Facts{Vocabulary: setup.Vocabulary(encoding), Sizes: sizes}
	}
	if len(problems) > 0 {
		return out, problems
	}
	return out, nil
}

func (out *Opened) open(ctx context.Context, s *config.Source, o Options) (*Problem, error) {
	spec, err := setup.SourceSpec(out.Config, s, out.Encoding, out.buffers)
	if err != nil {
		return nil, err
	}
	if o.OnePass {
		spec.Epochs = 1
	}
	if o.Whole {
		spec.PieceTokens = 0
	}
	// Open resolves the paths again. This call separates mistakes in the paths from other failures.
	stored := setup.Files(s, out.buffers)
	tree, _ := stored.(find.Tree)
	files, err := find.Resolve(tree, spec.Query(stored))
	if err != nil {
		return &Problem{Source: s.Name, Err: err, Place: where(out.Config, "sources."+s.Name+".path")}, nil
	}
	opts := sources.OpenOptions{Host: out.host, FS: stored, Deep: o.Deep, Logger: o.Logger, Meter: o.Meter,
		Looked:   func(done, total int64) { o.Looked(s.Name, done, total) },
		Progress: func(done, total int64) { o.Progress(s.Name, done, total) }}
	if out.cache != nil { // a nil *Store is not a nil Cache
		opts.Cache = out.cache
	}
	src, err := sources.Open(ctx, spec, opts)
	if err == nil {
		src, err = src.InPieces(ctx, spec.PieceTokens)
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, millrace.ErrInvalid):
		return &Problem{Source: s.Name, Err: err, Place: where(out.Config, "sources."+s.Name)}, nil
	case err != nil:
		return &Problem{Source: s.Name, Err: err}, nil
	}
	out.Sources = append(out.Sources, src)
	out.skipped, out.files = append(out.skipped, files.Skipped), append(out.files, stored)
	return nil, nil
}

// orAlone returns the given part, or that of a stream which has all limits of its mixture file.
func orAlone(given *setup.Part, c *config.Config, ranks int) *setup.Part {
	if given != nil {
		return given
	}
	alone := setup.Alone(c, setup.ThisHost(ranks), setup.Measured{})
	return &alone
}

// where returns the place of a key in the mixture file.
func where(c *config.Config, key string) *tree.Error {
	var at *tree.Error
	errors.As(c.ErrorAt(key, "", ""), &at)
	return at
}

// Manifests returns the manifests of the sources in order.
func (o *Opened) Manifests() []*millrace.Manifest {
	out := make([]*millrace.Manifest, len(o.Sources))
	for i, s := range o.Sources {
		out[i] = s.Manifest()
	}
	return out
}

// Close closes the sources.
func (o *Opened) Close() error {
	var errs []error
	for _, s := range o.Sources {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, o.host.Close(), o.stores.Close())...)
}
