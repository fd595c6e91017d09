package link

import (
	"log/slog"

	"millrace"
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/proto"
)

// masks holds the run's masked segments, and the segments that this host has reported as unreadable.
type masks struct {
	fail *failpoint.Set
	log  *slog.Logger
	up   *uplink

	condition
	masked map[segment]bool
	bad    map[segment]*proto.Bad // reported to every orchestrator until it is masked
}

// segment is a part of a document as plans name it.
type segment struct {
	source         string
	ordinal        uint64
	offset, length uint32
}

func segmentOf(source string, a *millrace.Assignment) segment {
	return segment{source, uint64(a.Ordinal), a.Offset, a.Length}
}

// add stores segments that the orchestrator has masked.
func (m *masks) add(list []*proto.Mask) {
	if len(list) == 0 {
		return
	}
	m.fail.Hit("sidecar/masked/before")
	m.update(func() {
		for _, x := range list {
			s := segment{x.Source, x.Ordinal, x.Offset, x.Length}
			if !m.masked[s] {
				m.log.Warn("a planned segment cannot be read and is masked",
					"source", x.Source, "ordinal", x.Ordinal, "offset", x.Offset, "length", x.Length,
					"sample", x.Sample.GetId(), "reason", x.Sample.GetReason())
			}
			m.masked[s] = true
			delete(m.bad, s)
		}
	})
	m.fail.Hit("sidecar/masked/after")
}

// hides reports whether an assignment of a source is masked. The caller holds the lock.
func (m *masks) hides(source string, a *millrace.Assignment) bool {
	return len(m.masked) > 0 && m.masked[segmentOf(source, a)]
}

// reportBad reports segments that two readings could not decode, to this orchestrator and to each later one. found maps
// indices of the plan's assignments, all of one source, to the reason.
func (m *masks) reportBad(p *millrace.Plan, source string, found map[int]*proto.Quarantine) {
	m.update(func() {
		for i, q := range found {
			a := &p.Assignments[i]
			s := segmentOf(source, a)
			if m.masked[s] || m.bad[s] != nil {
				continue
			}
			m.fail.Hit("sidecar/bad/before")
			b := &proto.Bad{
				Step: uint64(p.Step), Source: a.Source, Ordinal: uint64(a.Ordinal), Offset: a.Offset, Length: a.Length,
				Sample: q,
			}
			m.bad[s] = b
			m.up.record(event.Record{
				Event: "bad",
				Step:  int64(p.Step),
				Key:   source + "/" + q.GetId(),
				Term:  m.up.highestTerm(),
			})
			m.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Bad{Bad: b}})
			m.fail.Hit("sidecar/bad/after")
		}
	})
}

// repeatReports reports to a new orchestrator all unreadable segments that are not masked yet.
func (m *masks) repeatReports() {
	m.Lock()
	defer m.Unlock()
	for _, b := range m.bad {
		m.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Bad{Bad: b}})
	}
}
