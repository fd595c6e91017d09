package ledger

import (
	"fmt"

	"millrace/checkpoint"
)

// Verify checks that every step of a stream follows from the step before and from its plan by the digest chain. It
// calls problem with each violation.
func Verify(store *checkpoint.Store, stream string, problem func(string)) error {
	var last checkpoint.StepKey
	var chain []byte // up to last
	return store.Ledger(checkpoint.StepKey{Stream: stream}, endOf(stream), func(stored checkpoint.Entry) error {
		broken := func(why string) {
			problem(fmt.Sprintf("ledger: the digest chain breaks at step %d of attempt %d: %s",
				stored.Key.Step, stored.Key.Attempt, why))
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
		} else if kept && (digest(p.Content) != e.Content || digest(p.Placement) != e.Placement ||
			string(Chain(chain, last.Attempt, p.Content, p.Placement, p.Delta)) != string(e.Chain[:])) {
			broken("its digest does not follow from the step before and its plan")
		}
		chain = e.Chain[:]
		return nil
	})
}
