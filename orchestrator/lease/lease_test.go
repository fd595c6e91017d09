package lease_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"millrace"
	"millrace/checkpoint"
	"millrace/orchestrator/lease"
)

// terms gives a journal's terms. In a store the lock makes it exclusive.
type terms struct{ store *checkpoint.Store }

func (t terms) TakeTerm() (millrace.Term, error) {
	last, err := t.store.Append(checkpoint.Record{Step: checkpoint.NoStep, Body: []byte("term")})
	return millrace.Term(last), err
}

// TestSolo is the contract of every lease: terms rise, also across restarts, and it has one holder at a time.
func TestSolo(t *testing.T) {
	dir := t.TempDir()
	var highest millrace.Term
	for range 3 {
		store, err := checkpoint.Open(checkpoint.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := checkpoint.Open(checkpoint.Config{Dir: dir}); !errors.Is(err, checkpoint.ErrLocked) {
			t.Fatalf("a second holder: %v", err)
		}
		ctx, term, err := lease.NewSolo(terms{store}).Acquire(t.Context())
		if err != nil || ctx.Err() != nil || term <= highest {
			t.Fatalf("term %d after %d, %v", term, highest, err)
		}
		highest = term
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := lease.NewSolo(terms{store}).Acquire(t.Context()); err == nil ||
			!strings.HasPrefix(err.Error(), "acquire solo lease: ") {
			t.Fatalf("a lease on a closed journal: %v", err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := lease.NewSolo(terms{}).Acquire(ended); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}
