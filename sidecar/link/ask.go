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
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/proto"
)

// suppliers are the parts of a Link that fetch rows. All fetches share them.
type suppliers struct {
	clock seam.Clock
	fail  *failpoint.Set
	up    *uplink
	dir   *directory
	conns *connections
	watch *watcher
	masks *masks
	waits *waits
}

// need fetches the rows of one stripe for one step.
type need struct {
	*suppliers
	*rows
	key    stripeKey
	reason *wait
}

// manner is the manner of one request.
type manner struct {
	isHedge bool // the loader is a standby
	again   bool // the loader has to read and decode the documents a second time
}

// errOther is the error if the directory names another loader now.
var errOther = errors.New("another loader is asked now")

// judgedDead is the error if the watcher judges a loader dead.
type judgedDead struct{ verdict string }

func (e *judgedDead) Error() string { return "it is " + e.verdict }

// isLost reports whether an error means that the loader is dead, silent or out of reach.
func isLost(err error) bool {
	var dead *judgedDead
	return errors.As(err, &dead) || status.Code(err) == codes.Unavailable || errors.Is(err, context.Canceled)
}

// isFinal reports whether every other try would end with the same error.
func isFinal(err error) bool {
	return errors.Is(err, millrace.ErrBadSample) || errors.Is(err, millrace.ErrDamaged) ||
		errors.Is(err, millrace.ErrMismatch) || errors.Is(err, millrace.ErrInvalid)
}

// request asks one loader for rows and files each reply. It signals replies to heard, if heard is not nil.
func (n *need) request(ctx context.Context, m *member, which []int, how manner, heard chan<- struct{}) error {
	conn, err := n.conns.dial(m.address)
	if err != nil {
		return err
	}
	plan := n.payload.plan
	req := &proto.FetchRequest{
		Fence:  &proto.Fence{Stream: string(plan.Stream), Attempt: uint32(plan.Attempt), Term: m.term},
		Source: n.key.source, Stripe: n.key.stripe, Step: uint64(plan.Step), Hedge: how.isHedge, Again: how.again,
	}
	for _, i := range which {
		a := &plan.Assignments[i]
		req.Ordinal = append(req.Ordinal, uint64(a.Ordinal))
		req.Offset = append(req.Offset, a.Offset)
		req.Length = append(req.Length, a.Length)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := proto.NewLoaderClient(conn).Fetch(ctx, req)
	if err != nil {
		return wire.FromStatus(err)
	}
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return n.complete(which)
		}
		if err != nil {
			return wire.FromStatus(err)
		}
		n.fail.Hit("sidecar/reply/before")
		err = n.payload.take(answer.Arrow, which, func(i int, tokens []uint32) error {
			return n.file(ctx, m.name, i, tokens)
		})
		if err != nil {
			return fmt.Errorf("payload of step %d from %s: %w", plan.Step, m.name, err)
		}
		if !how.isHedge {
			n.dir.noteReply(n.key, m, plan.Step)
		}
		n.fail.Hit("sidecar/reply/after")
		select {
		case heard <- struct{}{}:
		default: // the previous signal is still pending, or heard is nil
		}
	}
}

// hedge asks the standby for the missing rows while the loader is still asked.
func (n *need) hedge(ctx context.Context, spare *member) error {
	n.fail.Hit("sidecar/hedge/before")
	defer n.fail.Hit("sidecar/hedge/after")
	which := n.missing(n.masks).plain
	if len(which) == 0 {
		return nil
	}
	step := int64(n.payload.plan.Step)
	n.up.record(event.Record{Event: "hedged", Step: step, Key: n.key.source + " " + spare.name, Term: spare.term})
	return n.request(ctx, spare, which, manner{isHedge: true}, nil)
}

// lateTimer fires when the next reply is late. It is nil before the stripe's loader has answered paceKnown requests.
func (n *need) lateTimer() <-chan time.Time {
	if d := n.dir.lateAfter(n.key); d > 0 {
		return n.clock.After(d)
	}
	return nil
}

// ask asks a stripe's loader for rows and watches its heartbeats and the time. If the loader is judged dead and has a
// standby, the error is a *judgedDead. If the loader is only late, ask asks the standby as well.
func (n *need) ask(ctx context.Context, m *member, which []int) error {
	n.because("source %s (shard %s): %s was asked", m.name)
	ctx, cancel := context.WithCancel(ctx)
	var group errgroup.Group
	defer func() { cancel(); _ = group.Wait() }()
	w := n.watch.attend(m)
	defer n.watch.detach(w)
	began, heard := n.clock.Now(), make(chan struct{}, 1)
	first, second := make(chan error, 1), make(chan error, 1)
	group.Go(func() error { first <- n.request(ctx, m, which, manner{}, heard); return nil })
	late, silent := n.lateTimer(), n.watch.silence(w)
	suspected, answered := "", false
	for {
		using, spare, changed := n.dir.lookup(n.key)
		if using != m {
			return errOther
		}
		if suspected != "" && spare != nil {
			return &judgedDead{suspected}
		}
		select {
		case err := <-first:
			return err
		case err := <-second:
			// The loader may still answer, so a standby that fails or cannot decode a document changes nothing.
			// Different tokens end the run.
			if isFinal(err) && !errors.Is(err, millrace.ErrBadSample) {
				return err
			}
			if len(n.missing(n.masks).plain) == 0 {
				return nil
			}
		case <-heard:
			if !answered {
				answered = true
				n.dir.noteTime(n.key, n.clock.Now().Sub(began))
			}
			late = n.lateTimer()
		case <-late:
			late = nil
			if spare != nil && n.dir.payHedge(n.key) {
				group.Go(func() error { second <- n.hedge(ctx, spare); return nil })
			}
		case <-silent:
			silent, suspected = nil, n.watch.judged(w)
			n.because("a loader of source %s (shard %s): %s is %s", m.name, suspected)
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// because sets the reason of the wait. The format's first two arguments are the source, and the shard of the first
// missing row.
func (n *need) because(format string, more ...any) {
	shard := "?"
	if which := n.missing(n.masks).due(); len(which) > 0 {
		a := &n.payload.plan.Assignments[which[0]]
		shard = n.dir.shardName(a.Source, a.ID.Shard)
	}
	n.reason.because(fmt.Sprintf(format, append([]any{n.key.source, shard}, more...)...))
}
