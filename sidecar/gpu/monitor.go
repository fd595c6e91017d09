package gpu

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"millrace"
	"millrace/internal/seam"
	"millrace/sidecar"
)

// every is the pause between two samples.
const every = time.Second

// Config describes a monitor. All fields are required.
type Config struct {
	Open   func() (Library, error)
	Clock  seam.Clock
	Log    *slog.Logger
	Report func([]Figures) // called after each sample if a trainer is connected, and when the last one has left
}

// Figures describe the GPU of one rank.
type Figures struct {
	Rank      millrace.Rank
	Device    Device
	Lacks     string // why the rank's GPU is unknown; the fields below and Device are then empty
	Near      string // the allowed CPUs near the GPU, such as 0-15,32
	Sample    Sample
	IdleData  float64 // seconds in which the GPU was idle while the trainer waited for data, at most
	IdleOther float64 // other seconds in which the GPU was idle
}

// Monitor watches the GPUs of the connected ranks. It implements sidecar.Watcher.
type Monitor struct {
	cfg Config

	mu      sync.Mutex
	seats   map[millrace.Rank]*seat
	changed bool // a trainer came or left since the last sample
}

var _ sidecar.Watcher = (*Monitor)(nil)

// New returns a monitor that does nothing before Run.
func New(c Config) *Monitor { return &Monitor{cfg: c, seats: map[millrace.Rank]*seat{}} }

// Arrived implements sidecar.Watcher.
func (m *Monitor) Arrived(rank millrace.Rank, number int, at sidecar.Seat) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seats[rank], m.changed = &seat{number: number, at: at}, true
}

// Waited implements sidecar.Watcher.
func (m *Monitor) Waited(rank millrace.Rank, total time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.seats[rank]; s != nil {
		s.waited(total)
	}
}

// Left implements sidecar.Watcher.
func (m *Monitor) Left(rank millrace.Rank) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seats, rank)
	m.changed = true
}

// Run samples until ctx ends. Without a driver it says so once and returns.
func (m *Monitor) Run(ctx context.Context) {
	library, err := m.cfg.Open()
	if err != nil {
		m.cfg.Log.Info("GPUs are not watched", "reason", err)
		return
	}
	defer library.Close()
	devices, err := library.Devices()
	if err != nil || len(devices) == 0 {
		m.cfg.Log.Info("GPUs are not watched", "gpus", len(devices), "reason", err)
		return
	}
	host := &host{library: library, devices: devices, log: m.cfg.Log}
	if host.allowed, err = allowedCPUs(); err != nil {
		m.cfg.Log.Warn("this process is not kept near its GPUs", "reason", err)
	}
	last := m.cfg.Clock.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.cfg.Clock.After(every):
		}
		now := m.cfg.Clock.Now()
		m.look(host, now.Sub(last))
		last = now
	}
}

// look takes one sample of every rank's GPU, passed after the sample before.
func (m *Monitor) look(h *host, passed time.Duration) {
	used, changed := m.assign(h)
	if changed {
		h.stayNear(used)
	}
	samples := map[string]Sample{}
	for _, d := range used {
		if _, known := samples[d.UUID]; !known {
			samples[d.UUID] = h.sample(d)
		}
	}
	if len(used) > 0 || changed {
		m.cfg.Report(m.account(h, samples, passed))
	}
}

// assign finds the GPU of each new trainer. It returns the GPUs in use by rank, and whether trainers came or left.
func (m *Monitor) assign(h *host) (used []Device, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, rank := range slices.Sorted(maps.Keys(m.seats)) {
		s := m.seats[rank]
		if s.device.UUID == "" && s.lacks == "" {
			var err error
			if s.device, err = choose(h.devices, s.at, s.number); err != nil {
				s.lacks = err.Error()
				m.cfg.Log.Info("the GPU of a rank is unknown", "rank", rank, "reason", err)
			}
		}
		if s.lacks == "" {
			used = append(used, s.device)
		}
	}
	changed, m.changed = m.changed, false
	return used, changed
}

// account adds samples to the figures of the ranks and returns all figures.
func (m *Monitor) account(h *host, samples map[string]Sample, passed time.Duration) []Figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Figures
	for _, rank := range slices.Sorted(maps.Keys(m.seats)) {
		s := m.seats[rank]
		f := Figures{Rank: rank, Device: s.device, Lacks: s.lacks}
		if sample, ok := samples[s.device.UUID]; ok {
			s.account(sample, passed)
			f.Sample, f.Near = sample, ranges(nearest(h.allowed, []Device{s.device}))
			f.IdleData, f.IdleOther = s.idleData.Seconds(), s.idleOther.Seconds()
			s.tell(m.cfg.Log.With("rank", rank, "gpu", s.device.Index), sample, passed)
		}
		out = append(out, f)
	}
	return out
}

// host has the GPUs of this host, and the CPUs on which this process may run.
type host struct {
	library Library
	devices []Device
	allowed []int // empty: unknown
	near    []int // this process was moved to them
	log     *slog.Logger
	failed  string // the newest reason of a failed sample
}

// sample measures a device. It logs each reason of a failure once.
func (h *host) sample(d Device) Sample {
	s, err := h.library.Sample(d.UUID)
	if err != nil && err.Error() != h.failed {
		h.failed = err.Error()
		h.log.Warn("a GPU cannot be sampled", "gpu", d.Index, "reason", err)
	}
	return s
}

// stayNear keeps this process on the allowed CPUs near the devices in use. Memory for the ranks is then also near.
func (h *host) stayNear(used []Device) {
	near := nearest(h.allowed, used)
	if len(used) == 0 || len(near) == 0 || slices.Equal(near, h.near) || h.near == nil && len(near) == len(h.allowed) {
		return
	}
	h.near = near
	if err := pin(near); err != nil {
		h.log.Warn("this process is not kept near its GPUs", "reason", err)
		return
	}
	h.log.Info("this process stays near its GPUs", "cpus", ranges(near))
}
