package lease

import (
	"context"
	"slices"

	"millrace"
)

// Journal is one copy of the run's journal.
type Journal struct {
	ID   string `json:"journal"` // its random name
	Host string `json:"host"`    // for people
}

// Keeper is a lease that keeps the list of the journals in step: those that have every fact that counts. Only a
// candidate whose journal is listed is elected. While there is no list, every candidate may be.
type Keeper interface {
	Lease
	// List replaces the list. It blocks as Commit does, and its error is ErrFenced if the lease has ended.
	List(ctx context.Context, journals []Journal) error
}

// Standing is the journal of a candidate, which may be a copy that is being written.
type Standing interface {
	// ID returns the name of the journal now, "" if there is none.
	ID() (string, error)
	// Stand ends all writes to the journal, and returns its name. Both stay so until Yield.
	Stand() (string, error)
	// Yield lets writes continue, because the candidate was not elected.
	Yield()
}

// without is the journal of a candidate that has none.
type without struct{}

func (without) ID() (string, error)    { return "", nil }
func (without) Stand() (string, error) { return "", nil }
func (without) Yield()                 {}

// list is the list of journals as a candidate read it.
type list struct {
	journals []Journal
	revision int64 // of its newest change; 0: there is no list
}

// admits reports whether a candidate with a journal may be elected.
func (l list) admits(id string) bool {
	return l.revision == 0 || slices.ContainsFunc(l.journals, func(j Journal) bool { return id != "" && j.ID == id })
}

// holders says for people which hosts have the listed journals, with the verb.
func (l list) holders() string {
	out := ""
	for i, j := range l.journals {
		if i > 0 {
			out += " and "
		}
		out += j.Host
	}
	if len(l.journals) == 1 {
		return out + " has"
	}
	return out + " have"
}

// Grant is a lease that was granted before its holder opened the journal. It is of one stream, and knows the grants of
// the run's other streams.
type Grant struct {
	lease   Lease
	ctx     context.Context
	run     string
	further map[millrace.Stream]*Grant
}

// Elector elects one candidate at a time.
type Elector interface {
	// Elect blocks until the lease is granted to this candidate, or ctx ends. Writes to the candidate's journal have
	// ended then (Standing.Stand). The lease ends with ctx.
	Elect(ctx context.Context) (*Grant, error)
}

// Further returns the grant of a further stream, for which the candidate was elected, too.
func (g *Grant) Further(stream millrace.Stream) *Grant { return g.further[stream] }

// NewGrant returns the grant of an elector's lease. ctx ends with the lease, and run names the run for people.
func NewGrant(l Lease, ctx context.Context, run string) *Grant {
	return &Grant{lease: l, ctx: ctx, run: run}
}

// Acquire implements Leaser. It does not wait. The lease ends with the context of Elect. If the term is not higher than
// all of the journal, it is released.
func (g *Grant) Acquire(_ context.Context, above millrace.Term) (Lease, context.Context, error) {
	if g.lease.Term() <= above {
		g.Release()
		return nil, nil, millrace.Errorf(millrace.ErrMismatch, "acquire the lease of run %s from etcd: etcd is at "+
			"revision %d, and the run's journal has term %d: this is another etcd, or one from a backup: name the "+
			"run's etcd, or start a new run directory from a saved state", g.run, g.lease.Term(), above)
	}
	return g.lease, g.ctx, nil
}

// Release ends the lease of the stream. The process leads until all of its streams are released. Release may be called
// again.
func (g *Grant) Release() { g.lease.Release() }

var (
	_ Leaser  = (*Grant)(nil)
	_ Elector = (*Etcd)(nil)
)
