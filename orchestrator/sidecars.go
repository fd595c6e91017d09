package orchestrator

import (
	"fmt"
	"strings"

	"millrace/orchestrator/roster"
	pb "millrace/proto"
)

// SidecarUp observes a sidecar that connected, and where its ranks stand: a new orchestrator lets them go on from there.
func (m *Machine) SidecarUp(session roster.Session, hello *pb.SidecarHello) error {
	if err := roster.CheckVersion(hello.Name, hello.Version, m.cfg.By); err != nil {
		return err
	}
	if !m.sidecars.Connect(session, hello) {
		return nil
	}
	for _, p := range hello.Ranks {
		if p.Serving && int(p.Rank) < len(m.ranks) && p.Attempt == uint32(m.s.CurrentAttempt()) {
			r := &m.ranks[p.Rank]
			r.serving, r.away, r.from, r.below = true, false, session, max(r.below, p.Below)
		}
	}
	m.welcome()
	m.callRoll(session)
	if m.told != "" {
		m.sidecars.Send(session, waitingOrder(m.told))
	}
	if m.failed != nil {
		m.sidecars.Send(session, &pb.SidecarOrder{Order: &pb.SidecarOrder_Failed{Failed: &pb.Fatal{Reason: m.failed.Error()}}})
	}
	if len(m.alerts.now) > 0 {
		m.sidecars.Send(session, m.alerts.order())
	}
	return nil
}

// welcome sends every new sidecar what it needs before plans make sense: the files, the directory, and the plans so far.
func (m *Machine) welcome() {
	if !m.pinned() {
		return
	}
	w := &pb.Welcome{Masks: m.s.Masks}
	for i := range m.cfg.Sources {
		w.Manifests = append(w.Manifests, m.s.Manifests[m.cfg.Sources[i].Name])
	}
	m.sidecars.Welcome(w, m.roster.Directory())
	m.sendPlans()
	m.tellEnd()
}

// SidecarDown observes that a sidecar's stream ended. Its ranks keep their places.
func (m *Machine) SidecarDown(session roster.Session, name string) {
	if !m.sidecars.Disconnect(session, name) {
		return
	}
	for i := range m.ranks {
		if j := m.ranks[i].join; j != nil && j.session == session {
			m.ranks[i].join = nil
		}
	}
}

// Committed observes that a rank's trainer asked for what follows a step, and answers that it is known. A commit of an attempt that
// is over changes nothing.
func (m *Machine) Committed(from roster.Session, c *pb.Commit) {
	if int(c.Rank) >= len(m.ranks) {
		return
	}
	r := &m.ranks[c.Rank]
	if m.s.Attempt != nil && c.Attempt == m.s.Attempt.Attempt {
		r.below = max(r.below, c.Step+1)
		if r.serving && m.through(r) && !m.s.Through[c.Rank] {
			r.last, r.from = c, from // answered once it is durable: the rank leaves then, and could not say it again
			return
		}
	}
	m.answerCommit(from, c)
}

func (m *Machine) answerCommit(to roster.Session, c *pb.Commit) {
	m.sidecars.Send(to, &pb.SidecarOrder{Order: &pb.SidecarOrder_Committed{Committed: &pb.Committed{Rank: c.Rank, Attempt: c.Attempt, Below: c.Step + 1}}})
}

// SavedCheckpoint observes that a step's model checkpoint is durable.
func (m *Machine) SavedCheckpoint(step uint64) {
	if step > max(m.s.Saved, m.toSave.GetStep()) || !m.s.HasSaved && m.toSave == nil {
		m.toSave = &pb.Saved{Step: step}
	}
}

// tellWaiting lets every sidecar name in its trainers' logs what they wait for.
func (m *Machine) tellWaiting() {
	text := m.Waiting()
	if text == m.told {
		return
	}
	m.told = text
	m.sidecars.Broadcast(waitingOrder(text))
}

func waitingOrder(text string) *pb.SidecarOrder {
	return &pb.SidecarOrder{Order: &pb.SidecarOrder_Waiting{Waiting: &pb.Waiting{Text: text}}}
}

// mostNamed is how many sources a line names.
const mostNamed = 8

// Waiting says in one line what the trainers wait for, empty where the next step is planned.
func (m *Machine) Waiting() string {
	switch {
	case m.failed != nil:
		return "the run failed: " + m.failed.Error()
	case !m.pinned():
		if m.pending != "" {
			return m.pending
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
		return "opening sources " + strings.Join(missing, ", ") + more
	}
	if text := waitingForRanks(m.ranks, m.s.Through); text != "" {
		return text
	}
	if source, owner, ok := m.roster.Unread(); ok {
		return fmt.Sprintf("%s (source %s) is not there; it is being restarted", owner, source)
	}
	if m.s.Next > m.s.Watermark {
		return ""
	}
	return m.pending
}

// waitingForRanks says which ranks an attempt waits for: those that have not connected and, once a rank starts again, those that have not.
func waitingForRanks(ranks []rank, through map[uint32]bool) string {
	again := -1 // a rank that starts again
	for i := range ranks {
		if ranks[i].join != nil {
			again = i
			break
		}
	}
	var absent, going []string
	for i := range ranks {
		switch r := &ranks[i]; {
		case r.join != nil:
		case again >= 0 && r.serving && !r.away:
			going = append(going, fmt.Sprint(i))
		case again >= 0 || !r.serving && !through[uint32(i)]:
			absent = append(absent, fmt.Sprint(i))
		}
	}
	switch {
	case len(absent) > 0:
		return "waiting for rank " + strings.Join(absent, ", ") + " to connect and say where it starts"
	case len(going) == 0:
		return ""
	}
	r := &ranks[again]
	if r.serving && r.join.kind == "latest" && r.below > r.join.step {
		return fmt.Sprintf("rank %d goes on at step %d when %s consumed the steps before it", again, r.below, named(going, " has", " have"))
	}
	return fmt.Sprintf("rank %d starts again at step %d, and the run goes on when all ranks do: restart %s too, from the same checkpoint", again, r.join.step, named(going, "", ""))
}

// named lists ranks with the verb for one or for several.
func named(ranks []string, one, several string) string {
	if len(ranks) == 1 {
		return "rank " + ranks[0] + one
	}
	return "ranks " + strings.Join(ranks, ", ") + several
}
