package roster

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"millrace"
	"millrace/orchestrator/offers"
	pb "millrace/proto"
)

// Absence is how long a stripe without a standby waits for its last reader to come back before another loader reads it.
const Absence = time.Second

// Config describes the loaders of a run.
type Config struct {
	Sources []Source
	Memory  int64  // resident bytes of a loader's sources, at most; 0: nothing bounds them
	Loaders int    // that are expected at the start; more may come at any time
	Up      string // names this `millrace up`; loaders of another are gone
	Program string // version of this program
	// Compare returns an error that names the file which differs between a pinned manifest and the files that a loader
	// sees now.
	Compare func(pinned, now *millrace.Manifest) error
	// Fence returns the fence that orders carry now.
	Fence func() *pb.Fence
}

// Roster is the loaders that are connected, the stripes that they hold, and the offers that they made. Not safe for
// concurrent use.
type Roster struct {
	cfg      Config
	out      *Actions
	queues   offers.Queues
	wants    []millrace.Ordinal // by source: loaders were asked to offer below this ordinal
	ordinals []Ordinals         // by source
	unpinned []*pb.Manifest     // seen, not yet journaled
	members  map[string]*member
	stripes  stripes
	lost     map[string]absence // members that were lost, by name
	left     map[string]bool    // loaders that left for good

	succession succession

	began, now time.Time
	limit      int  // of the loaders that read; 0: none
	isShared   bool // every stripe has an owner
	unshared   bool // the owners may have to change
	waits      bool // a loader is away that may come back, or is expected
	formers    []former
	unsettled  bool   // assignments may have to change
	newcomers  bool   // members connected since the roster was settled
	deferred   bool   // they change when the next step is sealed
	switches   uint64 // stripes that a standby took over
	protected  int64  // unix milliseconds: since then every stripe has a ready standby; 0: not now
}

// absence is a member that is away since a time.
type absence struct {
	since    time.Time
	isShadow bool
	host, up string
}

// New returns a roster without members. Its orders go to out.
func New(cfg Config, out *Actions) *Roster {
	r := &Roster{cfg: cfg, out: out, wants: make([]millrace.Ordinal, len(cfg.Sources)),
		ordinals: make([]Ordinals, len(cfg.Sources)), members: map[string]*member{},
		stripes: newStripes(cfg.Sources), succession: succession{}, lost: map[string]absence{}, left: map[string]bool{},
		unsettled: true, unshared: true}
	for _, src := range cfg.Sources {
		r.queues = append(r.queues, offers.NewQueue(src.Name, src.Stripes))
	}
	return r
}

// Queues returns the offers of all sources, in the order of the configuration. They change as loaders offer.
func (r *Roster) Queues() offers.Queues { return r.queues }

// Tick observes the time.
func (r *Roster) Tick(now time.Time) {
	if r.now = now; r.began.IsZero() {
		r.began = now
	}
	if r.waits || !r.isShared { // a loader may have been away for too long
		r.unshared, r.unsettled = true, true
	}
	if r.stripes.unread > 0 { // a member that was waited for may have been away for too long
		r.unsettled = true
	}
	r.dropFormers()
}

// Unpinned returns the manifests to journal, in the order in which they were seen first.
func (r *Roster) Unpinned() []*pb.Manifest { return r.unpinned }

// Pin observes that the manifest of a source is durable.
func (r *Roster) Pin(durable *pb.Manifest) {
	r.unpinned = slices.DeleteFunc(r.unpinned, func(mf *pb.Manifest) bool { return mf.Source == durable.Source })
	r.unsettled = true
}

func (r *Roster) sortedMembers() []*member {
	return slices.SortedFunc(maps.Values(r.members), func(a, b *member) int { return cmp.Compare(a.name, b.name) })
}

// order sends a loader how far to read, if that has changed, and then other orders.
func (r *Roster) order(l *member, orders ...*pb.LoaderOrder) {
	if reading := l.pending.take(); reading != nil {
		orders = append([]*pb.LoaderOrder{reading}, orders...)
	}
	for _, o := range orders {
		o.Fence = r.cfg.Fence()
		r.out.Send(l.session, o)
	}
}

func (r *Roster) bye(l *member, reason string) {
	r.order(l, &pb.LoaderOrder{Order: &pb.LoaderOrder_Bye{Bye: &pb.Bye{Reason: reason}}})
}
