package sources

import (
	"math"

	"millrace"
)

const stripeRun = millrace.StripeRun

// Stripe is the share of a source's ordinals that one loader serves: ordinal n belongs to stripe (n/32) % Of. The zero value is
// the whole source.
//
// Inside a feed the ordinals of its stripe are counted without gaps: seat k is the stripe's k-th ordinal.
type Stripe struct{ Index, Of uint32 }

// Has tells whether ordinal n belongs to the stripe.
func (s Stripe) Has(n millrace.Ordinal) bool {
	return s.Of <= 1 || n.Stripe(uint64(s.Of)) == uint64(s.Index)
}

// ordinal returns the ordinal at seat k, the largest there is where it would not fit.
func (s Stripe) ordinal(k uint64) millrace.Ordinal {
	if s.Of <= 1 {
		return millrace.Ordinal(k)
	}
	run := k / stripeRun
	if run > math.MaxUint64/stripeRun/uint64(s.Of)-1 {
		return math.MaxUint64
	}
	return millrace.Ordinal((run*uint64(s.Of)+uint64(s.Index))*stripeRun + k%stripeRun)
}

// seat returns how many of the stripe's ordinals lie below n: the seat of n, if it has one.
func (s Stripe) seat(n millrace.Ordinal) uint64 {
	if s.Of <= 1 {
		return uint64(n)
	}
	run, in := uint64(n)/stripeRun, uint64(n)%stripeRun
	turns, turn := run/uint64(s.Of), run%uint64(s.Of)
	switch {
	case turn > uint64(s.Index):
		return (turns + 1) * stripeRun
	case turn == uint64(s.Index):
		return turns*stripeRun + in
	}
	return turns * stripeRun
}
