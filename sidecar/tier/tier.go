package tier

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"millrace"
	"millrace/internal/failpoint"
	"millrace/internal/seam"
	"millrace/proto"
	"millrace/sidecar"
)

// Config describes a sidecar and its surroundings.
type Config struct {
	Name    string // of the sidecar
	Loaders sidecar.Fetcher
	// Plan returns a step of an attempt and blocks until it is here.
	Plan func(context.Context, millrace.Attempt, millrace.Step) (*sidecar.StepPlan, error)
	// IsMasked reports whether an assignment is masked.
	IsMasked func(*millrace.Assignment) bool
	Feeds    []millrace.Rank // data-parallel ranks whose tokens this host needs
	Net      Network
	Room     int64 // bytes of tokens that are kept for peers alone, at most
	Clock    seam.Clock
	Fail     *failpoint.Set
	Log      *slog.Logger
}

// Network has the connections to other sidecars.
type Network interface {
	Dial(address string) (grpc.ClientConnInterface, error)
	// KeepOnly closes the connections to all other addresses.
	KeepOnly(addresses []string)
}

// Tier implements sidecar.Fetcher. It is safe for concurrent use.
type Tier struct {
	cfg   Config
	shelf *shelf
	asked sync.WaitGroup // fetches, and requests that a fetch has gone on without
	life  context.Context
	end   context.CancelFunc

	loaders, constructors, peers atomic.Int64 // bytes of tokens

	mu     sync.Mutex
	closed bool
	groups map[millrace.Rank]*proto.Group
	known  map[string]*constructor // by address
}

// New returns a tier without groups. The caller closes it.
func New(c Config) *Tier {
	t := &Tier{cfg: c, groups: map[millrace.Rank]*proto.Group{}, known: map[string]*constructor{}}
	t.life, t.end = context.WithCancel(context.Background())
	t.shelf = newShelf(c.Room, t.fromLoaders)
	return t
}

// Close ends all fetches that concern other hosts, and waits for their end.
func (t *Tier) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.end()
	t.shelf.close()
	t.asked.Wait()
}

// Follow replaces the groups.
func (t *Tier) Follow(groups *proto.Groups) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.groups)
	addresses := map[string]bool{}
	for _, g := range groups.Group {
		t.groups[millrace.Rank(g.Rank)] = g
		if g.Name != t.cfg.Name {
			addresses[g.Remote] = true
			if t.known[g.Remote] == nil {
				t.known[g.Remote] = &constructor{name: g.Name, address: g.Remote}
			}
		}
	}
	maps.DeleteFunc(t.known, func(address string, _ *constructor) bool { return !addresses[address] })
	t.cfg.Net.KeepOnly(slices.Sorted(maps.Keys(addresses)))
}

// AsksLoaders reports whether this host asks the loaders for the tokens of any rank, as long as no constructor fails.
func (t *Tier) AsksLoaders() bool { return len(t.divide(t.cfg.Feeds, nil).own) > 0 }

// division has the data-parallel ranks of a fetch by the process that is asked for their tokens.
type division struct {
	own      []millrace.Rank // the loaders
	isShared bool            // other hosts need tokens of own
	fed      map[*constructor][]millrace.Rank
}

// divide divides ranks by their constructors. Those in held are the loaders' in any case.
func (t *Tier) divide(ranks, held []millrace.Rank) division {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := division{fed: map[*constructor][]millrace.Rank{}}
	for _, r := range ranks {
		switch g := t.groups[r]; {
		case g != nil && g.Name != t.cfg.Name && !slices.Contains(held, r):
			from := t.known[g.Remote]
			d.fed[from] = append(d.fed[from], r)
		default:
			d.own = append(d.own, r)
			d.isShared = d.isShared || g != nil
		}
	}
	return d
}

// Fetch implements sidecar.Fetcher.
func (t *Tier) Fetch(ctx context.Context, plan *millrace.Plan, ranks []millrace.Rank) (sidecar.Payload, error) {
	_, held := t.shelf.find(keyOf(plan)) // a peer may have asked for the step before
	d := t.divide(ranks, held)
	if len(d.fed) == 0 && !d.isShared || !t.enter() {
		return t.fromLoaders(ctx, plan, ranks)
	}
	defer t.asked.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.life, cancel)()
	out := &union{plan: plan, of: map[millrace.Rank]sidecar.Payload{}}
	var mu sync.Mutex
	group, gctx := errgroup.WithContext(ctx)
	fetch := func(ranks []millrace.Rank, from func(context.Context) (sidecar.Payload, error)) {
		group.Go(func() error {
			p, err := from(gctx)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			out.add(ranks, p)
			return nil
		})
	}
	if len(d.own) > 0 {
		fetch(d.own, func(ctx context.Context) (sidecar.Payload, error) {
			return t.ownPart(ctx, plan, d)
		})
	}
	for from, ranks := range d.fed {
		fetch(ranks, func(ctx context.Context) (sidecar.Payload, error) { return t.fed(ctx, plan, from, ranks) })
	}
	if err := group.Wait(); err != nil {
		out.Release()
		return nil, err
	}
	return out, nil
}

// enter notes a fetch. It returns false if the tier is closed.
func (t *Tier) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.asked.Add(1)
	}
	return !t.closed
}

// ownPart fetches from the loaders, for the peers as well if there are any.
func (t *Tier) ownPart(ctx context.Context, plan *millrace.Plan, d division) (sidecar.Payload, error) {
	if !d.isShared {
		return t.fromLoaders(ctx, plan, d.own)
	}
	x := t.shelf.take(plan, d.own, t.peersOf(d.own))
	if !includes(x.ranks, d.own) { // the groups have changed since a peer asked for the step
		t.shelf.give(x)
		return t.fromLoaders(ctx, plan, d.own)
	}
	if err := x.wait(ctx); err != nil {
		t.shelf.give(x)
		return nil, err
	}
	return &lent{Payload: x.payload, give: func() { t.shelf.give(x) }}, nil
}

// peersOf returns the number of peers of ranks of which this sidecar is the constructor.
func (t *Tier) peersOf(ranks []millrace.Rank) map[millrace.Rank]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[millrace.Rank]int{}
	for _, r := range ranks {
		if g := t.groups[r]; g != nil && g.Name == t.cfg.Name {
			out[r] = int(g.Hosts) - 1
		}
	}
	return out
}

// fromLoaders fetches from the loaders.
func (t *Tier) fromLoaders(ctx context.Context, plan *millrace.Plan, ranks []millrace.Rank) (sidecar.Payload, error) {
	p, err := t.cfg.Loaders.Fetch(ctx, plan, ranks)
	if err == nil {
		t.loaders.Add(bytesOf(plan, ranks, p))
	}
	return p, err
}

// Supply returns the bytes of tokens that have come and gone.
func (t *Tier) Supply() *proto.Supply {
	return &proto.Supply{
		FromLoaders: t.loaders.Load(), FromConstructors: t.constructors.Load(), ToPeers: t.peers.Load(),
	}
}
