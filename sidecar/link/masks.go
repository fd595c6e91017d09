package link

import (
	"millrace"
	"millrace/proto"
	"millrace/sidecar"
)

// segment is a part of a document as plans name it.
type segment struct {
	source         string
	ordinal        uint64
	offset, length uint32
}

// mask takes what turned out bad after it was planned. The caller holds mu.
func (l *Link) mask(masks []*proto.Mask) {
	if len(masks) == 0 {
		return
	}
	l.cfg.Fail.Hit("sidecar/masked/before")
	for _, m := range masks {
		s := segment{m.Source, m.Ordinal, m.Offset, m.Length}
		if !l.masks[s] {
			l.cfg.Log.Warn("a planned segment cannot be read and is masked", "source", m.Source, "ordinal", m.Ordinal, "offset", m.Offset, "length", m.Length, "sample", m.Sample.GetId(), "reason", m.Sample.GetReason())
		}
		l.masks[s] = true
		delete(l.bad, s)
	}
	l.cfg.Fail.Hit("sidecar/masked/after")
}

// masked tells whether an assignment is masked. The caller holds mu.
func (l *Link) masked(a *millrace.Assignment) bool {
	return len(l.masks) > 0 && l.masks[l.segment(a)]
}

func (l *Link) segment(a *millrace.Assignment) segment {
	return segment{l.sources[a.Source].Name, uint64(a.Ordinal), a.Offset, a.Length}
}

// accuse tells the orchestrator, this one and those to come, of segments that two readings could not decode.
func (l *Link) accuse(p *millrace.Plan, found map[int]*proto.Quarantine) {
	l.set(func() {
		for i, q := range found {
			a := &p.Assignments[i]
			s := l.segment(a)
			if l.masks[s] || l.bad[s] != nil {
				continue
			}
			l.cfg.Fail.Hit("sidecar/bad/before")
			l.bad[s] = &proto.Bad{Step: uint64(p.Step), Source: a.Source, Ordinal: uint64(a.Ordinal), Offset: a.Offset, Length: a.Length, Sample: q}
			l.record("bad", int64(p.Step), s.source+"/"+q.GetId(), l.term)
			l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Bad{Bad: l.bad[s]}})
			l.cfg.Fail.Hit("sidecar/bad/after")
		}
	})
}

// alert takes what the run lacks now. The caller holds mu.
func (l *Link) alert(alerts []*proto.Alert) {
	now := make([]sidecar.Alert, 0, len(alerts))
	for _, a := range alerts {
		now = append(now, sidecar.Alert{Kind: a.Kind, Text: a.Text, Since: a.Since})
	}
	for _, a := range now {
		if !sidecar.Holds(l.alerts, a) {
			l.cfg.Log.Warn("alert", "kind", a.Kind, "text", a.Text)
		}
	}
	for _, a := range l.alerts {
		if !sidecar.Holds(now, a) {
			l.cfg.Log.Warn("alert is over", "kind", a.Kind, "text", a.Text)
		}
	}
	l.alerts = now
	l.alerted++
}
