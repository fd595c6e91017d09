package link

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"millrace"
	"millrace/internal/arena"
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
	"millrace/sidecar/link/watch"
	"millrace/sidecar/retrieve"
)

// directory has the sources of the run, and the loader and standby of each stripe.
type directory struct {
	orchestrator string // address
	here         string // the `up` of this process
	fail         *failpoint.Set
	log          *slog.Logger
	up           *uplink
	conns        *connections
	watch        *watch.Watcher
	pool         *arena.Pool
	asks         func() bool // this host asks loaders, not only if another host fails

	condition
	sources []sidecar.SourceNames
	stripes map[string]uint32 // of a source, once a directory has named one
	routes  map[stripeKey]*route
	paces   map[string]*pace // by the address of a loader that a route names
}

// adopt stores the sources of the run.
func (d *directory) adopt(manifests []*proto.Manifest) {
	var sources []sidecar.SourceNames
	for _, m := range manifests {
		sources = append(sources, sidecar.SourceNames{Name: m.Source, Shards: wire.ShardNames(m)})
	}
	d.update(func() { d.sources = sources })
}

// sourceNames returns the names of the run's sources and their shards. The caller must not change them.
func (d *directory) sourceNames() []sidecar.SourceNames {
	d.Lock()
	defer d.Unlock()
	return d.sources
}

// load applies a directory of the orchestrator, or its news. A host that asks loaders connects to standbys at once, so
// that a switch needs no dial. It closes the connections to processes that the directory does not name.
func (d *directory) load(list *proto.Loaders) error {
	d.Lock()
	defer d.Unlock()
	defer d.wake()
	d.fail.Hit("sidecar/directory/before")
	named := map[stripeKey]*proto.LoaderStripe{}
	for _, s := range list.Stripes {
		if s.Stripes == 0 {
			return millrace.Errorf(millrace.ErrInvalid, "directory of loaders: source %s has no stripes", s.Source)
		}
		key := stripeKey{s.Source, s.Stripe}
		if named[key] = s; s.Name == "" {
			named[key] = nil
		}
		if d.routes[key] == nil {
			d.routes[key] = &route{}
		}
		d.stripes[s.Source] = s.Stripes
	}
	if !list.News {
		for key := range d.routes {
			if named[key] == nil {
				named[key] = nil // the directory does not name it
			}
		}
	}
	for key, s := range named {
		r := d.routes[key]
		before := r.names()
		r.follow(s, d.here)
		if now := r.names(); now != before {
			d.record("directed", -1, key, now, r.term())
		}
	}
	d.connect()
	d.fail.Hit("sidecar/directory/after")
	return nil
}

// connect opens connections to all named loaders if this host asks them. It closes the connections to all others, and
// their heartbeat pages if no request is in flight. The caller holds the lock.
func (d *directory) connect() {
	paces := map[string]*pace{}
	for _, r := range d.routes {
		for _, m := range []*retrieve.Loader{r.using, r.standby} {
			if m != nil && paces[m.Address] == nil {
				paces[m.Address] = cmp.Or(d.paces[m.Address], newPace())
			}
		}
	}
	d.paces = paces
	addresses := slices.Sorted(maps.Keys(paces))
	d.conns.keepOnly(append(addresses, d.orchestrator))
	d.watch.Retain(addresses)
	d.pool.KeepOnly(addresses)
	if !d.asks() {
		return
	}
	for _, address := range addresses {
		if conn, err := d.conns.dial(address); err == nil {
			conn.Connect()
		}
	}
}

// stripesOf returns the number of stripes of a source, or 0 before a directory has named one of them.
func (d *directory) stripesOf(source string) uint32 {
	d.Lock()
	defer d.Unlock()
	return d.stripes[source]
}

// changes returns a channel that is closed when the directory changes.
func (d *directory) changes() <-chan struct{} {
	d.Lock()
	defer d.Unlock()
	return d.changed
}

// name sets the loaders and standbys of portions. A missing loader or standby is nil.
func (d *directory) name(portions []*portion) {
	d.Lock()
	defer d.Unlock()
	for _, p := range portions {
		p.using, p.spare = nil, nil
		if r := d.routes[p.key]; r != nil {
			p.using, p.spare = r.using, r.spare()
		}
	}
}

// shardName returns the name of a shard for messages, or "?" if the manifest lacks the shard.
func (d *directory) shardName(source, shard uint32) string {
	d.Lock()
	defer d.Unlock()
	if names := d.sources[source].Shards; int(shard) < len(names) {
		return names[shard]
	}
	return "?"
}

// failOver switches a stripe from a loader to its standby and reports the switch to the orchestrator. It returns true
// if the stripe now has another loader.
func (d *directory) failOver(key stripeKey, from *retrieve.Loader, step millrace.Step, why string) bool {
	d.Lock()
	defer d.Unlock()
	r := d.routes[key]
	if r == nil || r.using != from {
		return r != nil && r.using != nil
	}
	to := r.spare()
	if to == nil {
		return false
	}
	d.fail.Hit("sidecar/switch/before")
	d.turn(r, &proto.Switched{
		Source: key.source, Stripe: key.stripe, Term: to.Term, Step: uint64(step),
		Reason: fmt.Sprintf("%s: %s", from.Name, why),
	})
	d.fail.Hit("sidecar/switch/after")
	return true
}

// join follows a switch of another host, which found the loader dead or silent. It is reported, too: the other host may
// have been lost before the orchestrator noted its report.
func (d *directory) join(s *proto.Switched) {
	d.Lock()
	defer d.Unlock()
	if r := d.routes[stripeKey{s.Source, s.Stripe}]; r != nil {
		if to := r.spare(); to != nil && to.Term == s.Term {
			d.turn(r, s)
		}
	}
}

// starve notes which hosts give their loaders too little processor time. Their silence counts later.
func (d *directory) starve(s *proto.Starved) {
	hosts := map[string]time.Duration{}
	for _, h := range s.Hosts {
		hosts[h.Up] = time.Duration(h.DelayMs) * time.Millisecond
	}
	d.watch.Starve(hosts)
}

// turn switches a stripe to its standby, and reports the switch. The caller holds the lock.
func (d *directory) turn(r *route, s *proto.Switched) {
	from, to := r.using, r.spare()
	r.using, r.standby, r.switched = to, nil, s
	d.log.Warn("a loader was replaced by its standby", "source", s.Source, "stripe", s.Stripe, "step", s.Step,
		"loader", from.Name, "standby", to.Name, "reason", s.Reason)
	d.record("switched", int64(s.Step), stripeKey{s.Source, s.Stripe}, to.Name, to.Term)
	d.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Switched{Switched: s}})
	d.wake()
}

// repeatSwitches reports to a new orchestrator all switches that no directory has shown yet.
func (d *directory) repeatSwitches() {
	d.Lock()
	defer d.Unlock()
	for _, r := range d.routes {
		if r.switched != nil {
			d.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Switched{Switched: r.switched}})
		}
	}
}

// record writes an entry about a stripe to the event log.
func (d *directory) record(what string, step int64, key stripeKey, who string, term uint64) {
	text := fmt.Sprintf("%s %d %s", key.source, key.stripe, who)
	d.up.record(event.Record{Event: what, Step: step, Key: text, Term: term})
}

// hasSwitched reports whether this host has switched a stripe and no directory has shown it yet.
func (d *directory) hasSwitched(key stripeKey) bool {
	d.Lock()
	defer d.Unlock()
	r := d.routes[key]
	return r != nil && r.switched != nil
}

// noteReply records in the event log the first rows from a stripe's loader under a term.
func (d *directory) noteReply(key stripeKey, m *retrieve.Loader, step millrace.Step) {
	d.Lock()
	defer d.Unlock()
	if r := d.routes[key]; r != nil && r.rowTerm < m.Term {
		r.rowTerm = m.Term
		d.record("heard", int64(step), key, m.Name, m.Term)
	}
}

// lateAfter returns the time after which a reply of a loader process is late. It returns 0 before the process has
// answered paceKnown requests.
func (d *directory) lateAfter(address string) time.Duration {
	d.Lock()
	defer d.Unlock()
	if p := d.paces[address]; p != nil {
		return p.late()
	}
	return 0
}

// noteTime counts a request to a loader process and records the time to its first reply.
func (d *directory) noteTime(address string, took time.Duration) {
	d.Lock()
	defer d.Unlock()
	if p := d.paces[address]; p != nil {
		p.earn()
		p.note(took)
	}
}

// payHedge takes the price of a hedge from a loader's credits. It returns false if they are too few.
func (d *directory) payHedge(address string) bool {
	d.Lock()
	defer d.Unlock()
	p := d.paces[address]
	return p != nil && p.spend()
}
