package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
)

// asking is how something is asked for.
type asking struct{ hedge, again bool }

// errOther: the directory names another loader, and that one is asked.
var errOther = errors.New("another loader is asked now")

// lost: the loader is thought dead.
type lost struct{ verdict string }

func (e *lost) Error() string { return "it is " + e.verdict }

// isLost tells that the fault is the loader's: it is dead, silent or cannot be reached. One that answers, whatever it says, is not.
func isLost(err error) bool {
	var l *lost
	return errors.As(err, &l) || status.Code(err) == codes.Unavailable || errors.Is(err, context.Canceled)
}

// ask asks a stripe's loader for rows, with an eye on its heartbeats and on the time: where it falls silent the request ends as lost, where
// it is merely late the standby is asked too.
func (n *need) ask(ctx context.Context, m *member, rows []int) error {
	l := n.link
	n.wait("source %s (shard %s): %s was asked", m.name)
	ctx, cancel := context.WithCancel(ctx)
	var group errgroup.Group
	defer func() { cancel(); _ = group.Wait() }()
	w := l.attend(m)
	defer l.disregard(w)
	began, heard := l.cfg.Clock.Now(), make(chan struct{}, 1)
	first, second := make(chan error, 1), make(chan error, 1)
	group.Go(func() error { first <- n.request(ctx, m, rows, asking{}, heard); return nil })
	late, silent := n.late(), l.silence(w)
	suspected, answered := "", false
	for {
		using, spare, changed := l.asked(n.key)
		if using != m {
			return errOther
		}
		if suspected != "" && spare != nil {
			return &lost{suspected}
		}
		select {
		case err := <-first:
			return err
		case err := <-second:
			// What the standby cannot give or read is no matter while the loader is asked; what it gives otherwise is.
			if final(err) && !errors.Is(err, millrace.ErrBadSample) {
				return err
			}
			if len(n.missing().plain) == 0 {
				return nil
			}
		case <-heard:
			if !answered {
				answered = true
				n.note(l.cfg.Clock.Now().Sub(began))
			}
			late = n.late()
		case <-late:
			late = nil
			if spare != nil && n.afford() {
				group.Go(func() error { second <- n.hedge(ctx, spare); return nil })
			}
		case <-silent:
			silent, suspected = nil, l.verdict(w)
			n.wait("a loader of source %s (shard %s): %s is %s", m.name, suspected)
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hedge asks the standby for what is missing. That it cannot give it is no reason to do anything: the loader itself is still asked.
func (n *need) hedge(ctx context.Context, spare *member) error {
	n.link.cfg.Fail.Hit("sidecar/hedge/before")
	defer n.link.cfg.Fail.Hit("sidecar/hedge/after")
	rows := n.missing().plain
	if len(rows) == 0 {
		return nil
	}
	n.link.record("hedged", int64(n.payload.plan.Step), n.key.source+" "+spare.name, spare.term)
	return n.request(ctx, spare, rows, asking{hedge: true}, nil)
}

// late fires when the next reply is late; never where too little is known.
func (n *need) late() <-chan time.Time {
	n.link.mu.Lock()
	d := time.Duration(0)
	if r := n.link.routes[n.key]; r != nil {
		d = r.pace.late()
	}
	n.link.mu.Unlock()
	if d == 0 {
		return nil
	}
	return n.link.cfg.Clock.After(d)
}

func (n *need) note(took time.Duration) {
	n.link.mu.Lock()
	defer n.link.mu.Unlock()
	if r := n.link.routes[n.key]; r != nil {
		r.pace.asked()
		r.pace.note(took)
	}
}

func (n *need) afford() bool {
	n.link.mu.Lock()
	defer n.link.mu.Unlock()
	r := n.link.routes[n.key]
	return r != nil && r.pace.spend()
}

// request asks one loader for rows and files what comes; heard is told of every reply.
func (n *need) request(ctx context.Context, m *member, rows []int, how asking, heard chan<- struct{}) error {
	conn, err := n.link.dial(m.address)
	if err != nil {
		return err
	}
	plan := n.payload.plan
	req := &proto.FetchRequest{Fence: &proto.Fence{Stream: string(plan.Stream), Attempt: uint32(plan.Attempt), Term: m.term},
		Source: n.key.source, Stripe: n.key.stripe, Step: uint64(plan.Step), Hedge: how.hedge, Again: how.again}
	for _, i := range rows {
		a := &plan.Assignments[i]
		req.Ordinal, req.Offset, req.Length = append(req.Ordinal, uint64(a.Ordinal)), append(req.Offset, a.Offset), append(req.Length, a.Length)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := proto.NewLoaderClient(conn).Fetch(ctx, req)
	if err != nil {
		return wire.FromStatus(err)
	}
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return n.complete(rows)
		}
		if err != nil {
			return wire.FromStatus(err)
		}
		n.link.cfg.Fail.Hit("sidecar/reply/before")
		err = n.payload.take(reply.Arrow, rows, func(i int, tokens []uint32) error { return n.file(ctx, m.name, i, tokens) })
		if err != nil {
			return fmt.Errorf("payload of step %d from %s: %w", plan.Step, m.name, err)
		}
		if !how.hedge {
			n.link.heard(n.key, m, plan.Step)
		}
		n.link.cfg.Fail.Hit("sidecar/reply/after")
		select {
		case heard <- struct{}{}:
		default: // it is busy with the one before, or nobody listens
		}
	}
}
