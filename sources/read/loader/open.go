package loader

import (
	"context"
	"fmt"
	"sync"

	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources"
)

// openSource opens a source once and reports its manifest. A restarted orchestrator asks again. If the opening for its
// predecessor is under way, openSource waits for its end.
func (l *Loader) openSource(ctx context.Context, out *reporter, order *proto.OpenSource) error {
	name := order.Source
	gate := l.gate(name)
	gate.Lock()
	defer gate.Unlock()
	l.mu.Lock()
	src := l.open[name]
	l.mu.Unlock()
	if src == nil {
		spec, err := l.cfg.Spec(name)
		if err != nil {
			return l.fatal(ctx, out, name, err)
		}
		if src, err = l.openFiles(ctx, spec, order.Known); err != nil {
			return l.fatal(ctx, out, name, err)
		}
		l.mu.Lock()
		l.open[name] = src
		l.mu.Unlock()
	}
	out.send(0,
		&proto.LoaderEvent{Event: &proto.LoaderEvent_Manifest{Manifest: wire.ManifestToProto(src.Manifest())}})
	return nil
}

// openFiles opens a source. If the run has read it before (known), openFiles waits for missing files.
func (l *Loader) openFiles(ctx context.Context, spec sources.Spec, known bool) (*sources.Source, error) {
	progress := func(done, total int64) {
		opening := &proto.Opening{Source: spec.Name, Done: done, Total: total}
		l.newest().send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Opening{Opening: opening}})
	}
	troubled := false
	for {
		l.pool.Hurry() // a run begins when all sources are open
		opts := sources.OpenOptions{
			Host:     l.host,
			Spare:    true,
			Progress: progress,
			Parallel: l.cfg.Parallel,
			Logger:   l.cfg.Log,
			Trouble:  func(text string) { l.trouble(spec.Name, text) },
			Patient:  true,
			Tried:    l.cfg.Beat.Progress,
			Meter:    l.cfg.Meter,
			FS:       dataFS(l.cfg.Fail, l.filesOf(spec.Name)),
		}
		if l.cfg.Cache != nil { // a nil *Store is not a nil Cache
			opts.Cache = l.cfg.Cache
		}
		src, err := l.openOne(ctx, spec, opts)
		l.pool.Calm()
		if err == nil || !known || !sources.Passing(err) || ctx.Err() != nil {
			if troubled {
				l.trouble(spec.Name, "")
			}
			return src, err
		}
		l.trouble(spec.Name, fmt.Sprintf("opening it fails and is tried again: %v", err))
		troubled = true
		select {
		case <-ctx.Done():
		case <-l.cfg.Clock.After(reopen):
		}
	}
}

// filesOf returns the files of a source.
func (l *Loader) filesOf(source string) sources.FS {
	if l.cfg.Files == nil {
		return sources.OSFS()
	}
	return l.cfg.Files(source)
}

// openOne opens a source when fewer than mostOpenings others are being opened.
func (l *Loader) openOne(ctx context.Context, spec sources.Spec, opts sources.OpenOptions) (*sources.Source, error) {
	select {
	case l.openings <- struct{}{}:
		defer func() { <-l.openings }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return sources.Open(ctx, spec, opts)
}

// trouble reports reads that fail for now, to this orchestrator and its successors. An empty text ends the trouble.
func (l *Loader) trouble(source, text string) {
	l.mu.Lock()
	if l.troubles[source] = text; text == "" {
		delete(l.troubles, source)
	}
	out := l.out
	l.mu.Unlock()
	out.trouble(source, text)
}

func (l *Loader) gate(source string) *sync.Mutex {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates[source] == nil {
		l.gates[source] = &sync.Mutex{}
	}
	return l.gates[source]
}
