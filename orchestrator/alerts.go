package orchestrator

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "millrace/proto"
)

// condition is something that the run lacks, if it lasts.
type condition struct {
	kind, key, text string
	lasts           time.Duration // before it is said
}

// alertKinds are the kinds of Alert.
func alertKinds() []string { return []string{"disk", "quarantine", "role", "source", "unprotected"} }

// minFree and minShare are what the journal's disk has free at least: so many bytes, or one part in so many where that is more.
const (
	minFree  = 512 << 20
	minShare = 50
)

// Tick observes the time. It comes several times a second.
func (m *Machine) Tick(now time.Time) {
	if m.now = now; m.began.IsZero() {
		m.began = now
	}
	m.unsettled = true // who was waited for may have been away for too long
}

// Disk observes what the journal's disk has free, and holds, in bytes.
func (m *Machine) Disk(free, total uint64) { m.diskFree, m.diskTotal = free, total }

// conditions lists what the run lacks now, by kind and key.
func (m *Machine) conditions() (out []condition) {
	if low := max(uint64(minFree), m.diskTotal/minShare); m.diskTotal > 0 && m.diskFree < low {
		out = append(out, condition{"disk", "", fmt.Sprintf("the journal's disk has less than %d MiB free: make room, or the run fails when it is full", low>>20), 0})
	}
	for i := range m.cfg.Sources {
		name := m.cfg.Sources[i].Name
		n := m.s.Quarantined[name]
		counted, records := m.records(name, uint64(m.queues[i].First()))
		if allowed := m.cfg.Sources[i].Allowed(counted, records); n > 0 && n >= allowed-allowed/5 {
			out = append(out, condition{"quarantine", name, fmt.Sprintf("source %s: %d records could not be decoded, its quarantine budget takes %d", name, n, allowed), 0})
		}
	}
	seen := map[string]bool{}
	for _, st := range m.stripes {
		if m.members[st.home] == nil && !seen[st.home] {
			seen[st.home] = true
			out = append(out, condition{"role", st.home, st.home + " is not there; it is being restarted", absence})
		}
	}
	for _, name := range sortedKeys(m.members) {
		for _, source := range sortedKeys(m.members[name].trouble) {
			out = append(out, condition{"source", source + " " + name, fmt.Sprintf("source %s cannot be read by %s for now: %s", source, name, m.members[name].trouble[source]), 0})
		}
	}
	if m.cfg.Shadows > 0 && m.pinned() && m.unprotected(-1) > 0 {
		out = append(out, condition{"unprotected", "", "no shadow could take over at once for some of what is read: if its loader dies now, training may wait for a restart", absence})
	}
	return out
}

// tellAlerts tells people, on lines, what begins and ends to lack, and every sidecar the whole of it, where that has changed.
func (m *Machine) tellAlerts() {
	since, said := map[string]time.Time{}, map[string]string{}
	var now []*pb.Alert
	for _, c := range m.conditions() {
		key := c.kind + " " + c.key
		if since[key] = m.since[key]; since[key].IsZero() {
			since[key] = m.now
		}
		if m.now.Sub(since[key]) >= c.lasts {
			now = append(now, &pb.Alert{Kind: c.kind, Text: c.text, Since: since[key].UnixMilli()})
			if said[key] = m.said[key]; said[key] == "" { // a number in it that grows is no new warning
				said[key] = c.text
				m.out = append(m.out, Action{Line: "warning: " + c.text})
			}
		}
	}
	for _, key := range sortedKeys(m.said) {
		if said[key] == "" {
			m.out = append(m.out, Action{Line: "over: " + m.said[key]})
		}
	}
	m.since, m.said = since, said
	if !slices.EqualFunc(now, m.alerts, func(a, b *pb.Alert) bool { return proto.Equal(a, b) }) {
		m.alerts = now
		m.broadcast(m.alertsOrder())
	}
}

func (m *Machine) alertsOrder() *pb.SidecarOrder {
	return &pb.SidecarOrder{Fence: m.fence(), Order: &pb.SidecarOrder_Alerts{Alerts: &pb.Alerts{Alerts: m.alerts}}}
}
