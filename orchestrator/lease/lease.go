// Package lease lets one orchestrator at a time decide. A lease gives the orchestrator its term and guards its commits.
// The lease has a context that ends with it, so work under it stops. Receivers refuse messages of a lower term.
package lease

import (
	"context"
	"errors"

	"millrace"
)

// Leaser grants leases to one process.
type Leaser interface {
	// Acquire blocks until the lease is granted or ctx ends. The term of every grant is higher than all before it, and
	// higher than above, the highest term that the run's journal has. The caller journals the term before it acts
	// under it. The returned context is a child of ctx. It ends with the lease, and its cause says why.
	Acquire(ctx context.Context, above millrace.Term) (Lease, context.Context, error)
}

// Lease is one grant. Its holder stops by itself before anybody else can be granted the next one. Methods may be called
// from any goroutine.
type Lease interface {
	// Term returns the fencing number of the grant.
	Term() millrace.Term
	// Commit records the digests of plans that the caller has journaled. A caller that acts on a plan before Commit
	// returned nil breaks the promise of one digest a step. Without plans, Commit confirms that the term still holds.
	//
	// Commit blocks until the answer is certain, the lease has ended, or ctx has. A plan that is recorded already with
	// the same digests is recorded. The error is ErrFenced if the lease has ended; then the plans may be recorded or
	// not, and the next holder commits them again. It is ErrMismatch if a step is recorded with other digests, now or
	// by an earlier holder; then nothing was recorded.
	Commit(ctx context.Context, plans []Plan) error
	// Release ends the lease, so that the next holder need not wait for its end. It may be called again.
	Release()
}

// Plan identifies a sealed plan of the run.
type Plan struct {
	Attempt            millrace.Attempt
	Step               millrace.Step
	Content, Placement millrace.Digest
}

// lost returns the error of work under a term that has ended.
func lost(term millrace.Term, why string) error {
	return millrace.Errorf(millrace.ErrFenced, "the lease of term %d has ended: %s", term, why)
}

// ended returns the error of work under a lease whose context has ended.
func ended(ctx context.Context, term millrace.Term) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, millrace.ErrFenced) {
		return cause
	}
	return lost(term, cause.Error())
}
