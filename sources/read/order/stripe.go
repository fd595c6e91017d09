package order

import (
	"math"

	"millrace"
)

const stripeRun = millrace.StripeRun

// Stripe is the share of a source's ordinals that one loader serves: ordinal n belongs to stripe (n/32) % Of. The
// zero value is the whole source.
//
// Stripe positions count the stripe's ordinals without gaps: position k is the stripe's k-th ordinal.
type Stripe struct{ Index, Of uint32 }

// Has reports whether ordinal n belongs to the stripe.
func (s Stripe) Has(n millrace.Ordinal) bool {
	return s.Of <= 1 || n.Stripe(uint64(s.Of)) == uint64(s.Index)
}

// Ordinal returns the ordinal at stripe position k, or MaxUint64 if it does not fit into 64 bits.
func (s Stripe) Ordinal(k uint64) millrace.Ordinal {
	if s.Of <= 1 {
		return millrace.Ordinal(k)
	}
	run := k / stripeRun
	if run > math.MaxUint64/stripeRun/uint64(s.Of)-1 {
		return math.MaxUint64
	}
	return millrace.Ordinal((run*uint64(s.Of)+uint64(s.Index))*stripeRun + k%stripeRun)
}

// Position returns the number of the stripe's ordinals below n. If n belongs to the stripe, that is its stripe
// position.
func (s Stripe) Position(n millrace.Ordinal) uint64 {
	if s.Of <= 1 {
		return uint64(n)
	}
	run, in := uint64(n)/stripeRun, uint64(n)%stripeRun
	rounds, index := run/uint64(s.Of), run%uint64(s.Of)
	switch {
	case index > uint64(s.Index):
		return (rounds + 1) * stripeRun
	case index == uint64(s.Index):
		return rounds*stripeRun + in
	}
	return rounds * stripeRun
}
