package orchestrator

import (
	"fmt"
	"os"
	"strings"
	"time"

	"millrace/internal/activity"
	"millrace/orchestrator/roster"
	"millrace/proto"
)

// Status describes the run for people and metrics. Its floating-point numbers decide nothing.
func (m *Machine) Status() *proto.StatusReply {
	r := &proto.StatusReply{
		Fence:     m.fence(),
		Step:      m.s.Watermark,
		Planned:   m.s.Next,
		Sources:   map[string]*proto.SourceStatus{},
		Recent:    m.s.RecentQuarantines(),
		Waiting:   m.Waiting().Text,
		Delivery:  m.figures.Delivery(),
		IsFull:    m.s.Attempt != nil && !m.hasRoom(),
		Ended:     m.s.Ended != nil,
		Pid:       int64(os.Getpid()),
		Alerts:    m.alerts.now,
		Masked:    uint64(len(m.s.Masks)),
		Switches:  m.roster.Switches(),
		Protected: m.roster.Protected(),
		Gpus:      m.sidecars.GPUs(),
	}
	base := m.s.PlannerState(len(m.cfg.Sources))
	next := base
	if tail := m.s.Tail(); tail != nil {
		next = &tail.Planner
	}
	r.Mixture = m.mix.Status(next)
	r.Mixture.Calibration = m.reports.calibration()
	_, r.SlowestRanks = m.ranks.Spread()
	r.Stripes = m.roster.Directory().GetStripes()
	var total uint64
	for i := range base.Sources {
		total += base.Sources[i].Tokens
	}
	for i := range m.cfg.Sources {
		src := &base.Sources[i]
		s := &proto.SourceStatus{
			Tokens:      src.Tokens,
			Samples:     src.Samples,
			Epoch:       uint32(src.Epoch),
			Ordinal:     uint64(src.Ordinal),
			Offered:     uint64(m.queues[i].Next()),
			Stripes:     uint32(m.cfg.Sources[i].Stripes),
			Unprotected: m.roster.Unprotected(i),
			PassedOver:  src.PassedOver(),
			Missing:     src.Counts.Missing,
			TooLong:     src.Counts.TooLong,
			Counted:     m.cfg.Spec.Sources[i].Untrained,
			Trained:     src.Counts.Trained,
			Quarantined: m.s.Quarantined[m.cfg.Sources[i].Name],
		}
		if total > 0 {
			s.Share = float64(src.Tokens) / float64(total)
		}
		if mf := m.s.Manifests[m.cfg.Sources[i].Name]; mf != nil {
			s.Shuffle, s.Why = mf.Shuffle, mf.Why
		}
		r.Sources[m.cfg.Sources[i].Name] = s
	}
	for _, n := range m.s.Quarantined {
		r.Quarantined += n
	}
	r.Roles = append(r.Roles,
		&proto.RoleStatus{Role: "orchestrator", Name: "orchestrator", Host: m.cfg.Host, Pid: r.Pid, State: "running",
			Term: m.s.Term})
	r.Roles = append(append(r.Roles, m.roster.Roles()...), m.sidecars.Roles(m.s.Term)...)
	r.World, r.Here = uint32(m.cfg.Ranks), m.ranks.Here()
	r.Scaling = m.scalingOf()
	return r
}

// scalingOf describes the number of loaders that follows the work, nil if it is fixed.
func (m *Machine) scalingOf() *proto.Scaling {
	if m.control == nil {
		return nil
	}
	s := m.control.Status()
	out := &proto.Scaling{Wished: uint32(s.Wished), There: uint32(s.There), Min: uint32(s.Min), Max: uint32(s.Max),
		Why: s.Why, Trouble: s.Trouble}
	if !s.Changed.IsZero() {
		out.Changed = s.Changed.UnixMilli()
	}
	return out
}

// opening is how long a loader may open its tokenizer and its sources before the status reports it.
const opening = 10 * time.Second

// lacking lists the conditions of now that people should know if they last, by kind and key.
func (m *Machine) lacking() []condition {
	out := m.quarantine.nearlySpent()
	if m.isIdle() {
		return out
	}
	if !m.cfg.Further { // the processes and the disk of all streams
		out = append(append(m.alerts.lowSpace(), m.alerts.oneCopy()...), out...)
		out = append(out, m.absent()...)
	}
	for _, t := range m.roster.Troubles() {
		text := fmt.Sprintf("source %s cannot be read by %s for now: %s", t.Source, t.Member, t.Text)
		out = append(out, condition{"source", t.Source + " " + t.Member, text, 0})
	}
	if s := m.scalingOf(); s.GetTrouble() != "" {
		text := fmt.Sprintf("the number of loaders does not become %d: %s", s.Wished, s.Trouble)
		out = append(out, condition{"scale", "", text, 0})
	}
	if text := m.figures.Starving(); text != "" {
		out = append(out, condition{"starving", "", text, 0})
	}
	if m.cfg.Shadows > 0 && m.pinned() && m.roster.Unprotected(roster.AllSources) > 0 {
		out = append(out, condition{"unprotected", "", "some stripes have no shadow that could take over at once: " +
			"if its loader dies now, training may wait for a restart", roster.Absence})
	}
	return out
}

// absent returns the conditions that loaders are waited for.
func (m *Machine) absent() (out []condition) {
	awaited := 0
	for _, l := range m.roster.Absent() {
		if l.Name == "" {
			awaited++
			continue
		}
		out = append(out, condition{"role", l.Name, m.isNotThere(l, ""), roster.Absence})
	}
	if awaited > 0 {
		text := fmt.Sprintf("%d of %d loaders %s not joined the run yet: a loader opens its tokenizer first", awaited,
			m.cfg.Loaders, map[bool]string{true: "has", false: "have"}[awaited == 1])
		if m.cfg.Host != "" {
			text += ", or its host is not there"
		}
		out = append(out, condition{"role", "loaders", text, opening})
	}
	return out
}

// isNotThere says that a loader is away, and what follows. of is empty, or the source that waits for it.
func (m *Machine) isNotThere(l roster.Missing, of string) string {
	name, follows := l.Name, "another loader may read in its place"
	if l.IsRestarted || m.cfg.Host == "" {
		follows = "it is being restarted"
	} else if l.Host != "" {
		name += " of " + l.Host
	}
	return name + of + " is not there; " + follows
}

// mostNamed is how many sources a line names.
const mostNamed = 8

// Waiting returns why the trainers wait, with a line for people. It is the zero value if the next step is planned.
func (m *Machine) Waiting() activity.Cause {
	busy := func(text string) activity.Cause {
		return activity.Cause{Kind: activity.Plan, Role: "orchestrator", Pid: int64(os.Getpid()), Text: text}
	}
	switch {
	case m.failed != nil:
		return busy("the run failed: " + m.failed.Error())
	case m.isIdle():
		return activity.Cause{} // nothing waits
	case !m.pinned():
		if m.planning.pending != "" {
			return busy(m.planning.pending)
		}
		var missing []string
		for i := range m.cfg.Sources {
			if m.s.Manifests[m.cfg.Sources[i].Name] == nil {
				missing = append(missing, m.cfg.Sources[i].Name)
			}
		}
		more := ""
		if n := len(missing) - mostNamed; n > 0 {
			missing, more = missing[:mostNamed], fmt.Sprintf(" and %d more", n)
		}
		return busy("opening sources " + strings.Join(missing, ", ") + more)
	}
	if text := m.ranks.Waiting(); text != "" {
		return activity.Cause{Kind: activity.Ranks, Text: text}
	}
	if source, owner, ok := m.roster.Unread(); ok && owner.Name == "" {
		return busy("source " + source + " waits for the loaders to join")
	} else if ok {
		return activity.Cause{Kind: activity.Fetch, Source: source, Role: owner.Name,
			Text: m.isNotThere(owner, " (source "+source+")")}
	}
	if m.s.Next > m.s.Watermark || m.planning.pending == "" {
		return activity.Cause{}
	}
	return m.missingOffer(busy(m.planning.pending))
}

// missingOffer adds to the cause of a missing plan the activity of the loader whose offers the plan waits for.
func (m *Machine) missingOffer(cause activity.Cause) activity.Cause {
	on := m.planning.lacks
	if on == nil {
		return cause
	}
	source := m.cfg.Sources[on.source]
	name := m.roster.Reader(on.source, on.ordinal)
	now, ok := m.figures.Current(name, source.Name)
	if !ok {
		now = activity.Cause{Kind: activity.Fetch, Source: source.Name, Role: name}
	}
	now.Text = cause.Text + ": " + now.Describe()
	return now
}
