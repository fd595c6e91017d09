package bench

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace/app/rundir"
)

// Measure takes the batches of all ranks of a run directory, and measures for the given time after a warm-up of a fifth
// of it, at most five seconds. It ends earlier if the run ends. It calls tell with the progress.
func Measure(
	ctx context.Context, runDir string, ranks int, long time.Duration, tell func(passed time.Duration),
) (*Figures, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m := &meter{runDir: runDir, ranks: ranks, all: make(chan struct{}), began: time.Now()}
	from := m.look(ctx)
	var group errgroup.Group
	over := make(chan error, 1)
	for rank := range ranks {
		group.Go(func() error { return Take(ctx, runDir, rank, m.took) })
	}
	go func() { over <- group.Wait() }() // ends with the trainers, which end with ctx
	select {
	case <-m.all:
	case err := <-over:
		if err == nil {
			err = errors.New("measure the run: it ended before every rank had a batch")
		}
		return nil, err
	}
	f := &Figures{Ranks: ranks, Start: time.Since(m.began).Seconds(), CPUs: runtime.NumCPU()}
	err := m.pass(ctx, min(long/5, 5*time.Second), over, func() {})
	if err == nil {
		from = m.look(ctx)
		err = m.pass(ctx, long, over, func() { tell(time.Since(from.at)) })
	}
	if f.Ended = errors.Is(err, errEnded); f.Ended {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	m.conclude(ctx, f, from)
	if !f.Ended {
		stop()
		<-over
	}
	return f, nil
}

// errEnded is the error if the run ends before the time is over.
var errEnded = errors.New("the run ended")

// pass lets the time pass, and notes the counts meanwhile. It returns errEnded if the run ends, and the trainers' error
// if they fail.
func (m *meter) pass(ctx context.Context, long time.Duration, over <-chan error, tell func()) error {
	ends, now := time.After(long), time.NewTicker(keepEvery)
	defer now.Stop()
	for {
		select {
		case <-now.C:
			m.keep(ctx)
			tell()
		case <-ends:
			return nil
		case err := <-over:
			if err == nil {
				err = errEnded
			}
			return err
		}
	}
}

// keepEvery is the pause between two looks at the run's own counts.
const keepEvery = 250 * time.Millisecond

// meter counts the batches of a run and keeps the newest CPU figures of its processes.
type meter struct {
	runDir string
	ranks  int
	began  time.Time
	all    chan struct{} // closed when every rank has a batch

	mu      sync.Mutex
	heard   map[int]bool
	batches uint64
	steps   []time.Time // the ends of rank 0's steps
	newest  look
}

// look has the counts at one moment.
type look struct {
	at      time.Time
	batches uint64
	steps   int
	tokens  uint64 // of the steps below watermark
	below   uint64 // the watermark
	waits   string
	work    map[activityOf]float64 // seconds
	cpu     map[process]time.Duration
	host    time.Duration // of all processes
}

// activityOf is an activity of the processes of one role.
type activityOf struct{ role, kind string }

// process is one process of the run. A restarted one is another.
type process struct {
	role, name string
	pid        int
}

func (m *meter) took(t Taken) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.heard == nil {
		m.heard = map[int]bool{}
	}
	if !m.heard[t.Rank] {
		if m.heard[t.Rank] = true; len(m.heard) == m.ranks {
			close(m.all)
		}
	}
	m.batches++
	if t.Rank == 0 && t.Last {
		m.steps = append(m.steps, t.At)
	}
}

// keep notes the counts of now. A run that ends takes its own figures with it.
func (m *meter) keep(ctx context.Context) {
	if l := m.look(ctx); l.tokens > 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.newest = l
	}
}

// look reads the counts of now.
func (m *meter) look(ctx context.Context) look {
	l := look{cpu: map[process]time.Duration{}, host: hostCPU(), work: map[activityOf]float64{}}
	kinds := map[string]string{} // of processes: their role
	roles, _, err := rundir.Roles(m.runDir)
	if err == nil {
		for _, r := range roles {
			kinds[r.Name] = r.Role
			if used, err := rundir.CPU(r.Pid); err == nil {
				l.cpu[process{r.Role, r.Name, r.Pid}] = used
			}
		}
	}
	if used, err := rundir.CPU(os.Getpid()); err == nil {
		l.cpu[process{role: "trainers"}] = used
	}
	if status, err := rundir.AskStatus(ctx, m.runDir); err == nil {
		l.waits, l.below = status.Waiting, status.Step
		for _, s := range status.Sources {
			l.tokens += s.Tokens
		}
		for _, r := range status.GetDelivery().GetRoles() {
			for _, s := range r.Sources {
				for i, kind := range s.Kind {
					l.work[activityOf{kinds[r.Role], kind}] += s.Seconds[i]
				}
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l.at, l.batches, l.steps = time.Now(), m.batches, len(m.steps)
	return l
}

// conclude fills in the figures of the time since from.
func (m *meter) conclude(ctx context.Context, f *Figures, from look) {
	to := m.look(ctx)
	if to.tokens <= from.tokens { // the run is over, and its processes have left
		m.mu.Lock()
		to = m.newest
		m.mu.Unlock()
	}
	if to.at.IsZero() || !to.at.After(from.at) { // not even one second was measured
		to = m.look(ctx)
	}
	f.Seconds = to.at.Sub(from.at).Seconds()
	f.Batches, f.Steps = to.batches-from.batches, uint64(to.steps-from.steps)
	if to.below > from.below { // the watermark comes later than the batches
		f.Tokens = uint64(float64(to.tokens-from.tokens) / float64(to.below-from.below) * float64(f.Steps))
	}
	f.Busy = (to.host - from.host).Seconds() / f.Seconds
	for p, used := range to.cpu {
		i := slices.IndexFunc(f.Roles, func(r Role) bool { return r.Role == p.role })
		if i < 0 {
			i, f.Roles = len(f.Roles), append(f.Roles, Role{Role: p.role})
		}
		f.Roles[i].Processes++
		f.Roles[i].CPU += (used - from.cpu[p]).Seconds()
	}
	for a, seconds := range to.work {
		if spent := seconds - from.work[a]; spent > 0 {
			f.Activities = append(f.Activities, Activity{Role: a.role, Kind: a.kind, Seconds: spent})
		}
	}
	slices.SortFunc(f.Activities, func(a, b Activity) int {
		return cmp.Or(strings.Compare(a.Role, b.Role), strings.Compare(a.Kind, b.Kind))
	})
	slices.SortFunc(f.Roles, func(a, b Role) int { return strings.Compare(a.Role, b.Role) })
	m.mu.Lock()
	steps := slices.Clone(m.steps[from.steps:to.steps])
	m.mu.Unlock()
	f.fill(steps)
	f.judge(to.waits)
}

// hostCPU returns the CPU time that all processes of this host have used, without idle time.
func hostCPU() (used time.Duration) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, field := range strings.Fields(line) {
		n, err := strconv.ParseInt(field, 10, 64)
		switch i {
		case 1, 2, 3, 6, 7, 8: // user, nice, system, irq, softirq, steal
			if err == nil {
				used += time.Duration(n) * rundir.ClockTick
			}
		}
	}
	return used
}
