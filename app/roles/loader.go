package roles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"millrace"
	"millrace/app/rundir"
	"millrace/app/setup"
	"millrace/app/supervisor"
	"millrace/internal/activity"
	"millrace/internal/arena"
	"millrace/internal/heartbeat"
	"millrace/internal/seam"
	"millrace/sources"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/loader"
	"millrace/text/tokenize"
)

// Load runs a loader, or a shadow that stands by for loaders, until the run ends.
func (p Process) Load(ctx context.Context, standby bool) error {
	r, ctx, stop, err := p.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	return r.load(ctx, standby)
}

func (r *role) load(ctx context.Context, standby bool) (err error) {
	r.collector.asRole(standby)
	p := &readers{role: r, standby: standby, ready: r.readyAfter(), encodings: map[string]*tokenize.Encoding{}}
	procs := 0
	for _, s := range r.streams {
		division := s.of.Part.Reader
		p.heap.Add(division.Heap)
		procs = max(procs, division.Procs)
	}
	LimitMemory(p.heap.Load())
	runtime.GOMAXPROCS(procs)
	ctx, leave := handingOver(ctx)
	p.texts = p.newTexts()
	defer func() {
		if e := p.texts.Close(); err == nil {
			err = e
		}
	}()
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range r.streams {
		run, err := p.open(s, leave)
		if err != nil {
			return asFailure(s.failed(err))
		}
		group.Go(func() error {
			if err := run(ctx); err != nil {
				return s.failed(err)
			}
			select {
			case <-leave:
				return nil // the loaders of the other streams hand over, too
			default:
				return errDone
			}
		})
	}
	if err := group.Wait(); !errors.Is(err, errDone) {
		return asFailure(err)
	}
	return nil
}

// readers are the loaders of a process, one for each stream.
type readers struct {
	*role
	standby   bool
	ready     func()
	heap      atomic.Int64 // limit of the process's heap in bytes, with the facts about files
	encodings map[string]*tokenize.Encoding
	texts     *decode.File // of all streams
}

// open makes the loader of a stream. The caller calls run, which removes the loader's files at its end.
func (p *readers) open(s *stream, leave <-chan struct{}) (run func(context.Context) error, err error) {
	runtimeDir := supervisor.RuntimeDir(s.dir)
	if err := removeLeftovers(runtimeDir, p.Name); err != nil {
		return nil, err
	}
	division := s.of.Part.Reader
	encoding, err := p.encoding(s, division)
	if err != nil {
		return nil, err
	}
	beat, err := heartbeat.Files{}.Create(heartbeat.Path(runtimeDir, p.Name, os.Getpid()))
	if err != nil {
		return nil, err
	}
	meter := activity.New(time.Now)
	stores, err := setup.Stores(s.of.Config, division.Ahead, meter, p.log)
	if err != nil { // without it, the stores have every block
		p.log.Warn("the cache of files is not used", "err", err)
	}
	buffers := setup.NewReadBuffers(division.Decoders, division.Buffers, stores)
	address := rundir.Socket(s.dir, fmt.Sprintf("%s-%d", p.Name, os.Getpid()))
	tokens, err := setup.TokenCache(s.of.Config, p.log)
	if err != nil { // up found the directory good; without it, the files have every document
		p.log.Warn("the token cache is not used", "err", err)
	}
	l := loader.New(loader.Config{
		Name: p.Name, Address: address, Orchestrator: p.orchestrator(s), Standby: p.standby,
		Beat: beat, Leave: leave,
		// the supervisor says that the whole command stops
		ForGood: func() bool { return supervisor.Reason(p.RunDir) != "" },
		Version: speaks(p.Version),
		Spec: func(name string) (sources.Spec, error) {
			src, ok := s.of.Config.Source(name)
			if !ok {
				return sources.Spec{}, millrace.Errorf(millrace.ErrInvalid, "source %s is not in the mixture", name)
			}
			return setup.SourceSpec(s.of.Config, src, encoding, buffers)
		},
		Files: func(name string) sources.FS {
			src, _ := s.of.Config.Source(name)
			return setup.Files(src, buffers)
		},
		Facts:     p.facts(),
		OpenFiles: s.of.Part.OpenFiles, Cache: tokens, Texts: p.texts,
		Memory: division.Payload, Parallel: division.Decoders,
		Remote: p.remote(), Host: p.site.Name, Up: p.site.Up,
		Arenas: arena.Host{}, Net: p.net(), Credentials: p.credentials, Clock: seam.System{},
		Fail: p.fail, Events: s.events, Log: p.log,
		Meter: meter,
		Ready: p.ready, Term: p.terms(s), Role: p.roleOf(s),
	})
	return func(ctx context.Context) error {
		err := l.Run(ctx)
		err = errors.Join(err, stores.Close())
		// Both file names hold this process's pid: no successor's files are removed.
		if e := os.Remove(address); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
		return errors.Join(err, beat.Close())
	}, nil
}

// encoding returns the tokenizer of a stream. Streams with one tokenizer share it. nil: the stream has none.
func (p *readers) encoding(s *stream, division setup.Reader) (*tokenize.Encoding, error) {
	key, err := json.Marshal(s.of.Config.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("compare tokenizers: %w", err)
	}
	if e := p.encodings[string(key)]; e != nil {
		return e, nil
	}
	e, err := setup.Tokenizer(s.of.Config)
	if e != nil {
		e.LimitEncoders(division.Encoders, division.EncoderBytes)
		if err := e.Share(supervisor.RuntimeDir(p.RunDir)); err != nil {
			p.log.Warn("this process has tables of the tokenizer of its own", "err", err)
		}
		p.encodings[string(key)] = e
	}
	return e, err
}

// facts returns a function that makes room in the heap for the bytes of the facts about a stream's files. The collector
// would run without end if it had to keep them inside the payload's room.
func (p *readers) facts() func(bytes int64) {
	var had atomic.Int64
	return func(bytes int64) { LimitMemory(p.heap.Add(bytes - had.Swap(bytes))) }
}

// roleOf returns a function that shows the role of this process in the stream `train`, or none for other streams.
func (p *readers) roleOf(s *stream) func(standby bool) {
	if s.isFurther() {
		return nil
	}
	return func(standby bool) {
		p.collector.asRole(standby)
		if standby {
			title(ShadowRole)
		} else {
			title(LoaderRole)
		}
	}
}

// handingOver returns a context that ends with ctx unless the supervisor asked this process to stop. In that case leave
// is closed instead, and the loader ends by itself after it has handed over its stripes.
func handingOver(ctx context.Context) (_ context.Context, leave <-chan struct{}) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	asked := make(chan struct{})
	context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, supervisor.ErrStopped) {
			close(asked)
		} else {
			cancel(cause)
		}
	})
	return inner, asked
}

// removeLeftovers removes the files that dead processes of a name left in the runtime directory.
func removeLeftovers(dir, name string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for files of dead processes: %w", err)
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), name+"-")
		pid, err := strconv.Atoi(strings.TrimSuffix(rest, filepath.Ext(rest)))
		if !ours || err != nil || unix.Kill(pid, 0) != unix.ESRCH {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove a file of a dead process: %w", err)
		}
	}
	return nil
}
