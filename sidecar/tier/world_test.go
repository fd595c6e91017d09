package tier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"millrace"
	"millrace/constructors"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
	"millrace/sidecar/incoming"
	"millrace/verify/sim/memnet"
)

// world is a run of several hosts without an orchestrator and without loaders.
type world struct {
	t     *testing.T
	net   *memnet.Net
	plans map[millrace.Step]*millrace.Plan
	hosts []*host
	bad   map[millrace.Ordinal]bool // masked
}

// host is a host with a tier. It implements sidecar.Fetcher as the loaders do, and Network.
type host struct {
	*world
	name   string
	feeds  []millrace.Rank
	tier   *Tier
	server *grpc.Server

	mu      sync.Mutex
	conns   map[string]*grpc.ClientConn
	asked   []millrace.Rank // of the loaders, one for each fetch
	slow    time.Duration   // of each fetch from the loaders
	broken  error           // of each fetch from the loaders
	lacks   bool            // it gets no plans
	other   *millrace.Plan  // it gets this one
	blind   bool            // it knows no masks
	altered func(*proto.FetchReply)
}

// newWorld returns hosts with tiers that know their groups. feeds has the data-parallel ranks of each host.
func newWorld(t *testing.T, feeds ...[]millrace.Rank) *world {
	w := &world{t: t, net: memnet.New(), plans: map[millrace.Step]*millrace.Plan{}, bad: map[millrace.Ordinal]bool{}}
	for i, f := range feeds {
		h := &host{world: w, name: fmt.Sprint("host-", i), feeds: f, conns: map[string]*grpc.ClientConn{}}
		h.tier = New(Config{Name: h.name, Loaders: h, Plan: h.plan, Feeds: f, Net: h, Room: 1 << 20,
			IsMasked: func(a *millrace.Assignment) bool { return w.bad[a.Ordinal] && !h.blind },
			Clock:    seam.System{}, Log: slog.New(slog.DiscardHandler)})
		w.hosts = append(w.hosts, h)
		h.serve()
	}
	w.group()
	t.Cleanup(w.close)
	return w
}

func (w *world) close() {
	for _, h := range w.hosts {
		h.server.Stop()
		h.tier.Close()
		h.KeepOnly(nil)
	}
}

// group tells the tiers their groups, by the rule of the orchestrator.
func (w *world) group() {
	for _, h := range w.hosts {
		groups := &proto.Groups{}
		for _, r := range h.feeds {
			var of []*host
			for _, other := range w.hosts {
				if slices.Contains(other.feeds, r) {
					of = append(of, other)
				}
			}
			if len(of) > 1 {
				first := of[int(r)%len(of)]
				groups.Group = append(groups.Group, &proto.Group{Rank: uint32(r), Name: first.name, Remote: first.name,
					Hosts: uint32(len(of))})
			}
		}
		h.tier.Follow(groups)
	}
}

// serve serves the host's peers.
func (h *host) serve() {
	h.server = grpc.NewServer(grpc.ForceServerCodecV2(wire.NewPayload()), grpc.WaitForHandlers(true),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (
			err error,
		) {
			return next(srv, &altering{s, h})
		}))
	proto.RegisterConstructorServer(h.server, h.tier.Server())
	l, err := h.net.Host(h.name).Listen(h.name)
	if err != nil {
		h.t.Fatal(err)
	}
	go h.server.Serve(l) // ends with Stop
}

// altering is the stream of a server that changes its replies.
type altering struct {
	grpc.ServerStream
	h *host
}

func (a *altering) SendMsg(m any) error {
	a.h.mu.Lock()
	change := a.h.altered
	a.h.mu.Unlock()
	if change != nil {
		change(m.(*proto.FetchReply))
	}
	return a.ServerStream.SendMsg(m)
}

func (h *host) plan(ctx context.Context, a millrace.Attempt, step millrace.Step) (*sidecar.StepPlan, error) {
	if h.other != nil {
		return &sidecar.StepPlan{Plan: h.other}, nil
	}
	if p := h.plans[step]; p != nil && p.Attempt == a && !h.lacks {
		return &sidecar.StepPlan{Plan: p}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// Dial implements Network.
func (h *host) Dial(address string) (grpc.ClientConnInterface, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.conns[address]; c != nil {
		return c, nil
	}
	from := h.net.Host(h.name)
	c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return from.Dial(ctx, address)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{
			BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewPayload())))
	h.conns[address] = c
	return c, err
}

// KeepOnly implements Network.
func (h *host) KeepOnly(addresses []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for address, c := range h.conns {
		if !slices.Contains(addresses, address) {
			delete(h.conns, address)
			c.Close()
		}
	}
}

// Fetch implements sidecar.Fetcher as the loaders do.
func (h *host) Fetch(ctx context.Context, plan *millrace.Plan, ranks []millrace.Rank) (sidecar.Payload, error) {
	h.mu.Lock()
	h.asked = append(h.asked, ranks...)
	slow, err := h.slow, h.broken
	h.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &truth{h.world, plan, false}, err
}

// truth implements sidecar.Payload.
type truth struct {
	w        *world
	plan     *millrace.Plan
	released bool
}

func (p *truth) Tokens(rank millrace.Rank, m uint32) (out []constructors.Tokens, err error) {
	if p.released {
		return nil, errors.New("used after its release")
	}
	for _, a := range p.plan.Part(rank, m) {
		wide, narrow := []uint32(nil), []uint16(nil)
		for k := range uint32(incoming.Planned(&a)) {
			id := uint32(a.Ordinal)*31 + a.Offset + k
			wide, narrow = append(wide, id|1<<31), append(narrow, uint16(id))
		}
		switch {
		case p.w.bad[a.Ordinal]:
			out = append(out, constructors.Tokens{})
		case a.Ordinal%3 == 0: // as it lies in a file of this host
			out = append(out, constructors.Narrow(narrow))
		default:
			out = append(out, constructors.Wide(wide))
		}
	}
	return out, nil
}

func (p *truth) Masked(rank millrace.Rank, m uint32) (out []bool) {
	if len(p.w.bad) == 0 {
		return nil
	}
	for _, a := range p.plan.Part(rank, m) {
		out = append(out, p.w.bad[a.Ordinal])
	}
	return out
}

func (p *truth) Fields(rank millrace.Rank, m uint32) (out []string) {
	for _, a := range p.plan.Part(rank, m) {
		text := ""
		if a.Ordinal%5 == 0 && !p.w.bad[a.Ordinal] {
			text = fmt.Sprintf(`{"n":%d}`, a.Ordinal)
		}
		out = append(out, text)
	}
	return out
}

func (p *truth) Bytes() int64 { return 1000 }

func (p *truth) Release() {
	if p.released {
		panic("released twice")
	}
	p.released = true
}

// draw makes the plan of a step: documents of all lengths, some longer than a reply.
func (w *world) draw(rng *rand.Rand, step millrace.Step, ranks, microbatches uint32, longest int) *millrace.Plan {
	p := &millrace.Plan{Stream: millrace.Train, Attempt: 1, Step: step, Ranks: ranks, Microbatches: microbatches}
	p.Placement[0] = byte(1 + step)
	for r := range ranks {
		for m := range microbatches {
			for range rng.IntN(5) { // none in some microbatches
				p.Assignments = append(p.Assignments, millrace.Assignment{Rank: millrace.Rank(r), Microbatch: m,
					Segment: millrace.Segment{Ordinal: millrace.Ordinal(rng.IntN(1000)), Offset: uint32(rng.IntN(9)),
						Length: uint32(1 + rng.IntN(longest)), More: rng.IntN(2) == 0}})
			}
		}
	}
	w.plans[step] = p
	return p
}

// fetch fetches a step on a host and compares it with the truth.
func (h *host) fetch(p *millrace.Plan) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := h.tier.Fetch(ctx, p, h.feeds)
	if err != nil {
		h.t.Errorf("%s: %v", h.name, err)
		return
	}
	want := &truth{h.world, p, false}
	for _, r := range h.feeds {
		for m := range p.Microbatches {
			tokens, err := got.Tokens(r, m)
			if err != nil {
				h.t.Error(err)
			}
			expected, _ := want.Tokens(r, m)
			same := func(a, b constructors.Tokens) bool { return slices.Equal(a.IDs(), b.IDs()) }
			if !slices.EqualFunc(tokens, expected, same) {
				h.t.Errorf("%s: step %d, rank %d, microbatch %d has other tokens", h.name, p.Step, r, m)
			}
			masked, fields := got.Masked(r, m), got.Fields(r, m)
			for i, a := range p.Part(r, m) {
				if (masked != nil && masked[i]) != h.bad[a.Ordinal] {
					h.t.Errorf("%s: ordinal %d is masked: %t", h.name, a.Ordinal, !h.bad[a.Ordinal])
				}
				text := ""
				if fields != nil {
					text = fields[i]
				}
				if text != want.Fields(r, m)[i] {
					h.t.Errorf("%s: ordinal %d has the fields %q", h.name, a.Ordinal, text)
				}
			}
		}
	}
	for r := range millrace.Rank(p.Ranks) { // the batches of ranks without tensors are described, too
		if _, ok := got.(*union); !ok || slices.Contains(h.feeds, r) {
			continue
		}
		for m := range p.Microbatches {
			tokens, err := got.Tokens(r, m)
			if err != nil || len(tokens) != len(p.Part(r, m)) || got.Masked(r, m) != nil || got.Fields(r, m) != nil {
				h.t.Errorf("%s: rank %d, which is not fetched, has %d segments: %v", h.name, r, len(tokens), err)
			}
		}
	}
	got.Release()
}

// all fetches a step on all hosts at once.
func (w *world) all(p *millrace.Plan) {
	var group sync.WaitGroup
	for _, h := range w.hosts {
		group.Go(func() { h.fetch(p) })
	}
	group.Wait()
}

// took returns the data-parallel ranks that the loaders were asked for since the last call, in order.
func (h *host) took() []millrace.Rank {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Sorted(slices.Values(h.asked))
	h.asked = nil
	return out
}

func (h *host) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}
