package roster

import (
	"fmt"
	"maps"
	"slices"

	"millrace/orchestrator/parts"
	pb "millrace/proto"
)

// Sidecars are the sidecars that are connected. Not safe for concurrent use.
type Sidecars struct {
	out        *Actions
	fence      func() *pb.Fence
	byName     map[string]*sidecar
	connected  map[Session]bool // the sessions of byName
	succession succession       // of all sidecars that were ever connected
	cutter     *parts.Cutter
	groups     groups
}

// sidecar is a connected sidecar.
type sidecar struct {
	name       string
	hello      *pb.SidecarHello // nobody changes it
	session    Session
	welcomed   bool
	sent       uint64 // plans below this step of the attempt were sent
	attempt    uint32
	parts      []uint32   // data-parallel ranks whose parts of plans it gets, ascending; empty: it gets whole plans
	gpus       []*pb.Gpu  // newest figures
	feeds      []uint32   // data-parallel ranks in whose groups it is, ascending
	sentGroups *pb.Groups // newest that it was sent; nil: none
}

// NewSidecars returns an empty set, whose orders go to out. fence returns the fence that orders carry now.
func NewSidecars(out *Actions, fence func() *pb.Fence) *Sidecars {
	return &Sidecars{out: out, fence: fence, byName: map[string]*sidecar{}, connected: map[Session]bool{},
		succession: succession{}, cutter: parts.NewCutter(), groups: groups{}}
}

// Connect observes a sidecar and replaces its predecessor. It returns false for a process that was replaced before, and
// for one that the same `up` started before the one that is there: its messages may arrive after those of its
// successor.
func (s *Sidecars) Connect(session Session, hello *pb.SidecarHello) bool {
	old := s.byName[hello.Name]
	isEarlier := old != nil && hello.Up == old.hello.Up && hello.Born < old.hello.Born
	if isEarlier || s.succession.isReplaced(hello.Name, hello.Identity) {
		s.bye(session, hello.Name)
		return false
	}
	changed := []*sidecar{}
	if old != nil {
		s.bye(old.session, hello.Name)
		delete(s.connected, old.session)
		s.groups.remove(old)
		changed = append(changed, old)
	}
	s.succession.follow(hello.Name, hello.Identity)
	sc := &sidecar{name: hello.Name, hello: hello, session: session,
		parts: slices.Compact(slices.Sorted(slices.Values(hello.Parts))), feeds: feedsOf(hello)}
	s.byName[hello.Name], s.connected[session] = sc, true
	s.groups.add(sc)
	s.tellGroups(append(changed, sc)...)
	return true
}

func (s *Sidecars) bye(to Session, name string) {
	s.Send(to,
		&pb.SidecarOrder{Order: &pb.SidecarOrder_Bye{Bye: &pb.Bye{Reason: "another process took over as " + name}}})
}

// Disconnect observes that a sidecar's stream ended. It returns false for a session that was replaced.
func (s *Sidecars) Disconnect(session Session, name string) bool {
	sc := s.byName[name]
	if sc == nil || sc.session != session {
		return false
	}
	delete(s.byName, name)
	delete(s.connected, session)
	s.groups.remove(sc)
	s.tellGroups(sc)
	return true
}

// Has reports whether a session is that of a connected sidecar, and not of one that was replaced or refused.
func (s *Sidecars) Has(session Session) bool { return s.connected[session] }

// Connected returns the sidecars that are connected. all is false if one was connected before and is not now.
func (s *Sidecars) Connected() (sessions []Session, all bool) {
	for _, sc := range s.sorted() {
		sessions = append(sessions, sc.session)
	}
	return sessions, len(sessions) == len(s.succession)
}

// Say adds a line for people.
func (s *Sidecars) Say(format string, args ...any) { s.out.Say(format, args...) }

// Send sends an order under the current fence.
func (s *Sidecars) Send(to Session, o *pb.SidecarOrder) {
	o.Fence = s.fence()
	s.out.Send(to, o)
}

// Broadcast sends an order to every sidecar.
func (s *Sidecars) Broadcast(o *pb.SidecarOrder) {
	for _, sc := range s.sorted() {
		s.Send(sc.session, o)
	}
}

// Welcome sends the files and the directory to each sidecar that does not have them. Plans make no sense before.
func (s *Sidecars) Welcome(files *pb.Welcome, dir *pb.Loaders) {
	for _, sc := range s.sorted() {
		if sc.welcomed {
			continue
		}
		sc.welcomed = true
		s.Send(sc.session, &pb.SidecarOrder{Order: &pb.SidecarOrder_Welcome{Welcome: files}})
		s.Send(sc.session, &pb.SidecarOrder{Order: &pb.SidecarOrder_Loaders{Loaders: dir}})
	}
}

// SendPlans sends each sidecar the sealed plans of an attempt that it does not have, or its parts of them: steps from
// below next, and not below the watermark. Sidecars with the same ranks share one encoded part.
func (s *Sidecars) SendPlans(attempt uint32, watermark, next uint64, plan func(step uint64) *pb.Plan) error {
	s.cutter.Forget(watermark)
	made := map[string]*pb.SidecarOrder{}
	for _, sc := range s.sorted() {
		if !sc.welcomed {
			continue
		}
		if sc.attempt != attempt {
			sc.attempt, sc.sent = attempt, watermark
		}
		for sc.sent = max(sc.sent, watermark); sc.sent < next; sc.sent++ {
			key := fmt.Sprint(sc.sent, sc.parts)
			if made[key] == nil {
				o, err := s.planOrder(plan(sc.sent), sc.parts)
				if err != nil {
					return err
				}
				made[key] = o
			}
			if made[key].Order != nil {
				s.Send(sc.session, made[key])
			}
		}
	}
	return nil
}

// planOrder returns the order with a plan, or with a part of it. The order is empty if the plan has none of the ranks.
func (s *Sidecars) planOrder(plan *pb.Plan, ranks []uint32) (*pb.SidecarOrder, error) {
	if len(ranks) == 0 {
		return &pb.SidecarOrder{Order: &pb.SidecarOrder_Plan{Plan: plan}}, nil
	}
	part, err := s.cutter.Part(plan, ranks)
	if part == nil {
		return &pb.SidecarOrder{}, err
	}
	return &pb.SidecarOrder{Order: &pb.SidecarOrder_Part{Part: part}}, nil
}

// GPUFigures observes the figures of the GPUs of a sidecar's ranks.
func (s *Sidecars) GPUFigures(session Session, f *pb.GpuFigures) {
	for _, sc := range s.byName {
		if sc.session == session {
			sc.gpus = f.Gpus
		}
	}
}

// GPUs returns the newest figures of all ranks' GPUs.
func (s *Sidecars) GPUs() (out []*pb.Gpu) {
	for _, sc := range s.sorted() {
		out = append(out, sc.gpus...)
	}
	return out
}

// Roles describes the sidecars, by name.
func (s *Sidecars) Roles(term uint64) (out []*pb.RoleStatus) {
	for _, sc := range s.sorted() {
		out = append(out, &pb.RoleStatus{Role: "sidecar", Name: sc.name, Pid: sc.hello.Pid, Host: sc.hello.Host,
			State: "running", Term: term})
	}
	return out
}

func (s *Sidecars) sorted() []*sidecar {
	out := make([]*sidecar, 0, len(s.byName))
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		out = append(out, s.byName[name])
	}
	return out
}
