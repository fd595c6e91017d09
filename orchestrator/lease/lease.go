// Package lease lets one orchestrator at a time decide. It gives the orchestrator its term, and a context that ends
// when the lease is lost, so work under it stops. Receivers refuse messages of a lower term.
package lease

import (
	"context"
	"fmt"

	"millrace"
)

// Leaser grants leases. Its implementation is Solo, for one host with one run directory.
type Leaser interface {
	// Acquire blocks until the lease is granted. The returned context is a child of ctx and ends with the lease. Every
	// grant has a higher term than all before it.
	Acquire(ctx context.Context) (context.Context, millrace.Term, error)
}

// Store is an exclusively locked journal. It keeps the highest term that was ever taken.
type Store interface {
	// TakeTerm makes the next term durable and returns it. It fails if the lock is not held.
	TakeTerm() (millrace.Term, error)
}

// Solo is the lease of a run on one host. The holder of the journal's lock has the lease until its process ends. The
// lock belongs to the operating system, so the death of its holder releases it at once.
type Solo struct{ store Store }

// NewSolo returns the lease of a journal.
func NewSolo(store Store) *Solo { return &Solo{store: store} }

// Acquire implements Leaser. It does not wait, because the journal's lock is already held: opening a locked journal
// fails.
func (s *Solo) Acquire(ctx context.Context) (context.Context, millrace.Term, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	term, err := s.store.TakeTerm()
	if err != nil {
		return nil, 0, fmt.Errorf("acquire solo lease: %w", err)
	}
	return ctx, term, nil
}

var _ Leaser = (*Solo)(nil)
