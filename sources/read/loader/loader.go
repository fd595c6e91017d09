package loader

import (
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"millrace"
	"millrace/internal/activity"
	"millrace/internal/arena"
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/internal/heartbeat"
	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/proto"
	"millrace/sources"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/feed/pool"
	"millrace/sources/read/feed/recent"
	"millrace/sources/store/cache"
)

// Config sets a loader's host and its run.
type Config struct {
	Name         string
	Address      string                                    // at which it serves
	Remote       string                                    // serves other hosts, too; port 0: any; empty: it does not
	Orchestrator string                                    // its address
	Host         string                                    // name of the host; empty: the run has one
	Up           string                                    // random id of this `millrace up`; empty: the run has one
	Spec         func(source string) (sources.Spec, error) // describes a source of the mixture
	Files        func(source string) sources.FS            // of a source; nil: the operating system's
	Pid          int64                                     // for people; default: the operating system's
	Standby      bool                                      // ask to be a shadow
	Version      *proto.Version                            // of this binary
	Beat         *heartbeat.Page                           // nil: no supervisor watches
	Leave        <-chan struct{}                           // closed to make the process hand over and leave; nil: never
	// ForGood reports, once Leave is closed, whether no process of its name follows; default: one does.
	ForGood  func() bool
	Memory   int64        // bytes of payload held
	Parallel int          // decoders; default GOMAXPROCS
	Cache    *cache.Store // of tokens; nil: every text is tokenised
	Texts    *decode.File // for texts of blocks; nil: they stay in memory
	// data files open at once; 0: the default follows from the process's limit of descriptors
	OpenFiles int
	Facts     func(bytes int64) // see sources.HostOptions
	Net       seam.Net
	// for other hosts; nil: all roles are on this host
	Credentials *secure.Credentials
	// for the tokens of sidecars of this host; nil: replies carry them
	Arenas arena.Space
	Clock  seam.Clock
	Fail   *failpoint.Set
	Events *event.Log
	// of this process; nil: no measurements and no reports
	Meter *activity.Meter
	Log   *slog.Logger
	Ready func()              // called once it serves
	Term  func(millrace.Term) // called with every term under which it reads as a primary
	Role  func(standby bool)  // called when it becomes a shadow, or a primary; default: nothing
}

const (
	retry  = 50 * time.Millisecond // wait between attempts to reach the orchestrator
	reopen = time.Second           // wait before a source with missing files is opened again
	// mostOpenings bounds the sources that are opened at once: each takes a thread for every file that it waits for.
	mostOpenings = 16
	leaveGrace   = 4 * time.Second // the longest wait of a leaving loader for others to take over its stripes
	forGoodGrace = 20 * time.Second
)

// Loader is the state of one loader process.
type Loader struct {
	proto.UnimplementedLoaderServer
	cfg      Config
	remote   string // the address of Config.Remote for diallers; Run sets it before it dials the orchestrator
	identity string // random: no other process has it
	budget   *budget.Budget
	pool     *pool.Pool
	recent   *recent.Store // of random reads
	host     *sources.Host
	warmth   warmth
	mu       sync.Mutex
	open     map[string]*sources.Source
	gates    map[string]*sync.Mutex         // by source: held while it is opened
	openings chan struct{}                  // has an element for each source that is being opened
	reads    map[string]map[uint32]*reading // by source and stripe; none is empty
	out      *reporter                      // of the newest session
	going    string                         // reason why it was asked to leave; empty: it was not
	online   bool                           // an orchestrator listens
	shadow   bool                           // the last argument of Role
	troubles map[string]string              // by source: the reads that fail for now
	term     uint64                         // highest orchestrator term seen; the session's own
}

// New returns a loader. Run starts it.
func New(cfg Config) *Loader {
	if cfg.Pid == 0 {
		cfg.Pid = int64(os.Getpid())
	}
	if cfg.Role == nil {
		cfg.Role = func(bool) {}
	}
	if cfg.ForGood == nil {
		cfg.ForGood = func() bool { return false }
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = runtime.GOMAXPROCS(0)
	}
	memory := budget.New(cfg.Memory)
	decoders := pool.New(cfg.Parallel, cfg.Texts, func(large *budget.Large) *decode.Decoder {
		return decode.New(cfg.Beat.Progress, cfg.Fail, large)
	})
	return &Loader{
		identity: rand.Text(),
		shadow:   cfg.Standby,
		recent:   recent.New(memory, decoders.Store()),
		pool:     decoders,
		cfg:      cfg,
		budget:   memory,
		host: sources.NewHost(sources.HostOptions{OpenFiles: cfg.OpenFiles, IndexFS: indexFS(cfg.Fail),
			Facts: cfg.Facts, Logger: cfg.Log}),
		open:     map[string]*sources.Source{},
		gates:    map[string]*sync.Mutex{},
		openings: make(chan struct{}, mostOpenings),
		reads:    map[string]map[uint32]*reading{},
		troubles: map[string]string{},
	}
}

// currentTroubles returns the reads that fail for now, by source.
func (l *Loader) currentTroubles() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.troubles)
}

// newest returns the reporter of the newest session.
func (l *Loader) newest() *reporter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out
}

// held lists the stripes that the process reads or follows.
func (l *Loader) held() (out []*proto.Drop) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, source := range slices.Sorted(maps.Keys(l.reads)) {
		for _, index := range slices.Sorted(maps.Keys(l.reads[source])) {
			out = append(out, &proto.Drop{Source: source, Stripe: index, Term: l.reads[source][index].term.Load()})
		}
	}
	return out
}

func (l *Loader) reading(of stripe) *reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads[of.source][of.index]
}

// readings returns the readings of one source.
func (l *Loader) readings(source string) []*reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.reads[source]))
}

// fatal reports to the orchestrator that a source cannot continue. The process waits for the end of the run.
func (l *Loader) fatal(ctx context.Context, out *reporter, source string, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	l.cfg.Log.Error("source cannot go on", "source", source, "error", err)
	out.send(0,
		&proto.LoaderEvent{Event: &proto.LoaderEvent_Fatal{Fatal: &proto.Fatal{Source: source, Reason: err.Error()}}})
	return nil
}

func (l *Loader) closeSources() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.open {
		s.Close()
	}
	l.host.Close()
}
