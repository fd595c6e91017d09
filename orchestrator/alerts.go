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

// alerts keeps the conditions that people should know of, and the warnings that people were given.
type alerts struct {
	clock  time.Time // of the last tick
	disk   disk
	copies copies
	now    []*pb.Alert
	since  map[string]time.Time // when each condition began, by kind and key
	said   map[string]string    // the warnings that are not over
	warned bool                 // of sources that are not read in the order asked for
}

// condition is something that people should know if it lasts.
type condition struct {
	kind, key, text string
	lasts           time.Duration // before the alert is reported
}

func (c condition) id() string { return c.kind + " " + c.key }

// alertKinds returns the kinds of Alert.
func alertKinds() []string {
	return []string{"disk", "journal", "quarantine", "role", "scale", "source", "starving", "unprotected"}
}

// The journal's disk should have minFree bytes free, or one part in minShare if that is more.
const (
	minFree  = 512 << 20
	minShare = 50
)

// alerting is the next change of the alerts, for people and sidecars.
type alerting struct {
	list  []*pb.Alert
	since map[string]time.Time
	said  map[string]string
	lines []string // for people
}

// decide returns which warnings begin and which are over, nil if nothing has changed.
func (a *alerts) decide(conditions []condition) *alerting {
	d := &alerting{since: map[string]time.Time{}, said: map[string]string{}}
	for _, c := range conditions {
		key := c.id()
		if d.since[key] = a.since[key]; d.since[key].IsZero() {
			d.since[key] = a.clock
		}
		if a.clock.Sub(d.since[key]) < c.lasts {
			continue
		}
		d.list = append(d.list, &pb.Alert{Kind: c.kind, Text: c.text, Since: d.since[key].UnixMilli()})
		if d.said[key] = a.said[key]; d.said[key] == "" { // a number in it that grows is no new warning
			d.said[key] = c.text
			d.lines = append(d.lines, "warning: "+c.text)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.said)) {
		if d.said[key] == "" {
			d.lines = append(d.lines, "over: "+a.said[key])
		}
	}
	if len(d.lines) == 0 && maps.Equal(d.since, a.since) && !a.differs(d.list) {
		return nil
	}
	return d
}

func (a *alerts) differs(list []*pb.Alert) bool {
	return !slices.EqualFunc(list, a.now, func(x, y *pb.Alert) bool { return proto.Equal(x, y) })
}

// settle takes up a change and prints its lines. It reports whether the list of alerts changed.
func (a *alerts) settle(d *alerting, out *roster.Actions) (changed bool) {
	for _, line := range d.lines {
		out.Say("%s", line)
	}
	changed = a.differs(d.list)
	a.since, a.said = d.since, d.said
	if changed {
		a.now = d.list
	}
	return changed
}

func (a *alerts) order() *pb.SidecarOrder {
	return &pb.SidecarOrder{Order: &pb.SidecarOrder_Alerts{Alerts: &pb.Alerts{Alerts: a.now}}}
}

// disk is the room of the journal's disk in bytes; total is 0 if it is not known.
type disk struct{ free, total uint64 }

// lowSpace returns the condition that the journal's disk is nearly full, if it is.
func (a *alerts) lowSpace() (out []condition) {
	if low := max(uint64(minFree), a.disk.total/minShare); a.disk.total > 0 && a.disk.free < low {
		text := fmt.Sprintf("the journal's disk has less than %d MiB free: make room, or the run waits when it is full",
			low>>20)
		out = append(out, condition{"disk", "", text, 0})
	}
	return out
}

// copies reports whether the journal has copies on other hosts.
type copies struct {
	host    string // of this orchestrator
	isAlone bool
}

// aloneFor is the time after which the orchestrator reports that the journal has no copy: a follower begins sooner.
const aloneFor = 2 * time.Second

// oneCopy returns the condition that the journal has one copy alone, if it has.
func (a *alerts) oneCopy() (out []condition) {
	if a.copies.isAlone {
		text := fmt.Sprintf("journal: one copy alone, on %s: if that host is lost, start a new run directory from "+
			"a saved state", a.copies.host)
		out = append(out, condition{"journal", "", text, aloneFor})
	}
	return out
}

// warnShuffle says which sources are not read in the order that was asked for. It comes once.
func (a *alerts) warnShuffle(manifests map[string]*pb.Manifest, out *roster.Actions) {
	a.warned = true
	for _, name := range slices.Sorted(maps.Keys(manifests)) {
		if why := manifests[name].Why; why != "" {
			out.Say("warning: source %s is shuffled in blocks, not globally: %s; "+
				"`seekable_copies: true` gives its files copies for global order, `shuffle: blocks` accepts blocks",
				name, why)
		}
	}
}
