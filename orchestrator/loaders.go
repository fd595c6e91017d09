package orchestrator

import (
	"errors"
	"fmt"
	"slices"

	"millrace"
	"millrace/internal/wire"
	"millrace/orchestrator/offers"
	pb "millrace/proto"
)

// LoaderUp observes a loader that connected. A predecessor of the same name is told to leave: its terms are over.
func (m *Machine) LoaderUp(session Session, hello *pb.LoaderHello) error {
	if len(m.serves(hello.Name)) == 0 {
		return fmt.Errorf("loader %q: this run has no such loader: %w", hello.Name, millrace.ErrInvalid)
	}
	if old := m.loaders[hello.Name]; old != nil {
		m.send(old.session, &pb.LoaderOrder{Fence: m.fence(), Order: &pb.LoaderOrder_Bye{Bye: &pb.Bye{Reason: "another process took over as " + hello.Name}}})
	}
	m.loaders[hello.Name] = &loader{name: hello.Name, address: hello.Address, pid: hello.Pid, session: session, opened: map[string]bool{}, terms: map[string]uint64{}}
	for _, source := range m.serves(hello.Name) {
		m.send(session, &pb.LoaderOrder{Fence: m.fence(), Order: &pb.LoaderOrder_Open{Open: &pb.OpenSource{Source: source}}})
	}
	return nil
}

// LoaderDown observes that a loader's stream ended; what it served is assigned again when it is back.
func (m *Machine) LoaderDown(session Session, name string) {
	if l := m.loaders[name]; l != nil && l.session == session {
		delete(m.loaders, name)
		m.tellLoaders()
	}
}

// Opened observes a source's manifest as a loader sees it.
func (m *Machine) Opened(session Session, name string, mf *pb.Manifest) {
	l := m.current(session, name)
	if l == nil {
		return
	}
	pinned := m.s.Manifests[mf.Source]
	for _, seen := range m.toPin {
		if seen.Source == mf.Source {
			pinned = seen
		}
	}
	if pinned != nil {
		if err := m.cfg.Compare(wire.ManifestFromProto(pinned), wire.ManifestFromProto(mf)); err != nil {
			m.fail(err)
			return
		}
	} else {
		m.toPin = append(m.toPin, mf)
	}
	l.opened[mf.Source] = true
}

// Offered observes offers.
func (m *Machine) Offered(session Session, name string, term uint64, msg *pb.Offers) {
	l := m.current(session, name)
	if l == nil || l.terms[msg.Source] != term {
		return // of an assignment that is over
	}
	for _, q := range m.queues {
		if q.Source() == msg.Source {
			if err := q.Add(offers.FromProto(msg)); err != nil {
				m.fail(err)
			}
		}
	}
}

// Opening observes the progress of an index.
func (m *Machine) Opening(o *pb.Opening) {
	m.pending = fmt.Sprintf("source %s is being indexed: %d of %d bytes", o.Source, o.Done, o.Total)
}

// Fatal observes that a source, or a host, cannot go on.
func (m *Machine) Fatal(f *pb.Fatal) { m.fail(errors.New(f.Reason)) }

func (m *Machine) current(session Session, name string) *loader {
	if l := m.loaders[name]; l != nil && l.session == session {
		return l
	}
	return nil
}

// serves lists the sources a loader has a stripe of.
func (m *Machine) serves(name string) []string {
	var out []string
	for i := range m.cfg.Sources {
		if slices.Contains(m.cfg.Sources[i].Loaders, name) {
			out = append(out, m.cfg.Sources[i].Name)
		}
	}
	return out
}

// serving lists the loaders that read a source now, in stripe order.
func (m *Machine) serving(source string) []*loader {
	var out []*loader
	for _, name := range m.source(source).Loaders {
		if l := m.loaders[name]; l != nil && l.terms[source] != 0 {
			out = append(out, l)
		}
	}
	return out
}

// pinned tells whether every source's files are known.
func (m *Machine) pinned() bool { return len(m.s.Manifests) == len(m.cfg.Sources) && len(m.toPin) == 0 }

// startReading pins new manifests, then takes a term for loaders that have none yet.
func (m *Machine) startReading() ([]Fact, error) {
	if len(m.toPin) > 0 {
		mf := m.toPin[0]
		m.toPin = m.toPin[1:]
		return []Fact{{Record: &pb.Record{Fact: &pb.Record_Pinned{Pinned: &pb.Pinned{Manifest: mf}}}}}, nil
	}
	if !m.pinned() || len(m.unassigned()) == 0 {
		return nil, nil
	}
	return []Fact{{Record: &pb.Record{Fact: &pb.Record_Assigned{Assigned: &pb.Assigned{Term: m.s.AssignTerm + 1}}}}}, nil
}

type assignment struct {
	loader *loader
	source int
	stripe int
}

// unassigned lists the stripes whose loader has opened its source and was not yet told to read.
func (m *Machine) unassigned() []assignment {
	var out []assignment
	for i := range m.cfg.Sources {
		for stripe, name := range m.cfg.Sources[i].Loaders {
			if l := m.loaders[name]; l != nil && l.opened[m.cfg.Sources[i].Name] && l.terms[m.cfg.Sources[i].Name] == 0 {
				out = append(out, assignment{l, i, stripe})
			}
		}
	}
	return out
}

// assigned tells loaders to read from the watermark's cursor, under the new term.
func (m *Machine) assigned() {
	st, err := m.base()
	if err != nil {
		m.fail(err)
		return
	}
	for _, a := range m.unassigned() {
		src, q := &m.cfg.Sources[a.source], m.queues[a.source]
		a.loader.terms[src.Name] = m.s.AssignTerm
		anchor := st.Sources[a.source].Anchor
		if newer, ok := q.AnchorAt(q.First()); ok {
			anchor = newer
		}
		m.send(a.loader.session, &pb.LoaderOrder{Fence: m.fence(), Order: &pb.LoaderOrder_Read{Read: &pb.ReadFrom{Source: src.Name,
			Stripe: uint32(a.stripe), Stripes: uint32(len(src.Loaders)), Term: m.s.AssignTerm, Ordinal: uint64(q.First()), Anchor: wire.AnchorToProto(anchor)}}})
		m.wants[a.source] = max(m.wants[a.source], q.First()+firstWant)
		m.send(a.loader.session, &pb.LoaderOrder{Fence: m.fence(), Order: &pb.LoaderOrder_Want{Want: &pb.Want{Source: src.Name, Until: uint64(m.wants[a.source])}}})
	}
	m.tellLoaders()
}

// reposition makes the queues stand at a newly opened attempt's state. A source that has to go back, or far ahead, is read anew.
func (m *Machine) reposition() error {
	st, err := m.base()
	if err != nil {
		return err
	}
	for i, q := range m.queues {
		at := st.Sources[i].Ordinal
		if at >= q.First() && at <= q.Next() {
			q.Release(at)
			continue
		}
		q.Reset(at)
		if a := st.Sources[i].Anchor; a != (millrace.Anchor{}) {
			q.Anchor(a)
		}
		m.wants[i] = 0
		for _, l := range m.loaders {
			delete(l.terms, q.Source())
		}
	}
	return nil
}

// tellLoaders sends every sidecar the directory of who serves what.
func (m *Machine) tellLoaders() {
	for _, name := range sortedKeys(m.sidecars) {
		m.send(m.sidecars[name].session, m.directory())
	}
}

func (m *Machine) directory() *pb.SidecarOrder {
	dir := &pb.Loaders{}
	for i := range m.cfg.Sources {
		src := &m.cfg.Sources[i]
		for stripe, name := range src.Loaders {
			if l := m.loaders[name]; l != nil && l.terms[src.Name] != 0 {
				dir.Stripes = append(dir.Stripes, &pb.LoaderStripe{Source: src.Name, Stripe: uint32(stripe), Stripes: uint32(len(src.Loaders)),
					Term: l.terms[src.Name], Address: l.address, Name: name})
			}
		}
	}
	return &pb.SidecarOrder{Fence: m.fence(), Order: &pb.SidecarOrder_Loaders{Loaders: dir}}
}
