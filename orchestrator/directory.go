package orchestrator

import pb "millrace/proto"

// tellLoaders sends every sidecar the directory of who serves what, where that has changed.
func (m *Machine) tellLoaders() {
	if !m.moved {
		return
	}
	m.moved = false
	m.guard()
	m.broadcast(m.directory())
}

// broadcast sends an order to every sidecar.
func (m *Machine) broadcast(o *pb.SidecarOrder) {
	o.Fence = m.fence()
	for _, name := range sortedKeys(m.sidecars) {
		m.send(m.sidecars[name].session, o)
	}
}

// directory names who serves each stripe. A stripe that is not in it is read by nobody now.
func (m *Machine) directory() *pb.SidecarOrder {
	dir := &pb.Loaders{}
	for _, st := range m.stripes {
		p := st.primary
		if p.member == nil {
			continue
		}
		src := &m.cfg.Sources[st.source]
		entry := &pb.LoaderStripe{Source: src.Name, Stripe: uint32(st.index), Stripes: uint32(len(src.Loaders)),
			Term: p.term, Address: p.member.address, Name: p.member.name, Beat: p.member.beat}
		if s := st.standby; s.ready(p) {
			entry.Standby = &pb.Standby{Term: s.term, Address: s.member.address, Name: s.member.name, Beat: s.member.beat}
		}
		dir.Stripes = append(dir.Stripes, entry)
	}
	return &pb.SidecarOrder{Fence: m.fence(), Order: &pb.SidecarOrder_Loaders{Loaders: dir}}
}

// ready tells whether a standby could take over at once from a primary.
func (g grant) ready(primary grant) bool {
	return g.member != nil && g.standing && g.term > primary.term
}

// unprotected counts the stripes of a source, or of all (-1), that nobody could take over at once.
func (m *Machine) unprotected(source int) (n uint32) {
	for _, st := range m.stripes {
		if (source < 0 || st.source == source) && !(st.primary.member != nil && st.standby.ready(st.primary)) {
			n++
		}
	}
	return n
}

// guard notes since when every stripe is protected.
func (m *Machine) guard() {
	switch protected := m.unprotected(-1) == 0; {
	case !protected:
		m.protected = 0
	case m.protected == 0:
		m.protected = max(1, m.now.UnixMilli())
	}
}
