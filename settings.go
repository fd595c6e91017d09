package millrace

// Settings of a mixture file that configuration and planner share. The constants are the words of the file.

// Limits of the settings. The configuration repeats the first two, and a test compares them.
const (
	MostCarried   = 512  // segments that may wait for a later step
	MostWindow    = 64   // steps that are drawn and packed together; a restart draws them again
	MostHalvings  = 7    // times that Bucketed halves a sequence length
	MostRampSizes = 4096 // batch sizes of one Rampup
)

// Packing is the way in which documents become sequences.
type Packing string

// The packings.
const (
	BestFit Packing = "best_fit" // several documents share a sequence: best-fit-decreasing over the window
	Pad     Packing = "pad"      // one document a sequence
	// one document after the other, cut at the end of each sequence; the rest begins the next sequence
	Concat Packing = "concat"
	// one document a sequence; the sequences of a step have one length, which may differ between steps
	Bucketed Packing = "bucketed"
)

// Words returns the packings.
func (Packing) Words() []string {
	return []string{string(BestFit), string(Pad), string(Concat), string(Bucketed)}
}

// IsKnown reports whether there is such a packing.
func (p Packing) IsKnown() bool { return p == BestFit || p == Pad || p == Concat || p == Bucketed }

// Unit is the unit in which the weights of a mixture count.
type Unit string

// The units.
const (
	UnitTokens Unit = "tokens" // every segment counts its document tokens
	// a document counts 1 at its first segment; its other segments follow at once and count nothing
	UnitSamples Unit = "samples"
)

// OnExhausted is the reaction to a source that has no further document.
type OnExhausted string

// The reactions. A source that repeats never ends: if its offers say that it ended, it is empty.
const (
	Repeat      OnExhausted = "repeat"
	Renormalize OnExhausted = "renormalize" // the source leaves and the others divide its share
	StopRun     OnExhausted = "stop"        // the run ends with this step
	FailRun     OnExhausted = "error"       // the run fails
)

// Words returns the reactions.
func (OnExhausted) Words() []string {
	return []string{string(Repeat), string(Renormalize), string(StopRun), string(FailRun)}
}

// LastStep is the treatment of the last step of a finite run if its segments do not fill all sequences.
type LastStep string

// The treatments.
const (
	PadLast   LastStep = "pad"   // the rest is padding
	ShortLast LastStep = "short" // as pad, without the microbatches that are padding on every rank
	DropLast  LastStep = "drop"  // the step is not delivered
)

// Balance is the way in which the trainer's ranks wait for each other. It decides which sums of cost a placement evens
// out.
type Balance string

// The balances.
const (
	BalanceFSDP Balance = "fsdp" // in every microbatch: the sum over microbatches of the slowest rank
	BalanceDP   Balance = "dp"   // once a step: the slowest rank's sum
	// in a pipeline: the slowest rank's sum, and its most expensive microbatch for each further stage
	BalancePP   Balance = "pp"
	BalanceNone Balance = "none" // sequences go to the ranks in turn
)

// Words returns the balances.
func (Balance) Words() []string {
	return []string{string(BalanceFSDP), string(BalanceDP), string(BalancePP), string(BalanceNone)}
}
