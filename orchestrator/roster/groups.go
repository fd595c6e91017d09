package roster

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "millrace/proto"
)

// groups has the sidecars whose hosts need the tokens of a data-parallel rank, by name. Their order and the rank decide
// which of them is the rank's constructor. So the constructors of many ranks are spread over the hosts.
type groups map[uint32][]*sidecar

func byName(x, y *sidecar) int { return cmp.Compare(x.name, y.name) }

func (g groups) add(x *sidecar) {
	for _, rank := range x.feeds {
		at, _ := slices.BinarySearchFunc(g[rank], x, byName)
		g[rank] = slices.Insert(g[rank], at, x)
	}
}

func (g groups) remove(x *sidecar) {
	for _, rank := range x.feeds {
		g[rank] = slices.DeleteFunc(g[rank], func(y *sidecar) bool { return x == y })
	}
}

// of returns the groups of a sidecar's data-parallel ranks.
func (g groups) of(x *sidecar) *pb.Groups {
	out := &pb.Groups{}
	for _, rank := range x.feeds {
		group := g[rank]
		if len(group) < 2 {
			continue
		}
		first := group[int(rank)%len(group)]
		out.Group = append(out.Group,
			&pb.Group{Rank: rank, Name: first.name, Remote: first.hello.Remote, Hosts: uint32(len(group))})
	}
	return out
}

// feedsOf returns the data-parallel ranks in whose groups a sidecar is. One that serves no other host is in none.
func feedsOf(hello *pb.SidecarHello) []uint32 {
	if hello.Remote == "" {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(hello.Feeds)))
}

// tellGroups sends the groups of changed sidecars to all their members, unless a member was last sent the same.
func (s *Sidecars) tellGroups(changed ...*sidecar) {
	touched := map[string]*sidecar{}
	for _, x := range changed {
		for _, rank := range x.feeds {
			for _, y := range s.groups[rank] {
				touched[y.name] = y
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(touched)) {
		x := touched[name]
		if now := s.groups.of(x); x.sentGroups == nil || !proto.Equal(now, x.sentGroups) {
			x.sentGroups = now
			s.Send(x.session, &pb.SidecarOrder{Order: &pb.SidecarOrder_Groups{Groups: now}})
		}
	}
}
