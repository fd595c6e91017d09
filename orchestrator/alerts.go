package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"millrace/orchestrator/roster"
	pb "millrace/proto"
)

// alerts are the conditions that people should know of, and what people were told of them.
type alerts struct {
	now   []*pb.Alert
	since map[string]time.Time // when each condition began, by kind and key
	said  map[string]string    // the warnings that are not over
}

// condition is something that people should know if it lasts.
type condition struct {
	kind, key, text string
	lasts           time.Duration // before people are told
}

func (c condition) id() string { return c.kind + " " + c.key }

// alertKinds returns the kinds of Alert.
func alertKinds() []string { return []string{"disk", "quarantine", "role", "source", "unprotected"} }

// The journal's disk should have minFree bytes free, or one part in minShare if that is more.
const (
	minFree  = 512 << 20
	minShare = 50
)

// update takes the conditions of now. It says which warnings begin and which are over, and returns whether the list of alerts changed.
func (a *alerts) update(now time.Time, conditions []condition, out *roster.Actions) (changed bool) {
	since, said := map[string]time.Time{}, map[string]string{}
	var list []*pb.Alert
	for _, c := range conditions {
		key := c.id()
		if since[key] = a.since[key]; since[key].IsZero() {
			since[key] = now
		}
		if now.Sub(since[key]) < c.lasts {
			continue
		}
		list = append(list, &pb.Alert{Kind: c.kind, Text: c.text, Since: since[key].UnixMilli()})
		if said[key] = a.said[key]; said[key] == "" { // a number in it that grows is no new warning
			said[key] = c.text
			out.Say("warning: %s", c.text)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.said)) {
		if said[key] == "" {
			out.Say("over: %s", a.said[key])
		}
	}
	changed = !slices.EqualFunc(list, a.now, func(x, y *pb.Alert) bool { return proto.Equal(x, y) })
	if changed {
		a.now = list
	}
	a.since, a.said = since, said
	return changed
}

func (a *alerts) order() *pb.SidecarOrder {
	return &pb.SidecarOrder{Order: &pb.SidecarOrder_Alerts{Alerts: &pb.Alerts{Alerts: a.now}}}
}

// disk is the room of the journal's disk in bytes; total is 0 if it is not known.
type disk struct{ free, total uint64 }

// Tick observes the time. It comes several times a second.
func (m *Machine) Tick(now time.Time) {
	m.now = now
	m.roster.Tick(now)
}

// Disk observes the room of the journal's disk, in bytes.
func (m *Machine) Disk(free, total uint64) { m.disk = disk{free, total} }

// conditions lists the conditions of now, by kind and key.
func (m *Machine) conditions() (out []condition) {
	if low := max(uint64(minFree), m.disk.total/minShare); m.disk.total > 0 && m.disk.free < low {
		out = append(out, condition{"disk", "", fmt.Sprintf("the journal's disk has less than %d MiB free: make room, or the run waits when it is full", low>>20), 0})
	}
	for i := range m.cfg.Sources {
		name := m.cfg.Sources[i].Name
		n := m.s.Quarantined[name]
		counted, records := m.records(name, uint64(m.queues[i].First()))
		if allowed := m.cfg.Sources[i].Allowed(counted, records); n > 0 && n >= allowed-allowed/5 {
			out = append(out, condition{"quarantine", name, fmt.Sprintf("source %s: %d records could not be decoded, its quarantine budget takes %d", name, n, allowed), 0})
		}
	}
	for _, owner := range m.roster.AbsentOwners() {
		out = append(out, condition{"role", owner, owner + " is not there; it is being restarted", roster.Absence})
	}
	for _, t := range m.roster.Troubles() {
		out = append(out, condition{"source", t.Source + " " + t.Member, fmt.Sprintf("source %s cannot be read by %s for now: %s", t.Source, t.Member, t.Text), 0})
	}
	if m.cfg.Shadows > 0 && m.pinned() && m.roster.Unprotected(roster.AllSources) > 0 {
		out = append(out, condition{"unprotected", "", "no shadow could take over at once for some of what is read: if its loader dies now, training may wait for a restart", roster.Absence})
	}
	return out
}

// tellAlerts tells people and sidecars which conditions begin and end.
func (m *Machine) tellAlerts() {
	if m.alerts.update(m.now, m.conditions(), m.out) {
		m.sidecars.Broadcast(m.alerts.order())
	}
}

// warnShuffle says once which sources are not read in the order that was asked for.
func (m *Machine) warnShuffle() {
	if m.warned || !m.pinned() {
		return
	}
	m.warned = true
	for _, name := range slices.Sorted(maps.Keys(m.s.Manifests)) {
		if why := m.s.Manifests[name].Why; why != "" {
			m.out.Say("warning: source %s is shuffled in blocks, not globally: %s; "+
				"compress its files in blocks (bgzip, seekable zstd), or ask for shuffle: blocks", name, why)
		}
	}
}
