package orchestrator

import (
	"fmt"

	"millrace"
	"millrace/checkpoint"
)

// Retire drops from the store of a stopped run what its newest snapshot makes superfluous, as a running one does with every snapshot.
func Retire(store *checkpoint.Store, stream millrace.Stream) error {
	s, _, err := ReadCounters(store, stream)
	if err != nil {
		return err
	}
	snap, ok, err := store.NewestSnapshot()
	if err != nil || !ok {
		return err
	}
	return retire(store, string(stream), s, snap.Index)
}

// VerifyLedger checks what the store itself cannot: that the journal leads to a state, and that every step of the ledger follows from the one
// before and its plan by the digest chain. It calls problem with each thing that is wrong.
func VerifyLedger(store *checkpoint.Store, stream millrace.Stream, problem func(string)) error {
	if _, _, err := ReadCounters(store, stream); err != nil {
		problem(fmt.Sprintf("journal: %v", err))
	}
	var last checkpoint.StepKey
	var chain []byte // up to last
	from := checkpoint.StepKey{Stream: string(stream)}
	return store.Ledger(from, behind(string(stream)), func(stored checkpoint.Entry) error {
		broken := func(why string) {
			problem(fmt.Sprintf("ledger: the digest chain breaks at step %d of attempt %d: %s", stored.Key.Step, stored.Key.Attempt, why))
		}
		if stored.Key.Attempt != last.Attempt {
			chain = nil
		} else if stored.Key.Step != last.Step+1 {
			broken(fmt.Sprintf("it follows step %d", last.Step))
		}
		last = stored.Key
		e, err := decodeEntry(stored.Digest)
		if err != nil {
			broken(err.Error())
			return nil
		}
		p, kept, err := ReadPlan(store, stored.Key)
		if err != nil {
			problem(fmt.Sprintf("ledger: %v", err))
		} else if kept && (digest(p.Content) != e.content || digest(p.Placement) != e.placement || string(chained(chain, last.Attempt, p.Content, p.Placement, p.Delta)) != string(e.chain[:])) {
			broken("it does not follow from the step before and what the step holds")
		}
		chain = e.chain[:]
		return nil
	})
}

// DescribeEntry says in words what the ledger keeps of a step for ever.
func DescribeEntry(kept []byte) string {
	e, err := decodeEntry(kept)
	if err != nil {
		return err.Error()
	}
	ordinals := uint64(0)
	for _, r := range e.ranges {
		ordinals += r.To - r.From + 1
	}
	more := ""
	if !e.whole {
		more = " and more"
	}
	return fmt.Sprintf("content %s, placement %s, chain %s, %d ordinals of %d sources%s", e.content, e.placement, e.chain, ordinals, len(e.ranges), more)
}

// DescribeIndexEntry says in words what an index entry tells.
func DescribeIndexEntry(body []byte) string {
	r, sources := numbers{rest: body}, 0
	for ; len(r.rest) > 0 && !r.short; sources++ {
		r.next()
		r.next()
	}
	return fmt.Sprintf("where %d sources stand", sources)
}
