// Package hosts keeps the hosts of a run in etcd: each `millrace up` registers the ranks that it serves, and all of
// them agree on the facts that must be equal everywhere. It also finds the leader of a run, and records how a run
// ended.
//
//	millrace/RUN/hosts/FIRST  a Host as JSON, attached to an etcd lease; FIRST is its first rank, with six digits
//	millrace/RUN/outcome      an Outcome as JSON
//
// Each file uses only later ones:
//
//	join.go     Join, Membership: registering, and staying registered
//	outcome.go  Outcome: how the run ended, for the hosts that did not plan it
//	find.go     Client: the hosts that are there, and the leader of the run
//	host.go     Host, and the rules by which hosts agree
package hosts

import (
	"crypto/rand"
	"fmt"
	"slices"

	"millrace"
)

// Host describes one `millrace up` of a run.
type Host struct {
	Name  string `json:"name"`  // of the host, for people
	Up    string `json:"up"`    // random identity of the `millrace up`
	First int    `json:"first"` // first of its ranks, which are consecutive
	Ranks int    `json:"ranks"`
	World int    `json:"world"` // ranks of the run

	// Incarnation names the run from the first host that registers to the last one that leaves; empty before Join.
	// Loaders is the number of loader processes on each host. The first host decides both, and the others adopt them.
	Incarnation string `json:"incarnation"`
	Loaders     int    `json:"loaders"`

	Mixture string `json:"mixture"` // digest of the mixture file
	Program string `json:"program"` // version
}

// String returns the ranks and the name.
func (h Host) String() string {
	if h.Ranks == 1 {
		return fmt.Sprintf("rank %d on %s", h.First, h.Name)
	}
	return fmt.Sprintf("ranks %d to %d on %s", h.First, h.First+h.Ranks-1, h.Name)
}

// Validate refuses ranks that do not fit the world. All hosts of a run have the same number of ranks, so that each host
// knows the processes of the others.
func (h Host) Validate() error {
	switch {
	case h.Ranks < 1 || h.World < h.Ranks || h.First < 0 || h.First+h.Ranks > h.World:
		return millrace.Errorf(millrace.ErrInvalid,
			"ranks %d to %d of %d: want --first-rank + --ranks to be at most --world-size", h.First,
			h.First+h.Ranks-1, h.World)
	case h.World%h.Ranks != 0 || h.First%h.Ranks != 0:
		return millrace.Errorf(millrace.ErrInvalid, "%d ranks from rank %d on, of %d: every host serves the same "+
			"number of ranks, so --world-size and --first-rank are multiples of --ranks", h.Ranks, h.First, h.World)
	}
	return nil
}

// conflict says that a host cannot register beside another one, which may be dead: etcd keeps its registration for some
// seconds.
type conflict struct{ error }

// Unwrap returns the reason.
func (c *conflict) Unwrap() error { return c.error }

// agree returns the host as it may register beside others, in any order. The error is a *conflict with ErrMismatch if
// another `up` has its ranks, or if the hosts do not belong to one run.
func (h Host) agree(others []Host) (Host, error) {
	others = slices.DeleteFunc(slices.Clone(others), func(o Host) bool { return o.Up == h.Up })
	for _, o := range others {
		if err := h.differs(o); err != nil {
			return h, &conflict{err}
		}
	}
	for _, o := range others {
		if o.First == h.First {
			return h, &conflict{millrace.Errorf(millrace.ErrMismatch,
				"etcd has %s already (up %s): give each host its own --first-rank", o, o.Up)}
		}
	}
	switch {
	case len(others) > 0:
		h.Incarnation, h.Loaders = others[0].Incarnation, others[0].Loaders
	case h.Incarnation == "":
		h.Incarnation = rand.Text()
	}
	return h, nil
}

// differs names the first fact in which two hosts of one run differ.
func (h Host) differs(o Host) error {
	refuse := func(what, cure string) error {
		return millrace.Errorf(millrace.ErrMismatch, "%s does not belong to the run of %s: %s: %s", h, o, what, cure)
	}
	switch {
	case h.Program != o.Program:
		return refuse(fmt.Sprintf("it runs millrace %s, not %s", h.Program, o.Program),
			"install one version on all hosts")
	case h.World != o.World:
		return refuse(fmt.Sprintf("its --world-size is %d, not %d", h.World, o.World),
			"start every host with the same --world-size, or stop the other hosts first")
	case h.Ranks != o.Ranks:
		return refuse(fmt.Sprintf("its --ranks is %d, not %d", h.Ranks, o.Ranks),
			"start every host with the same --ranks")
	case h.Mixture != o.Mixture:
		return refuse(fmt.Sprintf("its mixture file has digest %.12s, not %.12s", h.Mixture, o.Mixture),
			"copy one mixture file to all hosts")
	case h.Incarnation != "" && h.Incarnation != o.Incarnation:
		return refuse("the other hosts began anew while this one was away", "start it again")
	}
	return nil
}
