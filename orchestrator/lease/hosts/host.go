// Package hosts keeps the hosts of a run in etcd: each `millrace up`, and each command of a single role, registers, and
// all of them agree on the facts that must be equal everywhere. It also finds the leader of a run, and records how a
// run ended.
//
//	millrace/RUN/hosts/FIRST  a Host with ranks as JSON, attached to an etcd lease; FIRST is its first rank, with six
//	                          digits
//	millrace/RUN/hosts/LABEL  a Host without ranks, by the name of its process
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

// Host describes one member of a run: an `up`, or a command of a single role.
type Host struct {
	Name  string `json:"name"`            // of the host, for people
	Up    string `json:"up"`              // random identity of the `millrace up`, or of the command
	Role  string `json:"role,omitempty"`  // of a command of a single role; empty: `up`, which runs all of them
	Label string `json:"label,omitempty"` // of a host without ranks: the name of its process, unique in the run
	First int    `json:"first"`           // first of its ranks, which are consecutive
	Ranks int    `json:"ranks"`           // 0: none
	World int    `json:"world"`           // ranks of the run
	// Axes are the sizes of tp, cp and pp; empty, and 0: as in the mixture file. Began is the first rank with which
	// this host began: its processes are named by it, and so is its key. Shape counts the changes of the ranks. Hosts
	// of one shape agree on World and Axes, and have different ranks.
	Axes  string `json:"axes,omitempty"`
	Began int    `json:"began"`
	Shape int    `json:"shape"`

	// Incarnation names the run from the first host that registers to the last one that leaves; empty before Join.
	// Loaders is the number of loader processes of each `up`. Readers is the number of loaders for which the sources
	// are divided into stripes. Profile has the known costs of reading the sources, as a text. The first host
	// decides all of them, and the others adopt them.
	Incarnation string `json:"incarnation"`
	Loaders     int    `json:"loaders"`
	Readers     int    `json:"readers"`
	Profile     string `json:"profile,omitempty"`

	Mixture string `json:"mixture"` // digest of the mixture file
	Program string `json:"program"` // version
}

// String returns the ranks, or the process, and the name.
func (h Host) String() string {
	switch h.Ranks {
	case 0:
		return fmt.Sprintf("%s on %s", h.Label, h.Name)
	case 1:
		return fmt.Sprintf("rank %d on %s", h.First, h.Name)
	}
	return fmt.Sprintf("ranks %d to %d on %s", h.First, h.First+h.Ranks-1, h.Name)
}

// Validate refuses ranks that do not fit the world.
func (h Host) Validate() error {
	if h.Ranks == 0 && h.First == 0 && h.World > 0 && h.Label != "" {
		return nil
	}
	if h.Ranks < 1 || h.World < h.Ranks || h.First < 0 || h.First+h.Ranks > h.World {
		return millrace.Errorf(millrace.ErrInvalid,
			"ranks %d to %d of %d: want --first-rank + --ranks to be at most --world-size", h.First,
			h.First+h.Ranks-1, h.World)
	}
	return nil
}

// conflict says that a host cannot register beside another one, which may be dead: etcd keeps its registration for some
// seconds.
type conflict struct{ error }

// Unwrap returns the reason.
func (c *conflict) Unwrap() error { return c.error }

// agree returns the host as it may register beside others, in any order. The error is a *conflict with ErrMismatch if
// another host has its ranks or its name, or if the hosts do not belong to one run.
func (h Host) agree(others []Host) (Host, error) {
	others = slices.DeleteFunc(slices.Clone(others), func(o Host) bool { return o.Up == h.Up })
	if h.Incarnation == "" { // it has just begun, and takes the newest shape
		for _, o := range others {
			if o.Shape > h.Shape {
				h.Shape, h.Axes = o.Shape, o.Axes
			}
		}
		h.Began = h.First
	}
	for _, o := range others {
		if err := h.differs(o); err != nil {
			return h, &conflict{err}
		}
	}
	for _, o := range others {
		if err := h.collides(o); err != nil {
			return h, &conflict{err}
		}
	}
	switch {
	case len(others) > 0:
		h.Incarnation, h.Loaders, h.Readers = others[0].Incarnation, others[0].Loaders, others[0].Readers
		h.Profile = others[0].Profile
	case h.Incarnation == "":
		h.Incarnation = rand.Text()
	}
	return h, nil
}

// reshaped returns the host with other ranks of another world. Its shape is the newest one, if another host has that
// already, and else a further one.
func (h Host) reshaped(others []Host, first, ranks, world int, axes string) Host {
	next := Host{Shape: h.Shape}
	for _, o := range others {
		if o.Up != h.Up && o.Shape > next.Shape {
			next = o
		}
	}
	h.First, h.Ranks, h.World, h.Axes = first, ranks, world, axes
	if next.Shape == h.Shape || next.World != world || next.Axes != axes {
		next.Shape++
	}
	h.Shape = next.Shape
	return h
}

// collides reports that another host has a rank or the name of this one.
func (h Host) collides(o Host) error {
	if h.Ranks == 0 && o.Ranks == 0 && h.Label == o.Label {
		return millrace.Errorf(millrace.ErrMismatch, "etcd has %s already (up %s): give each process its own --name, "+
			"or end the other one first", o, o.Up)
	}
	if h.Ranks > 0 && o.Ranks > 0 && h.Began == o.Began && h.Shape != o.Shape {
		return millrace.Errorf(millrace.ErrMismatch, "etcd has a host already that began with rank %d (up %s), and "+
			"names its processes by it: begin this host with other ranks", o.Began, o.Up)
	}
	if h.Shape == o.Shape && h.First < o.First+o.Ranks && o.First < h.First+h.Ranks {
		return millrace.Errorf(millrace.ErrMismatch,
			"etcd has %s already (up %s): give each host its own --first-rank", o, o.Up)
	}
	return nil
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
	case h.Shape == o.Shape && h.Axes != o.Axes:
		return refuse(fmt.Sprintf("its axes of parallelism are %q, not %q", h.Axes, o.Axes),
			"give `millrace topology` the same --tp, --cp and --pp for all hosts")
	case h.Shape == o.Shape && h.World != o.World:
		return refuse(fmt.Sprintf("its --world-size is %d, not %d", h.World, o.World),
			"start every host with the same --world-size, or stop the other hosts first")
	case h.Mixture != o.Mixture:
		return refuse(fmt.Sprintf("its mixture file has digest %.12s, not %.12s", h.Mixture, o.Mixture),
			"copy one mixture file to all hosts")
	case h.Incarnation != "" && h.Incarnation != o.Incarnation:
		return refuse("the other hosts began anew while this one was away", "start it again")
	}
	return nil
}
