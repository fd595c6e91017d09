package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
)

// need is what one stripe has to give to a step. Whoever is asked, a row is taken once: a second copy has to be equal.
type need struct {
	link    *Link
	payload *payload
	key     stripeKey
	indices []int              // into the plan's assignments
	bad     map[uint64]finding // by ordinal: what could not be decoded

	mu   sync.Mutex     // guards the payload's tokens of indices while requests are in flight, and:
	from map[int]string // who gave a row
}

// finding is a document that could not be decoded.
type finding struct {
	sample *proto.Quarantine
	twice  bool
}

// todo is what is still missing, by what has to be done about it.
type todo struct {
	plain []int // ask
	again []int // read once in vain: ask for another reading
	lost  []int // read twice in vain: to be masked
}

func (t todo) any() []int {
	switch {
	case len(t.plain) > 0:
		return t.plain
	case len(t.again) > 0:
		return t.again
	}
	return t.lost
}

// run asks until everything is here or masked, however often loaders are replaced meanwhile.
func (n *need) run(ctx context.Context) error {
	defer n.link.wait(n, "")
	for {
		t := n.missing()
		if len(t.any()) == 0 {
			return nil
		}
		if len(t.plain)+len(t.again) == 0 {
			if err := n.masking(ctx, t.lost); err != nil {
				return err
			}
			continue
		}
		using, spare, changed := n.link.asked(n.key)
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
		if err := n.learn(ctx, using, spare, changed, err); err != nil {
			return err
		}
	}
}

// errNobody: the directory names nobody.
var errNobody = errors.New("none is there")

// learn takes what a request ended with. What is final is returned; a loader that is lost is replaced or waited for; in place of one that
// has a fault of its own (its host cannot read, say) the standby is asked, but stays the standby: the fault may be everybody's.
func (n *need) learn(ctx context.Context, asked, spare *member, changed <-chan struct{}, err error) error {
	var bad *wire.BadSamples
	switch {
	case err == nil, errors.Is(err, errOther):
		return nil
	case errors.As(err, &bad) && n.convict(bad.Samples):
		return nil
	case final(err):
		return err
	}
	// A standby that took over here and was then fenced, before the orchestrator knew, is nobody's loader any more.
	orphan := errors.Is(err, millrace.ErrFenced) && n.link.isAhead(n.key)
	if asked != nil && (isLost(err) || orphan) && n.link.change(n.key, asked, n.payload.plan.Step, err.Error()) {
		return nil
	}
	if asked != nil && spare != nil && !isLost(err) && !errors.Is(err, millrace.ErrFenced) {
		before := len(n.missing().any())
		if err := n.hedge(ctx, spare); final(err) && !errors.As(err, &bad) {
			return err
		}
		if len(n.missing().any()) < before {
			return nil
		}
	}
	name := ""
	if asked != nil {
		name = asked.name + ": "
	}
	n.wait("a loader of source %s (shard %s): %s%v; it is being restarted", name, err)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-n.link.cfg.Clock.After(retry):
	}
	return nil
}

// convict notes documents that could not be decoded; of a second reading they are lost. It reports whether any of them was asked for.
func (n *need) convict(samples []*proto.Quarantine) bool {
	asked := false
	for _, q := range samples {
		_, before := n.bad[q.Ordinal]
		n.bad[q.Ordinal] = finding{sample: q, twice: before}
		asked = asked || slices.ContainsFunc(n.indices, func(i int) bool { return uint64(n.payload.plan.Assignments[i].Ordinal) == q.Ordinal })
	}
	return asked
}

// complete tells whether rows are here once an answer says that this was all.
func (n *need) complete(rows []int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range rows {
		if n.payload.tokens[i] == nil {
			return fmt.Errorf("it left out a row that it was asked for (ordinal %d)", n.payload.plan.Assignments[i].Ordinal)
		}
	}
	return nil
}

// missing sorts what is not here yet.
func (n *need) missing() (t todo) {
	n.link.mu.Lock()
	defer n.link.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range n.indices {
		a := &n.payload.plan.Assignments[i]
		if n.payload.tokens[i] != nil || n.link.masked(a) {
			continue
		}
		switch f, bad := n.bad[uint64(a.Ordinal)]; {
		case !bad:
			t.plain = append(t.plain, i)
		case !f.twice:
			t.again = append(t.again, i)
		default:
			t.lost = append(t.lost, i)
		}
	}
	return t
}

// masking has segments that nobody can read masked, and waits until they are.
func (n *need) masking(ctx context.Context, lost []int) error {
	found := map[int]*proto.Quarantine{}
	for _, i := range lost {
		found[i] = n.bad[uint64(n.payload.plan.Assignments[i].Ordinal)].sample
	}
	n.wait("the orchestrator to mask what cannot be read of source %s (shard %s)")
	n.link.accuse(n.payload.plan, found)
	return n.link.await(ctx, func() bool {
		for _, i := range lost {
			if !n.link.masked(&n.payload.plan.Assignments[i]) {
				return false
			}
		}
		return true
	})
}

// reread asks for a second reading: of the standby where there is one, because it may be this loader that cannot read.
func (n *need) reread(ctx context.Context, using, spare *member, rows []int) error {
	n.link.cfg.Fail.Hit("sidecar/again/before")
	defer n.link.cfg.Fail.Hit("sidecar/again/after")
	if spare != nil {
		n.wait("a second reading of source %s (shard %s) by %s", spare.name)
		if err := n.request(ctx, spare, rows, asking{again: true, hedge: true}, nil); err == nil || final(err) {
			return err
		}
	}
	n.wait("a second reading of source %s (shard %s) by %s", using.name)
	return n.request(ctx, using, rows, asking{again: true}, nil)
}

// wait names what is waited for. The format's first words are the source and the shard of the first row that is missing.
func (n *need) wait(format string, more ...any) {
	shard := "?"
	if rows := n.missing().any(); len(rows) > 0 {
		a := &n.payload.plan.Assignments[rows[0]]
		n.link.mu.Lock()
		if names := n.link.sources[a.Source].Shards; int(a.ID.Shard) < len(names) {
			shard = names[a.ID.Shard]
		}
		n.link.mu.Unlock()
	}
	n.link.wait(n, fmt.Sprintf(format, append([]any{n.key.source, shard}, more...)...))
}

// file takes one row. The first copy of it counts; another one that differs ends the run.
func (n *need) file(ctx context.Context, from string, i int, tokens []uint32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err() // it came from one who is not asked any more
	}
	was := n.payload.tokens[i]
	if was == nil {
		if tokens == nil {
			tokens = []uint32{} // nil is what is missing
		}
		n.payload.tokens[i], n.from[i] = tokens, from
		return nil
	}
	for k := range was {
		if was[k] != tokens[k] {
			return n.differs(&n.payload.plan.Assignments[i], n.from[i], was, from, tokens)
		}
	}
	return nil
}

// differs stops the run and keeps both copies for people to look at.
func (n *need) differs(a *millrace.Assignment, first string, was []uint32, second string, is []uint32) error {
	where, err := n.link.dump(n.payload.plan, n.key.source, a, map[string][]uint32{first: was, second: is})
	if err != nil {
		n.link.cfg.Log.Error("write what differs", "error", err)
	}
	return millrace.Errorf(millrace.ErrMismatch, "source %s, ordinal %d, offset %d: %s and %s give different tokens, which must never happen; both are in %s",
		n.key.source, a.Ordinal, a.Offset, first, second, where)
}
