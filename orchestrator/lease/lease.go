// Package lease says who may decide: it gives an orchestrator its term, and a context that dies when the lease is lost. Work under that
// context stops by itself; the term on every message makes whatever came too late harmless.
package lease

import (
	"context"
	"fmt"

	"millrace"
)

// Leaser grants leases. Implementations: Solo, where one host has one run directory.
type Leaser interface {
	// Acquire blocks until the lease is granted. The returned context is a child of ctx and ends with the lease. Every grant has a
	// higher term than all before it.
	Acquire(ctx context.Context) (context.Context, millrace.Term, error)
}

// Store is what Solo leans on: an exclusively locked journal that knows the highest term ever taken in it.
type Store interface {
	// TakeTerm makes the next term durable and returns it. It fails where the lock is not held.
	TakeTerm() (millrace.Term, error)
}

// Solo is the lease of a run on one host: whoever has the journal's lock has the lease, until its process ends. The lock is the
// operating system's, so a killed holder needs no time-out.
type Solo struct{ store Store }

// NewSolo returns the lease that lies in a journal.
func NewSolo(store Store) *Solo { return &Solo{store: store} }

// Acquire implements Leaser. It does not wait: a lock that is held is an error of whoever opened the journal.
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
