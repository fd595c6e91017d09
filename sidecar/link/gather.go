package link

import (
	"context"
	"errors"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
)

// errNobody is the error if the directory names no loader of the stripe.
var errNobody = errors.New("none is there")

// gather asks loaders until all rows are here or masked. It goes on when loaders are replaced.
func (n *need) gather(ctx context.Context) error {
	defer n.reason.clear()
	for {
		t := n.missing(n.masks)
		if len(t.due()) == 0 {
			return nil
		}
		if len(t.plain)+len(t.again) == 0 {
			if err := n.haveMasked(ctx, t.lost); err != nil {
				return err
			}
			continue
		}
		using, spare, changed := n.dir.lookup(n.key)
		err := errNobody
		switch {
		case using == nil:
		case len(t.plain) > 0:
			err = n.ask(ctx, using, t.plain)
		default:
			err = n.reread(ctx, using, spare, t.again)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := n.react(ctx, using, spare, changed, err); err != nil {
			return err
		}
	}
}

// react handles the end of a request to a loader (asked; nil: there was none) with err. It returns a final error. It
// replaces a lost loader by its standby, or waits for a new loader. A loader may answer with a fault of its own, for
// example that its host cannot read. Then react asks the standby too. The standby stays the standby, because every host
// may have the fault.
func (n *need) react(ctx context.Context, asked, spare *member, changed <-chan struct{}, err error) error {
	var bad *wire.BadSamples
	switch {
	case err == nil, errors.Is(err, errOther):
		return nil
	case errors.As(err, &bad) && n.convict(bad.Samples):
		return nil
	case isFinal(err):
		return err
	}
	// A standby that took over here serves no stripe if it was fenced before the orchestrator noted the switch.
	isOrphan := errors.Is(err, millrace.ErrFenced) && n.dir.hasSwitched(n.key)
	if asked != nil && (isLost(err) || isOrphan) && n.dir.failOver(n.key, asked, n.payload.plan.Step, err.Error()) {
		return nil
	}
	if asked != nil && spare != nil && !isLost(err) && !errors.Is(err, millrace.ErrFenced) {
		before := len(n.missing(n.masks).due())
		if err := n.hedge(ctx, spare); isFinal(err) && !errors.As(err, &bad) {
			return err
		}
		if len(n.missing(n.masks).due()) < before {
			return nil
		}
	}
	name := ""
	if asked != nil {
		name = asked.name + ": "
	}
	n.because("a loader of source %s (shard %s): %s%v; it is being restarted", name, err)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-n.clock.After(retryAfter):
	}
	return nil
}

// haveMasked asks the orchestrator to mask rows that two readings could not decode, and waits until they are masked.
func (n *need) haveMasked(ctx context.Context, which []int) error {
	found := map[int]*proto.Quarantine{}
	for _, i := range which {
		found[i] = n.bad[uint64(n.payload.plan.Assignments[i].Ordinal)].sample
	}
	n.because("the orchestrator to mask unreadable segments of source %s (shard %s)")
	n.masks.accuse(n.payload.plan, n.source, found)
	return n.masks.until(ctx, func() bool {
		for _, i := range which {
			if !n.masks.hides(n.source, &n.payload.plan.Assignments[i]) {
				return false
			}
		}
		return true
	})
}

// reread asks for a second reading. It asks the standby first, because the fault may be in the loader.
func (n *need) reread(ctx context.Context, using, spare *member, which []int) error {
	n.fail.Hit("sidecar/again/before")
	defer n.fail.Hit("sidecar/again/after")
	if spare != nil {
		n.because("a second reading of source %s (shard %s) by %s", spare.name)
		if err := n.request(ctx, spare, which, manner{again: true, isHedge: true}, nil); err == nil || isFinal(err) {
			return err
		}
	}
	n.because("a second reading of source %s (shard %s) by %s", using.name)
	return n.request(ctx, using, which, manner{again: true}, nil)
}
