package roles

import (
	"context"
	"crypto/rand"

	"google.golang.org/grpc"

	"millrace/internal/secure"
	"millrace/orchestrator/follow"
	"millrace/orchestrator/lease"
)

// elect waits for the lease in the run's cluster, and returns the part of each stream; none if the run has no cluster.
// Until then, the journals of this process are copies of the leader's, if there are other hosts. While the lease keeps
// the run from being planned, the reason is a line of `up` and of `millrace status`.
func (r *role) elect(ctx context.Context, o Planning) (map[*stream]*lease.Grant, error) {
	if o.Cluster == "" {
		return nil, nil
	}
	c, err := r.etcd(o)
	if err != nil {
		return nil, err
	}
	identity := rand.Text()
	var journals []*follow.Follower
	for _, s := range r.streams {
		journals = append(journals, follow.New(r.following(s, identity)))
	}
	c.Journal = journals[0]
	for i, s := range r.streams[1:] {
		c.Further = append(c.Further, lease.Part{Stream: s.name, Journal: journals[i+1]})
	}
	c.Frozen = func(why string) {
		if why != "" {
			why = frozen + why
		}
		r.lacks(why)
	}
	e, err := lease.NewEtcd(c)
	if err != nil {
		return nil, err
	}
	grant, err := follow.Elect(ctx, e, journals...)
	if err != nil {
		return nil, err
	}
	out := map[*stream]*lease.Grant{r.streams[0]: grant}
	for _, s := range r.streams[1:] {
		out[s] = grant.Further(s.name)
	}
	return out, nil
}

// following returns the place of a stream's journal while another process leads, and the way to the leader.
func (r *role) following(s *stream, identity string) follow.Config {
	c := follow.Config{Journal: r.journal(s), Version: speaks(r.Version), Host: r.site.Name, Identity: identity,
		Log: r.log}
	if !r.isSpread() {
		return c
	}
	c.Dial = func(context.Context) (*grpc.ClientConn, error) {
		return grpc.NewClient(secure.Target, r.credentials.Client(r.net(), r.orchestrator(s), secure.Orchestrator)...)
	}
	return c
}
