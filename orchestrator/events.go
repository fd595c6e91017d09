package orchestrator

import (
	"errors"
	"fmt"
	"time"

	"millrace/internal/activity"
	"millrace/orchestrator/placer"
	"millrace/orchestrator/placer/keeper"
	"millrace/orchestrator/roster"
	"millrace/orchestrator/scale"
	pb "millrace/proto"
)

// Tick observes the time. It comes several times a second.
func (m *Machine) Tick(now time.Time) {
	m.alerts.clock = now
	m.figures.Tick(now)
	m.ranks.Tick(now)
	m.roster.Tick(now)
	m.planning.runway.observe(now, m.s)
	m.weigh(now)
	m.tellStarvation(m.starvation.Tick(now))
}

// tellStarvation sends all sidecars the list of hosts that starve, if it has changed.
func (m *Machine) tellStarvation(changed bool) {
	if changed {
		m.sidecars.Broadcast(m.starvation.Order())
	}
}

// starves observes how late the timers of a loader are.
func (m *Machine) starves(from roster.Session, name string, delay time.Duration) {
	if up := m.roster.UpOf(from, name); up != "" {
		m.tellStarvation(m.starvation.Observe(m.alerts.clock, up, delay))
	}
}

// loaderDown observes that a loader's stream ended.
func (m *Machine) loaderDown(session roster.Session, name string) {
	m.roster.Disconnect(session, name)
	m.tellStarvation(m.starvation.Left(m.alerts.clock, session))
}

// weigh measures the work of the loaders. It comes as often as Tick; the scaler takes a sample a second.
func (m *Machine) weigh(now time.Time) {
	if m.control == nil || !m.control.IsDue(now) {
		return
	}
	names := make([]string, len(m.cfg.Sources))
	for i := range names {
		names[i] = m.cfg.Sources[i].Name
	}
	work := m.figures.Work(names)
	x := scale.Sample{At: now, Step: m.s.Watermark, Waited: work.Waited, Blamed: work.Blamed, Busy: work.Busy,
		Made: work.Made, Docs: work.Docs, Names: names, Lanes: work.Lanes}
	base := m.s.PlannerState(len(names))
	for i := range base.Sources {
		x.Served += uint64(base.Sources[i].Tokens)
	}
	for _, l := range m.roster.Roles() {
		if l.Role == loaderRole {
			x.There++
		}
	}
	m.control.Observe(x)
}

// placed observes news of the engine that runs the loaders.
func (m *Machine) placed(n keeper.News) {
	if m.control == nil {
		return
	}
	if n.Exist != nil {
		loaders := 0
		for _, i := range n.Exist {
			if i.Role == loaderRole && i.State != placer.Ending {
				loaders++
			}
		}
		m.control.Found(loaders)
	}
	why := ""
	if n.Err != nil {
		why = n.Err.Error()
	}
	m.control.Trouble(why)
}

// loaderRole is the role whose number of processes follows the work.
const loaderRole = "loader"

// Disk observes the room of the journal's disk, in bytes.
func (m *Machine) Disk(free, total uint64) { m.alerts.disk = disk{free, total} }

// LoaderUp observes a loader that connected.
func (m *Machine) LoaderUp(session roster.Session, hello *pb.LoaderHello) error {
	return m.roster.Connect(session, hello)
}

// LoaderEvent observes a message of a loader.
func (m *Machine) LoaderEvent(from roster.Session, name string, e *pb.LoaderEvent) {
	if f := e.GetFigures(); f != nil {
		m.figures.Observe(f)
		m.starves(from, name, time.Duration(f.StarvedMs)*time.Millisecond)
		return
	}
	var err error
	m.planning.stale = true
	switch ev := e.GetEvent().(type) {
	case *pb.LoaderEvent_Opening:
		m.planning.pending = fmt.Sprintf("source %s is being indexed: %d of %d bytes", ev.Opening.Source,
			ev.Opening.Done, ev.Opening.Total)
	case *pb.LoaderEvent_Manifest:
		err = m.roster.Opened(from, name, ev.Manifest, m.s.Manifests[ev.Manifest.Source])
	case *pb.LoaderEvent_Offered:
		err = m.roster.Offered(from, name, ev.Offered)
	case *pb.LoaderEvent_Ready:
		m.roster.Ready(from, name, ev.Ready)
	case *pb.LoaderEvent_Leaving:
		m.roster.Leaving(from, name, ev.Leaving)
	case *pb.LoaderEvent_Trouble:
		m.roster.Trouble(from, name, ev.Trouble)
	case *pb.LoaderEvent_Cache:
		m.roster.CacheFigures(from, name, ev.Cache)
	case *pb.LoaderEvent_Fatal:
		err = errors.New(ev.Fatal.Reason)
	}
	if err != nil {
		m.fail(err)
	}
}

// SidecarUp observes a sidecar that connected, and the positions of its ranks. A new orchestrator lets them continue
// from there.
func (m *Machine) SidecarUp(session roster.Session, hello *pb.SidecarHello) error {
	if err := roster.CheckVersion(hello.Name, hello.Version, m.cfg.By); err != nil {
		return err
	}
	if !m.sidecars.Connect(session, hello) {
		return nil
	}
	m.ranks.Connect(session, hello)
	m.welcome()
	m.ranks.CallRoll(session)
	if m.told != (activity.Cause{}) {
		m.sidecars.Send(session, waitingOrder(m.told))
	}
	if m.failed != nil {
		m.sidecars.Send(session, failedOrder(m.failed))
	}
	if len(m.alerts.now) > 0 {
		m.sidecars.Send(session, m.alerts.order())
	}
	if order := m.starvation.Order(); len(order.GetStarved().Hosts) > 0 {
		m.sidecars.Send(session, order)
	}
	return nil
}

// SidecarDown observes that a sidecar's stream ended. Its ranks keep their places.
func (m *Machine) SidecarDown(session roster.Session, name string) {
	if m.sidecars.Disconnect(session, name) {
		m.ranks.Disconnect(session)
	}
}

// Joined observes a rank's declared start.
func (m *Machine) Joined(from roster.Session, msg *pb.Join) {
	if m.ranks.Join(from, msg) {
		m.afterBegin()
	}
}

// Committed observes that a rank's trainer asked for the batch after a step.
func (m *Machine) Committed(from roster.Session, c *pb.Commit) { m.ranks.Commit(from, c) }

// SidecarEvent observes a message of a sidecar.
func (m *Machine) SidecarEvent(from roster.Session, e *pb.SidecarEvent) {
	switch ev := e.GetEvent().(type) {
	case *pb.SidecarEvent_Join:
		m.Joined(from, ev.Join)
	case *pb.SidecarEvent_Commit:
		m.Committed(from, ev.Commit)
	case *pb.SidecarEvent_Saved:
		m.saves.observe(ev.Saved.Step)
	case *pb.SidecarEvent_Left:
		m.ranks.Leave(from, ev.Left.Rank)
	case *pb.SidecarEvent_Present:
		m.ranks.Present(from, ev.Present)
	case *pb.SidecarEvent_Switched:
		if !m.sidecars.Has(from) { // its process is dead or replaced, and no rank there waits for the standby
			return
		}
		if lost := m.roster.Switched(ev.Switched, m.s.AssignTerm); lost != nil {
			m.starvation.Accuse(m.alerts.clock, lost)
		}
	case *pb.SidecarEvent_Bad:
		m.masks.observe(ev.Bad)
	case *pb.SidecarEvent_Reported:
		m.reports.observe(ev.Reported)
		m.figures.Reported(ev.Reported)
	case *pb.SidecarEvent_Gpus:
		m.sidecars.GPUFigures(from, ev.Gpus)
	case *pb.SidecarEvent_Figures:
		m.figures.Observe(ev.Figures)
	case *pb.SidecarEvent_Fatal:
		m.fail(errors.New(ev.Fatal.Reason))
	}
}

// Mix asks for a change of the mixture. It is answered when it is durable, or refused. answer is called as an action of
// a turn and must not block.
func (m *Machine) Mix(request *pb.MixRequest, answer func(*pb.MixReply, error)) {
	m.mix.Ask(request, answer)
}
