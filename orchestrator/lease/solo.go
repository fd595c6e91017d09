package lease

import (
	"context"
	"errors"
	"fmt"

	"millrace"
)

// Store is the journal of a run, under an exclusive lock of the operating system. It keeps the highest term that was
// ever taken, and the digests of every sealed plan.
type Store interface {
	// Confirm returns nil if the journal holds these plans with these digests. The error is ErrMismatch if it holds
	// others, and ErrFenced if the lock is no longer held.
	Confirm(plans []Plan) error
}

// Solo is the lease of a run on one host. The holder of the journal's lock has the lease until its process ends. The
// lock belongs to the operating system, so the death of its holder releases it at once.
type Solo struct{ store Store }

// NewSolo returns the lease of a journal.
func NewSolo(store Store) *Solo { return &Solo{store: store} }

// Acquire implements Leaser. It does not wait, because the journal's lock is already held: opening a locked journal
// fails.
func (s *Solo) Acquire(ctx context.Context, above millrace.Term) (Lease, context.Context, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("acquire solo lease: %w", err)
	}
	held, end := context.WithCancelCause(ctx)
	return &soloLease{store: s.store, term: above + 1, ctx: held, end: end}, held, nil
}

// soloLease is a grant of a Solo.
type soloLease struct {
	store Store
	term  millrace.Term
	ctx   context.Context
	end   context.CancelCauseFunc
}

// Term implements Lease.
func (l *soloLease) Term() millrace.Term { return l.term }

// Commit implements Lease. The journal is the record, so the answer is certain at once.
func (l *soloLease) Commit(_ context.Context, plans []Plan) error {
	if l.ctx.Err() != nil {
		return ended(l.ctx, l.term)
	}
	err := l.store.Confirm(plans)
	if errors.Is(err, millrace.ErrFenced) {
		l.end(err)
	}
	return err
}

// Release implements Lease. The lock itself is released when the journal is closed.
func (l *soloLease) Release() { l.end(lost(l.term, "it was released")) }

var _ Leaser = (*Solo)(nil)
