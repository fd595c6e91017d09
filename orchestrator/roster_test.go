package orchestrator

import (
	"fmt"
	"slices"

	"millrace/orchestrator/roster"
	"millrace/proto"
)

// hearManifest observes a loader's report of a source's files.
func hearManifest(m *Machine, from roster.Session, name string, mf *proto.Manifest) {
	m.LoaderEvent(from, name, &proto.LoaderEvent{Event: &proto.LoaderEvent_Manifest{Manifest: mf}})
}

// hearOffers observes a loader's offers under a term.
func hearOffers(m *Machine, from roster.Session, name string, term uint64, offers *proto.Offers) {
	offers.Term = term
	offered := &proto.Offered{Stripes: []*proto.Offers{offers}}
	m.LoaderEvent(from, name, &proto.LoaderEvent{Event: &proto.LoaderEvent_Offered{Offered: offered}})
}

// reader returns the reader of a stripe, an empty entry for none.
func reader(m *Machine, source string, stripe uint32) *proto.LoaderStripe {
	stripes := m.roster.Directory().Stripes
	i := slices.IndexFunc(stripes, func(s *proto.LoaderStripe) bool { return s.Source == source && s.Stripe == stripe })
	if i < 0 {
		return &proto.LoaderStripe{}
	}
	return stripes[i]
}

// isConnected reports whether the status of a run lists a role.
func isConnected(m *Machine, name string) bool {
	return slices.ContainsFunc(m.Status().Roles, func(r *proto.RoleStatus) bool { return r.Name == name })
}

// plans returns the digests of all sealed steps.
func (c *cluster) plans() (out []string) {
	for _, f := range c.journal {
		if f.Plan != nil {
			out = append(out,
				fmt.Sprintf("%d/%d %x %x", f.Plan.Fence.Attempt, f.Plan.Step, f.Plan.Content, f.Plan.Placement))
		}
	}
	return out
}
