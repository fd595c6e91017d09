// Package figures gathers the measurements of the roles: how long trainers wait for data, and which activity takes the
// time. Status, metrics and an alert show them. No decision depends on them.
package figures

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"millrace/internal/activity"
	"millrace/internal/wire"
	pb "millrace/proto"
)

const (
	lately    = time.Minute      // over which waits are compared with time
	every     = 2 * time.Second  // between two marks
	gone      = 10 * time.Second // after which the figures of a silent role are not current
	longWait  = 1.0              // seconds from which on the cause of a wait is the slowest activity
	causeKept = 10 * time.Second // the slowest activity of a long wait is named for so long after it
)

// Board holds the newest figures of each role. The orchestrator's loop owns it.
type Board struct {
	now    time.Time
	roles  map[string]*role
	ranks  map[uint32]*rank
	cause  *pb.Activity // of the newest long wait
	caused time.Time
	steps  steps
	hungry string // the text of the open alert that trainers starve
	work   work
}

// Keep forgets the figures of all ranks but the first ones.
func (b *Board) Keep(ranks uint32) {
	maps.DeleteFunc(b.ranks, func(number uint32, _ *rank) bool { return number >= ranks })
}

// New returns an empty board for a number of data-parallel ranks.
func New() *Board {
	return &Board{roles: map[string]*role{}, ranks: map[uint32]*rank{}, steps: newSteps(), work: newWork()}
}

// role is one process. A process with the same name replaces it.
type role struct {
	name      string
	pid       int64
	seen      time.Time
	wall, cpu time.Duration
	sources   map[string]*pb.SourceFigures
	supply    *pb.Supply // nil: it is no sidecar
	marks     []roleMark
	lanes     uint32 // work that a loader does at once; 0: it reads no stripe
}

// roleMark is a role's figures at a time.
type roleMark struct {
	at      time.Time
	cpu     time.Duration
	seconds map[key]float64
}

// key names the counter of one kind of activity in one source.
type key struct{ source, kind string }

// rank is the figures of one rank's trainer.
type rank struct {
	seen  time.Time
	now   *pb.RankFigures
	marks []rankMark
}

type rankMark struct {
	at     time.Time
	waited float64
}

// Tick observes the time, and judges whether trainers starve.
func (b *Board) Tick(now time.Time) {
	b.now = now
	b.hungry = b.judge()
}

// Observe observes the figures of a role.
func (b *Board) Observe(f *pb.Figures) {
	r := b.roles[f.Role]
	if r == nil || r.pid != f.Pid {
		r = &role{name: f.Role, pid: f.Pid, sources: map[string]*pb.SourceFigures{}}
		b.roles[f.Role] = r
	}
	if f.Lanes > 0 {
		b.work.add(r.sources, f, (time.Duration(f.Wall) - r.wall).Seconds())
	}
	r.seen, r.wall, r.cpu = b.now, time.Duration(f.Wall), time.Duration(f.Cpu)
	r.supply, r.lanes = f.Supply, f.Lanes
	for _, s := range f.Sources {
		r.sources[s.Source] = s
	}
	if n := len(r.marks); n == 0 || b.now.Sub(r.marks[n-1].at) >= every {
		r.marks = append(trim(r.marks, b.now, func(m roleMark) time.Time { return m.at }), r.mark(b.now))
	}
	for _, x := range f.Ranks {
		b.observeRank(x)
	}
}

func (r *role) mark(now time.Time) roleMark {
	m := roleMark{at: now, cpu: r.cpu, seconds: map[key]float64{}}
	for _, s := range r.sources {
		for i, kind := range s.Kind {
			m.seconds[key{s.Source, kind}] = s.Seconds[i]
		}
	}
	return m
}

func (b *Board) observeRank(f *pb.RankFigures) {
	k := b.ranks[f.Rank]
	if k == nil || f.Waited < k.now.Waited { // another trainer
		k = &rank{}
		b.ranks[f.Rank] = k
	} else if more := f.Waited - k.now.Waited; more > 0 {
		cause := f.Waiting
		if cause == nil {
			cause = b.slowest() // the wait was over before it was reported
		}
		b.work.wait(f.Rank, more, cause)
	}
	k.seen, k.now = b.now, f
	if n := len(k.marks); n == 0 || b.now.Sub(k.marks[n-1].at) >= every {
		k.marks = append(trim(k.marks, b.now, func(m rankMark) time.Time { return m.at }), rankMark{b.now, f.Waited})
	}
	if f.WaitingFor >= longWait && f.Waiting != nil {
		b.cause, b.caused = f.Waiting, b.now
	}
}

// trim drops the marks that are older than lately.
func trim[M any](marks []M, now time.Time, at func(M) time.Time) []M {
	for len(marks) > 1 && now.Sub(at(marks[0])) > lately {
		marks = marks[1:]
	}
	return marks
}

// Current returns the activity of a role that trainers wait for, for a source. ok is false if the role has sent no
// report lately.
func (b *Board) Current(name, source string) (cause activity.Cause, ok bool) {
	r := b.roles[name]
	if r == nil || b.now.Sub(r.seen) > gone {
		return cause, false
	}
	best := r.sources[source].GetCurrent()
	if best == nil {
		for _, s := range sorted(r.sources) {
			if best = s.Current; best != nil {
				break
			}
		}
	}
	if best == nil {
		return activity.Cause{Kind: activity.Fetch, Source: source, Role: r.name, Pid: r.pid}, true
	}
	return wire.CauseFromProto(best), true
}

func sorted(sources map[string]*pb.SourceFigures) (out []*pb.SourceFigures) {
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		out = append(out, sources[name])
	}
	return out
}

// Delivery describes the run now.
func (b *Board) Delivery() *pb.Delivery {
	d := &pb.Delivery{
		Slowest:   b.slowest(),
		Fill:      b.steps.fill,
		Predicted: b.steps.predicted,
		Reported:  b.steps.reported,
	}
	most := 0.0
	for _, name := range slices.Sorted(maps.Keys(b.roles)) {
		r := b.roles[name]
		f := &pb.RoleFigures{Role: r.name, Pid: r.pid, Cpu: r.cpu.Seconds(), Wall: r.wall.Seconds(),
			Sources: sorted(r.sources), Supply: r.supply}
		if first := r.marks[0]; b.now.Sub(r.seen) <= gone && r.seen.After(first.at) {
			f.Processors = (r.cpu - first.cpu).Seconds() / r.seen.Sub(first.at).Seconds()
		} else if r.wall > 0 {
			f.Processors = r.cpu.Seconds() / r.wall.Seconds()
		}
		if f.Processors > most {
			most, d.Busiest = f.Processors, r.name
		}
		d.Roles = append(d.Roles, f)
	}
	for _, number := range slices.Sorted(maps.Keys(b.ranks)) {
		k := b.ranks[number]
		f := &pb.RankFigures{Rank: number, Waited: k.now.Waited, Waits: k.now.Waits, Longest: k.now.Longest,
			Buffered: k.now.Buffered, Connected: k.now.Connected, Share: k.share()}
		if b.now.Sub(k.seen) <= gone {
			f.Waiting, f.WaitingFor = k.now.Waiting, k.now.WaitingFor
		}
		d.Waited += f.Share
		d.Ranks = append(d.Ranks, f)
	}
	if len(d.Ranks) > 0 {
		d.Waited /= float64(len(d.Ranks))
	}
	return d
}

// share returns the part of the last minute that a rank's trainer waited.
func (k *rank) share() float64 {
	first := k.marks[0]
	if span := k.seen.Sub(first.at).Seconds(); span > 0 {
		return min((k.now.Waited-first.waited)/span, 1)
	}
	return 0
}

// slowest returns the cause of the newest long wait, if it is not long ago. Otherwise it is the activity of a loader,
// or of the sidecar's building, that took the most time lately: it bounds the speed.
func (b *Board) slowest() *pb.Activity {
	if b.cause != nil && b.now.Sub(b.caused) <= causeKept {
		return b.cause
	}
	var best *pb.Activity
	most := 0.0
	for _, name := range slices.Sorted(maps.Keys(b.roles)) {
		r := b.roles[name]
		if b.now.Sub(r.seen) > gone {
			continue
		}
		now, first := r.mark(r.seen), r.marks[0].seconds
		if len(r.marks) == 1 {
			first = nil
		}
		for _, k := range slices.SortedFunc(maps.Keys(now.seconds), func(x, y key) int {
			return cmp.Or(cmp.Compare(x.source, y.source), cmp.Compare(x.kind, y.kind))
		}) {
			spent := now.seconds[k] - first[k]
			switch activity.Kind(k.kind) {
			case activity.Fetch, activity.Frames, activity.Ranks:
				continue // waits for others
			}
			if spent > most {
				most = spent
				best = &pb.Activity{Kind: k.kind, Source: k.source, Role: r.name, Pid: r.pid}
			}
		}
	}
	return best
}

// The alert of starving trainers begins at one share of waiting and is over below the other.
const (
	starving = 0.10
	fed      = 0.05
)

// Starving returns the text of the alert that trainers starve, "" if they do not. The text stays while they do.
func (b *Board) Starving() string { return b.hungry }

// judge returns the text of the alert now.
func (b *Board) judge() string {
	limit := starving
	if b.hungry != "" {
		limit = fed
	}
	for _, number := range slices.Sorted(maps.Keys(b.ranks)) {
		k := b.ranks[number]
		if len(k.marks) == 0 || k.seen.Sub(k.marks[0].at) < lately/2 || b.now.Sub(k.seen) > gone || k.share() < limit {
			continue
		}
		if b.hungry != "" {
			return b.hungry
		}
		return fmt.Sprintf("trainers wait for data: rank %d did for %.0f %% of the last minute; slowest: %s", number,
			100*k.share(), wire.ActivityInWords(b.slowest()))
	}
	return ""
}
