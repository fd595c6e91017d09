package orchestrator

import (
	"errors"
	"fmt"

	"millrace"
	"millrace/internal/wire"
	"millrace/orchestrator/offers"
	pb "millrace/proto"
)

// member is one connected loader process. All run the same program: what one of them is follows from the stripes that it was given.
type member struct {
	name, address, beat string
	pid                 int64
	session             Session
	asked, opened       map[string]bool   // sources that it was told to open, and whose manifest was accepted
	trouble             map[string]string // by source: what fails for now
	leaving             bool
}

// process is one life of a member's slot.
type process struct {
	name string
	pid  int64
}

// LoaderUp observes a loader that connected: the home of some stripes, or a shadow. A predecessor of the same name is lost with all that
// it held; a process that was fenced is refused.
func (m *Machine) LoaderUp(session Session, hello *pb.LoaderHello) error {
	if err := m.speaks(hello.Name, hello.Version); err != nil {
		return err
	}
	if !hello.Standby && !m.home(hello.Name) {
		return millrace.Errorf(millrace.ErrInvalid, "loader %q: this run has no such loader", hello.Name)
	}
	if old := m.members[hello.Name]; old != nil {
		if old.pid != hello.Pid {
			m.bye(old, "another process took over as "+hello.Name)
		}
		m.lose(old, "another connection took over as "+hello.Name)
	}
	if m.fenced[process{hello.Name, hello.Pid}] {
		return millrace.Errorf(millrace.ErrFenced, "%s (pid %d): what it read was given to others while it was silent", hello.Name, hello.Pid)
	}
	m.members[hello.Name] = &member{name: hello.Name, address: hello.Address, beat: hello.Beat, pid: hello.Pid, session: session,
		asked: map[string]bool{}, opened: map[string]bool{}, trouble: map[string]string{}}
	m.unsettled = true
	return nil
}

// LoaderDown observes that a loader's stream ended.
func (m *Machine) LoaderDown(session Session, name string) {
	if l := m.current(session, name); l != nil {
		m.lose(l, "its connection ended")
	}
}

// Leaving observes that a loader was asked to leave. It serves on until what it reads has been handed over.
func (m *Machine) Leaving(session Session, name string) {
	l := m.current(session, name)
	if l == nil {
		return
	}
	l.leaving = true
	for _, st := range m.stripes {
		if st.standby.member == l {
			st.standby = grant{}
		}
		if st.primary.member == l {
			st.reason = l.name + " was asked to leave"
		}
	}
	m.moved, m.unsettled = true, true
}

// Opened observes a source's manifest as a loader sees it.
func (m *Machine) Opened(session Session, name string, mf *pb.Manifest) {
	l := m.current(session, name)
	if l == nil || m.source(mf.Source) == nil {
		return
	}
	if known := m.manifest(mf.Source); known == nil {
		m.toPin = append(m.toPin, mf)
	} else if err := m.cfg.Compare(wire.ManifestFromProto(known), wire.ManifestFromProto(mf)); err != nil {
		m.fail(err)
		return
	}
	l.opened[mf.Source], m.unsettled = true, true
}

// manifest is what a source is made of, pinned or about to be.
func (m *Machine) manifest(source string) *pb.Manifest {
	for _, mf := range m.toPin {
		if mf.Source == source {
			return mf
		}
	}
	return m.s.Manifests[source]
}

// Offered observes offers. Only those of a stripe's primary, under its term, say anything.
func (m *Machine) Offered(session Session, name string, term uint64, msg *pb.Offers) {
	l, st := m.current(session, name), m.stripe(msg.Source, msg.Stripe)
	if l == nil || st == nil || st.primary.member != l || st.primary.term != term {
		return
	}
	if err := m.queues[st.source].Add(offers.FromProto(msg)); err != nil {
		m.fail(err)
	}
}

// Ready observes that a standby can take over at once.
func (m *Machine) Ready(session Session, name string, msg *pb.Ready) {
	l, st := m.current(session, name), m.stripe(msg.Source, msg.Stripe)
	if l != nil && st != nil && st.standby.member == l && st.standby.term == msg.Term && !st.standby.standing {
		st.standby.standing, m.moved = true, true
	}
}

// Opening observes the progress of an index.
func (m *Machine) Opening(o *pb.Opening) {
	m.pending = fmt.Sprintf("source %s is being indexed: %d of %d bytes", o.Source, o.Done, o.Total)
}

// Trouble observes that reading a source fails for now, or does again.
func (m *Machine) Trouble(session Session, name string, t *pb.Trouble) {
	l := m.current(session, name)
	switch {
	case l == nil:
	case t.Text == "":
		delete(l.trouble, t.Source)
	default:
		l.trouble[t.Source] = t.Text
	}
}

// Fatal observes that a source, or a host, cannot go on.
func (m *Machine) Fatal(f *pb.Fatal) { m.fail(errors.New(f.Reason)) }

func (m *Machine) current(session Session, name string) *member {
	if l := m.members[name]; l != nil && l.session == session {
		return l
	}
	return nil
}

// home tells whether the run has stripes for a loader of that name.
func (m *Machine) home(name string) bool {
	for _, st := range m.stripes {
		if st.home == name {
			return true
		}
	}
	return false
}

// openings tells members to open what they may have to serve: everybody what it read last and its own sources, and who has nothing of its own to read all
// that somebody has opened already, so that nothing is indexed twice.
func (m *Machine) openings() {
	for _, name := range sortedKeys(m.members) {
		l := m.members[name]
		free := m.free(l)
		for _, st := range m.stripes {
			source := m.cfg.Sources[st.source].Name
			if !l.asked[source] && (st.home == name || m.holder(st) == name || free && m.s.Manifests[source] != nil) {
				l.asked[source] = true
				m.order(l, &pb.LoaderOrder{Order: &pb.LoaderOrder_Open{Open: &pb.OpenSource{Source: source, Known: m.known(source)}}})
			}
		}
	}
}

// known tells whether a source has been read under this `up`: then its files were there, and are waited for where they are away.
func (m *Machine) known(source string) bool {
	for _, h := range m.s.Holders {
		if h.Source == source && h.Up == m.cfg.Up {
			return true
		}
	}
	return false
}

func (m *Machine) order(l *member, o *pb.LoaderOrder) {
	o.Fence = m.fence()
	m.send(l.session, o)
}

func (m *Machine) bye(l *member, reason string) {
	m.order(l, &pb.LoaderOrder{Order: &pb.LoaderOrder_Bye{Bye: &pb.Bye{Reason: reason}}})
}
