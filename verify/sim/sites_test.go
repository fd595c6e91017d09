package sim

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"millrace/checkpoint"
	"millrace/checkpoint/disk/disktest"
	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/orchestrator"
	"millrace/orchestrator/follow"
	"millrace/verify/sim/election"
	"millrace/verify/sim/memnet"
)

// candidates is the most candidates for the lead. They are on the first hosts.
const candidates = 3

// leaseTime is the life of the lease in etcd after a renewal, as by default.
const leaseTime = 5 * time.Second

// etcdName is the name of etcd in the network.
const etcdName = "etcd"

// site is one of several hosts, with one `up`. A lost host comes back with another `up`.
type site struct {
	number int
	boot   time.Duration // of its boot clock, which no other host has

	mu     sync.Mutex
	lives  int
	downTo time.Time // a lost host comes back then
}

// String returns the name of the host; "" if the run has one.
func (h *site) String() string {
	if h == nil {
		return ""
	}
	return fmt.Sprintf("host-%d", h.number)
}

func (h *site) up() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("up %d of %s", h.lives, h)
}

// isUp waits until the host is there. It returns false if ctx ends first.
func (h *site) isUp(ctx context.Context) bool {
	if h == nil {
		return true
	}
	for {
		h.mu.Lock()
		wait := time.Until(h.downTo)
		h.mu.Unlock()
		if wait <= 0 {
			return ctx.Err() == nil
		}
		if !rest(ctx, wait) {
			return false
		}
	}
}

// spread gives the world several hosts and etcd.
func (w *world) spread() {
	w.etcd, w.disks = election.New(), map[string]*runDisk{}
	w.etcd.Slow(w.script.Weather.Latency / 4)
	for i := range w.script.Hosts {
		w.sites = append(w.sites, &site{number: i, boot: time.Duration(i*i+1) * time.Hour})
	}
	for _, name := range w.load.slots(w.script.Hosts, 0) {
		if isOrchestrator(name) {
			w.disks[name] = &runDisk{disk: disktest.NewMemory()}
		}
	}
	w.net.Near(func(a, b string) bool { return w.siteOf(a) == w.siteOf(b) })
	w.saw(fmt.Sprintf("hosts: %d", w.script.Hosts))
}

// siteOf returns the host of a slot; nil if the run has one. Shadows are on other hosts than the loaders with their
// numbers.
func (w *world) siteOf(slot string) *site {
	if w.sites == nil {
		return nil
	}
	role, digits, _ := strings.Cut(slot, "-")
	number, err := strconv.Atoi(digits)
	if err != nil {
		return nil // etcd
	}
	if role == shadowName {
		number++
	}
	return w.sites[number%len(w.sites)]
}

// isOrchestrator reports whether a slot is the orchestrator's, or a candidate's.
func isOrchestrator(slot string) bool { return strings.HasPrefix(slot, orchestratorName) }

// resolve returns the slot that leads for the name of the orchestrator; the first candidate's if none leads.
func (w *world) resolve(slot string) string {
	if w.etcd == nil || slot != orchestratorName {
		return slot
	}
	leader, _, _ := strings.Cut(w.etcd.Leader(), ":")
	if leader == "" {
		leader = orchestratorName + "-0"
	}
	return leader
}

// listensAt returns the address of an orchestrator.
func (w *world) listensAt(p *process) string {
	if w.etcd == nil {
		return p.slot
	}
	return p.slot + ":7100"
}

// remote returns the address of a loader for other hosts; "" if there are none.
func (w *world) remote(p *process) string {
	if w.etcd == nil {
		return ""
	}
	return fmt.Sprintf("%s.%d:7200", p.slot, p.life)
}

// newestDisk returns the disk of the orchestrator with the highest term.
func (w *world) newestDisk() *runDisk {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.disk
}

// network is the network of a role. It finds the leader anew at each dial.
func (w *world) network(p *process) seam.Net {
	if w.etcd == nil {
		return p.host
	}
	return &roads{Host: p.host, w: w, p: p, etcd: w.candidate(p, nil)}
}

// roads is a host's network that knows the way to the leader. While etcd does not answer, it is the way to the last
// leader. Paths, which are addresses without a port, lead nowhere on other hosts.
type roads struct {
	*memnet.Host
	w    *world
	p    *process
	etcd *election.Candidate
	mu   sync.Mutex
	last string
}

var errNoLeader = errors.New("no host plans the run now")

// Dial implements seam.Net.
func (r *roads) Dial(ctx context.Context, address string) (net.Conn, error) {
	if address == orchestratorName {
		leader, err := r.etcd.Leader(ctx)
		r.mu.Lock()
		if err == nil {
			r.last = leader
		}
		address = r.last
		r.mu.Unlock()
		if address == "" {
			return nil, errNoLeader
		}
	}
	if slot, _, _ := strings.Cut(address, "."); !strings.Contains(address, ":") && r.w.siteOf(slot) != r.p.site {
		r.w.fail("paths stay on their host", "%s of %s dials %s", r.p.slot, r.p.site, address)
	}
	return r.Host.Dial(ctx, address)
}

// candidate returns a client of etcd.
func (w *world) candidate(p *process, journal *follow.Follower) *election.Candidate {
	return w.etcd.Candidate(
		election.Config{
			Line:    p.up,
			Address: w.listensAt(p),
			TTL:     leaseTime,
			Clock:   p.clock,
			Journal: journal,
			Ask:     func(ctx context.Context) error { return p.host.Ask(ctx, etcdName) },
			Answer:  func(ctx context.Context) error { return p.host.Answer(ctx, etcdName) },
		},
	)
}

// stand starts a candidate. It follows the leader's journal until it is elected.
func (w *world) stand(p *process) (func(context.Context) error, func(), error) {
	journal := w.journal(p, w.disks[p.slot])
	f := follow.New(follow.Config{Journal: journal, Version: version(), Host: p.site.String(), Identity: rand.Text(),
		Clock: steady{p.clock}, Dial: w.dialLeader(p)})
	var store *checkpoint.Store
	run := func(ctx context.Context) error {
		// The lease outlives ctx, for the last snapshot.
		alive, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		granted := context.AfterFunc(ctx, end)
		grant, err := follow.Elect(alive, w.candidate(p, f), f)
		copies := w.etcd.Journals()
		if err != nil {
			return withoutCancel(ctx, err)
		}
		defer grant.Release()
		if store, err = checkpoint.Open(journal); err != nil {
			return withoutCancel(ctx, err)
		}
		config := w.load.config
		config.Host = p.site.String()
		serve, err := w.lead(alive, p, config, orchestrator.Options{Store: store, Lines: io.Discard,
			Snapshots: snapshots, Leaser: grant, Clock: steady{p.clock}, Places: &follow.Places{}})
		if !granted() || err != nil {
			return withoutCancel(ctx, err)
		}
		w.follows(copies)
		return serve(ctx)
	}
	return run, func() {
		if store != nil {
			w.closeJournal(p, store)
		}
	}, nil
}

// follows counts an election after the first, and whether several copies of the journal were in step before it.
func (w *world) follows(copies int) {
	if copies > 0 {
		w.saw("elected again")
	}
	if copies > 1 {
		w.saw("elected of several copies")
	}
}

// withoutCancel returns nil for the error of work that was asked to end.
func withoutCancel(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// dialLeader connects a follower to the leader of the moment.
func (w *world) dialLeader(p *process) follow.Dial {
	return func(context.Context) (*grpc.ClientConn, error) {
		return grpc.NewClient(secure.Target,
			(*secure.Credentials)(nil).Client(w.network(p), orchestratorName, secure.Orchestrator)...)
	}
}

// steady is a process's clock whose time does not jump, as time without a wall clock does not.
type steady struct{ *clock }

// Now implements seam.Clock.
func (steady) Now() time.Time { return time.Now() }

// dismiss lets no candidate stand again: the run is complete, and all hosts learn that.
func (w *world) dismiss() {
	for _, s := range w.slots {
		if !isOrchestrator(s.name) {
			continue
		}
		s.mu.Lock()
		s.stopped = true
		p := s.now
		s.mu.Unlock()
		if w.etcd != nil && p != nil {
			p.cancel()
		}
	}
}

// lose plays the loss of a host: all its processes vanish at once, its trainers too. It comes back later with another
// `up`. All ranks begin again, as a launcher of several hosts makes them.
func (w *world) lose(h *site, f *fault) {
	if w.trains(h) {
		w.bereave()
	}
	h.mu.Lock()
	h.lives++
	h.downTo = time.Now().Add(f.For)
	h.mu.Unlock()
	w.mu.Lock()
	w.unsynced = f.Size
	w.mu.Unlock()
	for _, s := range w.slots {
		if w.siteOf(s.name) != h {
			continue
		}
		if p := s.process(); p != nil {
			p.kill(again, f.For)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bereft && w.kill != nil {
		w.kill()
	}
}

// trains reports whether a host has trainers.
func (w *world) trains(h *site) bool {
	return slices.ContainsFunc(w.slots, func(s *slot) bool {
		return strings.HasPrefix(s.name, "sidecar") && w.siteOf(s.name) == h
	})
}

// withoutTrainers returns a host without trainers: the leader's, if number is even and it has none. nil: all have some.
func (w *world) withoutTrainers(number int) *site {
	leads := w.siteOf(w.resolve(orchestratorName))
	if leads != nil && number%2 == 0 && !w.trains(leads) {
		return leads
	}
	for i := range w.sites {
		if h := w.sites[(i+number)%len(w.sites)]; !w.trains(h) {
			return h
		}
	}
	return nil
}

// bereave prepares the loss of a host with trainers. They begin by themselves if they do not run now.
func (w *world) bereave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bereft = w.kill != nil
}

// begins reports whether the trainers were killed with their host, and are to begin again.
func (w *world) begins() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.bereft
	w.bereft = false
	return was
}

// again returns the phase after a loss of the trainers.
func (ph phase) again() phase {
	ph.Start, ph.Back, ph.Kill = "latest", 0, 0
	return ph
}

// cutOff holds all bytes between a host and the others, in one direction or both.
func (w *world) cutOff(h *site, out, in bool) (repair func()) {
	var releases []func()
	var names []string
	for _, s := range w.slots {
		names = append(names, s.name)
	}
	names = append(names, etcdName)
	for _, here := range names {
		for _, there := range names {
			if w.siteOf(here) != h || w.siteOf(there) == h {
				continue
			}
			if out {
				releases = append(releases, w.net.Hold(here, there))
			}
			if in {
				releases = append(releases, w.net.Hold(there, here))
			}
		}
	}
	return func() {
		for _, release := range slices.Backward(releases) {
			release()
		}
	}
}
