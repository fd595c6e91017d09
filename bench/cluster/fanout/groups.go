package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"millrace"
	"millrace/constructors"
	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
	"millrace/sidecar/tier"
)

// groupSize is the number of hosts whose ranks share a data-parallel rank.
const groupSize = 16

// member is a host of a group: a real tier with the calls of a sidecar to loaders and to the constructor.
type member struct {
	group  *group
	tier   *tier.Tier
	conns  client
	name   string
	mu     sync.Mutex
	dialed map[string]*grpc.ClientConn
}

// group is the hosts that need the tokens of data-parallel rank 0 of a run of their own.
type group struct {
	members []*member
	server  *grpc.Server
	tally   *tally
	mu      sync.Mutex
	plans   map[millrace.Step]*millrace.Plan
	next    millrace.Step
}

// newGroup makes the members of a group. isTiered: the first one fetches for all.
func newGroup(addresses []string, t *tally, isTiered bool) (*group, error) {
	g := &group{tally: t, plans: map[millrace.Step]*millrace.Plan{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	groups := &proto.Groups{Group: []*proto.Group{{Name: "0", Remote: listener.Addr().String(), Hosts: groupSize}}}
	for k := range groupSize {
		m := &member{group: g, name: fmt.Sprint(k), dialed: map[string]*grpc.ClientConn{}}
		if m.conns, err = dial(addresses); err != nil {
			return nil, err
		}
		m.tier = tier.New(tier.Config{Name: m.name, Loaders: m, Plan: g.plan, Feeds: []millrace.Rank{0}, Net: m,
			IsMasked: func(*millrace.Assignment) bool { return false }, Room: 8 << 20, Clock: seam.System{},
			Log: slog.New(slog.DiscardHandler)})
		if isTiered {
			m.tier.Follow(groups)
		}
		g.members = append(g.members, m)
	}
	var none *secure.Credentials
	g.server = grpc.NewServer(append(none.Server(), grpc.ForceServerCodecV2(wire.NewPayload()),
		grpc.WaitForHandlers(true))...)
	proto.RegisterConstructorServer(g.server, g.members[0].tier.Server())
	go g.server.Serve(listener) // ends with Stop
	return g, nil
}

func (g *group) close() {
	g.server.Stop()
	for _, m := range g.members {
		m.tier.Close()
		m.KeepOnly(nil)
		for _, c := range m.conns {
			c.Close()
		}
	}
}

// plan returns a step, which is made before any member asks for it.
func (g *group) plan(_ context.Context, _ millrace.Attempt, step millrace.Step) (*sidecar.StepPlan, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &sidecar.StepPlan{Plan: g.plans[step]}, nil
}

// step makes the plan of a step with random rows. All members fetch it.
func (g *group) step(ctx context.Context, due time.Time) error {
	g.mu.Lock()
	g.next++
	p := &millrace.Plan{Stream: millrace.Train, Attempt: 1, Step: g.next, Ranks: 1, Microbatches: 1}
	for k := range loaders {
		for range rows {
			p.Assignments = append(p.Assignments, millrace.Assignment{Segment: millrace.Segment{Source: uint32(k),
				Ordinal: millrace.Ordinal(rand.Uint64N(documents)), Length: rowTokens, More: true}})
		}
	}
	g.plans[p.Step] = p
	g.mu.Unlock()
	running, ctx := errgroup.WithContext(ctx)
	for _, m := range g.members {
		running.Go(func() error {
			payload, err := m.tier.Fetch(ctx, p, []millrace.Rank{0})
			if err != nil {
				return err
			}
			payload.Release()
			g.tally.mu.Lock()
			defer g.tally.mu.Unlock()
			g.tally.steps = append(g.tally.steps, time.Since(due))
			return nil
		})
	}
	return running.Wait()
}

// Dial implements tier.Network.
func (m *member) Dial(address string) (grpc.ClientConnInterface, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.dialed[address]; c != nil {
		return c, nil
	}
	c, err := dialOne(address, secure.Sidecar)
	m.dialed[address] = c
	return c, err
}

// KeepOnly implements tier.Network.
func (m *member) KeepOnly(addresses []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for address, c := range m.dialed {
		if len(addresses) == 0 {
			delete(m.dialed, address)
			c.Close()
		}
	}
}

// Fetch implements sidecar.Fetcher: it asks all loaders at once.
func (m *member) Fetch(ctx context.Context, p *millrace.Plan, _ []millrace.Rank) (sidecar.Payload, error) {
	out := make(arrived, len(p.Assignments))
	asking, ctx := errgroup.WithContext(ctx)
	for k := range loaders {
		asking.Go(func() error { return m.ask(ctx, m.conns[k], p.Assignments[k*rows:(k+1)*rows], out[k*rows:]) })
	}
	return out, asking.Wait()
}

func (m *member) ask(
	ctx context.Context, conn *grpc.ClientConn, of []millrace.Assignment, into []constructors.Tokens,
) error {
	part := &proto.FetchPart{Source: source, Term: term}
	for _, a := range of {
		part.Ordinal, part.Offset = append(part.Ordinal, uint64(a.Ordinal)), append(part.Offset, 0)
		part.Length = append(part.Length, rowTokens)
	}
	began := time.Now()
	stream, err := proto.NewLoaderClient(conn).Fetch(ctx, &proto.FetchRequest{
		Fence: &proto.Fence{Stream: string(millrace.Train)}, Part: []*proto.FetchPart{part}}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	memory, filled := make(constructors.Room, rows*(rowTokens+1)), [rows]int{}
	room := func(row uint32) constructors.Room { return memory[row*(rowTokens+1) : (row+1)*(rowTokens+1)] }
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for row, err := range wire.Rows(r, false) {
			if err != nil {
				return err
			}
			room(row.Number).Write(filled[row.Number], row.IDs, row.IsWide)
			filled[row.Number] += row.Count
		}
	}
	for i, n := range filled {
		if n != rowTokens+1 {
			return fmt.Errorf("%d tokens of a row came", n)
		}
		into[i] = room(uint32(i)).Tokens(false)
	}
	m.group.tally.mu.Lock()
	defer m.group.tally.mu.Unlock()
	m.group.tally.fetches = append(m.group.tally.fetches, time.Since(began))
	return nil
}

// arrived implements sidecar.Payload.
type arrived []constructors.Tokens

func (a arrived) Tokens(millrace.Rank, uint32) ([]constructors.Tokens, error) { return a, nil }
func (a arrived) Masked(millrace.Rank, uint32) []bool                         { return nil }
func (a arrived) Fields(millrace.Rank, uint32) []string                       { return nil }
func (a arrived) Bytes() int64                                                { return stepBytes }
func (a arrived) Release()                                                    {}

// measureGroups prints a row of the table for a number of clients in groups.
func measureGroups(n int, isTiered bool, rate float64, span time.Duration) error {
	served, addresses, err := start()
	if err != nil {
		return err
	}
	defer served.stop()
	t := &tally{}
	var groups []*group
	defer func() {
		for _, g := range groups {
			g.close()
		}
	}()
	warm := errgroup.Group{}
	warm.SetLimit(4)
	for range n / groupSize {
		g, err := newGroup(addresses, t, isTiered)
		if err != nil {
			return err
		}
		groups = append(groups, g)
		warm.Go(func() error { return g.step(context.Background(), time.Now()) })
	}
	if err := warm.Wait(); err != nil {
		return fmt.Errorf("the first step of a group: %w", err)
	}
	time.Sleep(time.Second)
	t.fetches, t.steps = nil, nil
	supplied := supply(groups)
	own, theirs := cpu(os.Getpid()), cpu(served.cmd.Process.Pid)
	if err := arrivals(groupSize*stepBytes/(rate*1e6), span, func(due time.Time) error {
		return groups[rand.IntN(len(groups))].step(context.Background(), due)
	}); err != nil {
		return err
	}
	steps := float64(len(t.steps))
	own, theirs = cpu(os.Getpid())-own, cpu(served.cmd.Process.Pid)-theirs
	now := supply(groups)
	connections := n
	if isTiered {
		connections = n / groupSize
	}
	fmt.Printf("| %d | %t | %d | %.2f | %.1f | %.1f | %.0f | %.0f | %s | %s | %s | %s |\n", n, isTiered, connections,
		float64(len(t.fetches))/steps, float64(now.FromLoaders-supplied.FromLoaders)/steps/1e3,
		float64(now.FromConstructors-supplied.FromConstructors)/steps/1e3, own/steps*1e6, theirs/steps*1e6,
		at(t.fetches, 0.5), at(t.fetches, 0.99), at(t.steps, 0.5), at(t.steps, 0.99))
	return nil
}

// supply returns the sums over all members.
func supply(groups []*group) *proto.Supply {
	out := &proto.Supply{}
	for _, g := range groups {
		for _, m := range g.members {
			s := m.tier.Supply()
			out.FromLoaders += s.FromLoaders
			out.FromConstructors += s.FromConstructors
		}
	}
	return out
}
