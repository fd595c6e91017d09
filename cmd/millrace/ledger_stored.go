package main

import (
	"encoding/json"
	"strconv"

	"millrace"
	"millrace/internal/app/config/identity"
	"millrace/orchestrator"
	"millrace/sources/order"
)

// stored asks the ledger of a run that is stopped.
func (l *ledgerQuery) stored() (*answers, error) {
	store, err := openJournal(l.dir)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	kept, err := orchestrator.OpenLedger(store, millrace.Train, inverse)
	if err != nil {
		return nil, &failure{err.Error()}
	}
	out := &answers{sources: kept.Sources()}
	request, err := l.request(out.sources)
	if err != nil {
		return nil, err
	}
	if out.replies, err = kept.Answer(request); err != nil {
		return nil, &failure{err.Error()}
	}
	return out, nil
}

// inverse is the inverse of the order of the sources of a run with this identity.
func inverse(stored []byte, m *millrace.Manifest, id millrace.SampleID, below millrace.Ordinal) ([]millrace.Ordinal, bool) {
	var run identity.Identity
	if err := json.Unmarshal(stored, &run); err != nil {
		return nil, false
	}
	seed, err := strconv.ParseUint(run.Value("seed"), 10, 64)
	if err != nil {
		return nil, false
	}
	return order.Ordinals(m, seed, id, below)
}
