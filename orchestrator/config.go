package orchestrator

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"millrace"
	"millrace/orchestrator/attempts"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/feedback"
	"millrace/orchestrator/ledger"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/scale"
)

// Source describes a source before it is opened.
type Source struct {
	Name    string
	Stripes int // parts that are read apart; they have no effect on plans
	// Work is that of each stripe, in any unit, and Resident the bytes that a loader holds for the source. Both are 0
	// until a loader has measured them. They decide which loader reads a stripe.
	Work, Resident int64
	// Allowed returns how many quarantined records the budget takes. records is their total if they are counted, else
	// the number of records seen so far.
	Allowed func(counted bool, records uint64) uint64
}

// Config describes a run.
type Config struct {
	Stream millrace.Stream
	Spec   *planner.Spec
	Cost   cost.Cost // of Topology.Place
	// Topology is the one of the mixture file. A machine has a value of its own, which follows the ranks.
	*attempts.Topology
	// Adaptive derives weights from reported losses; nil: the schedule alone decides. Refit is the number of steps
	// between two fits of the costs to reported times; 0: only when a user asks for it.
	Adaptive *feedback.Settings
	Refit    uint64
	// Reshape returns another topology of the run. nil: the topology is fixed. Otherwise it follows the ranks: when all
	// have left, the first rank that joins from a host with another topology brings the next one. It becomes a fact of
	// the journal with the attempt that these ranks open. Until then, no step is planned: every plan of the earlier
	// attempt has the earlier placement.
	Reshape     func(millrace.Topology) (*attempts.Topology, error)
	Sources     []Source // sorted by name, as Spec.Sources
	Identity    []byte   // canonical JSON
	facts.Rules          // of migrating a saved state to this run
	// Compare returns an error that names the file which differs between a pinned manifest and the files that a loader
	// sees.
	Compare func(pinned, now *millrace.Manifest) error
	Shadows int // shadows of a sound run
	// Memory bounds the resident bytes of a loader's sources.
	Memory  int64
	Loaders int // that are waited for at the start of a run; more may come at any time
	// MostLoaders is how many of them read; further ones wait. 0: all of them read.
	MostLoaders int
	// Inverse finds samples for the ledger. If it is nil, they are looked up in the plans that are kept.
	Inverse ledger.Inverse
	Runway  int    // steps planned ahead of the slowest rank, at least
	Ahead   Ahead  // how many more of them
	By      string // program version
	Host    string // name of this host; empty: the run has one
	Up      string // names this `up`; all orchestrators that it starts have the same
	// Incarnation names the run from the start of its first `up` to the end of its last one; empty: as Up.
	Incarnation string
	Log         *slog.Logger
	// Lasts makes Run continue after every rank has consumed the stream: ranks may begin it anew.
	Lasts bool
	// Elastic is the number of loaders that follows the work; nil: it is fixed.
	Elastic *Elastic
	// Further marks a stream beside the one that the run is for. Loaders read it only after a rank has declared a
	// start, and its failure does not end Run. It lasts.
	Further bool
	// sealed is offers.Sealed of each source; nil: queues do not look for sealed documents.
	sealed func(source int, o millrace.Ordinal) ([]millrace.Segment, error)
}

// Elastic describes loaders whose number follows the work.
type Elastic struct {
	scale.Limits
	Costs  scale.Costs // of the sources, before they are measured
	Memory int64       // of a loader, in bytes
}

// Ahead bounds the steps that are planned ahead of the slowest rank beyond Config.Runway: the number that the ranks
// consume within a given time, within all bounds. The zero Ahead allows none.
type Ahead struct {
	Time  time.Duration
	Steps int // at most, with those of Config.Runway
	Bytes int // of all sealed plans
}

func sourceNamed(sources []Source, name string) int {
	return slices.IndexFunc(sources, func(s Source) bool { return s.Name == name })
}

// incarnation names the `up` of the run: on several hosts, all of them from the first start to the last end.
func (c Config) incarnation() string { return cmp.Or(c.Incarnation, c.Up) }

// asLeft returns the topology with which a machine begins: that of the newest attempt, if the ranks of this `up`, or of
// this incarnation of a run, have opened it. Otherwise it is that of the configuration.
func (c *Config) asLeft(s *facts.State) (attempts.Topology, error) {
	placing := s.Attempt.GetPlacing()
	if c.Reshape == nil || placing == nil || s.Attempt.Up != c.incarnation() {
		return *c.Topology, nil
	}
	return c.with(attempts.ShapeOf(placing))
}

// with returns the topology with another arrangement of the ranks.
func (c *Config) with(t millrace.Topology) (attempts.Topology, error) {
	if t == c.Shape() {
		return *c.Topology, nil
	}
	other, err := c.Reshape(t)
	if err != nil {
		return attempts.Topology{}, fmt.Errorf("a run of %d ranks: %w", t.Ranks, err)
	}
	return *other, nil
}
