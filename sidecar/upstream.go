package sidecar

import (
	"context"
	"errors"
	"slices"

	"millrace"
)

// StartKind is how a trainer says where it starts.
type StartKind string

// The kinds of start.
const (
	StartNone     StartKind = ""         // nothing said: fresh on a new run, an error on one with history
	StartFresh    StartKind = "fresh"    // from step 0
	StartLatest   StartKind = "latest"   // from the first step that not all ranks have acknowledged
	StartState    StartKind = "state"    // after the step that State was saved at
	StartContinue StartKind = "continue" // same attempt, own position: the sidecar was lost, the trainer was not
)

// Start is what a trainer said.
type Start struct {
	Kind     StartKind
	State    []byte   // JSON, of any rank; for StartState
	Override []string // identity names that may differ from the state's
	// For StartContinue: the next batch the trainer has not seen.
	Attempt    millrace.Attempt
	Step       millrace.Step
	Microbatch uint32
}

// Begin is where the run starts for a rank, and what its batches look like.
type Begin struct {
	Attempt     millrace.Attempt
	Term        millrace.Term
	Step        millrace.Step // of the first batch
	Microbatch  uint32        // of the first batch
	State       []byte        // JSON: the state before Step; with the mid-step fields if Microbatch is not 0
	Topology    millrace.Topology
	Broadcast   millrace.Broadcast
	Shapes      []millrace.Shape // of the stages, the first stage's first; a plan says which is its
	PadMultiple uint32
}

// Source returns the rank of the world that has the tensors of a rank's batches: itself where it gets them from here.
func (b *Begin) Source(rank millrace.Rank) millrace.Rank { return b.Broadcast.Source(b.Topology, rank) }

// fed lists the data-parallel ranks whose samples a host needs for its ranks.
func (b *Begin) fed(ranks []millrace.Rank) (out []millrace.Rank) {
	for _, r := range ranks {
		if dp := millrace.Rank(b.Topology.Coordinates(r).DP); b.Source(r) == r && !slices.Contains(out, dp) {
			out = append(out, dp)
		}
	}
	return out
}

// share is what a rank of the world gets of the plans.
type share struct {
	part  millrace.Rank // data-parallel
	slice uint32        // context-parallel
	whole bool          // with its tensors; else what describes them
}

func (b *Begin) share(rank millrace.Rank) share {
	at := b.Topology.Coordinates(rank)
	return share{part: millrace.Rank(at.DP), slice: uint32(at.CP), whole: b.Source(rank) == rank}
}

// SourceNames are the printable names of one source.
type SourceNames struct {
	Name   string
	Shards []string // by SampleID.Shard: the path below the source's root
}

// StepPlan is a sealed step with what travels beside it.
type StepPlan struct {
	*millrace.Plan
	State   []byte        // JSON: the state after the step
	Sources []SourceNames // indexed by Segment.Source; shared by all plans
}

// RunError tells that the run failed, on every rank alike.
type RunError struct{ Reason string }

func (e *RunError) Error() string { return e.Reason }

// ErrAlone, as the cause that ends a server's context, tells that the run is gone and nobody follows: trainers must take nothing that
// nobody would hear of, so they are not told to go on with what was pushed.
var ErrAlone = errors.New("the run is gone")

// StartError tells that the ranks cannot start as they said: they differ, the state is of another identity, a run with history was
// given no start.
type StartError struct{ Reason string }

func (e *StartError) Error() string { return e.Reason }

// Upstream is the run as the sidecar sees it: the orchestrator. Every call may be made from several goroutines and returns when its
// context ends. An implementation hides restarts of the orchestrator: it waits.
type Upstream interface {
	// Join says where a rank of the world starts, and blocks until every rank of the run has. A *StartError or *RunError goes to the trainer.
	Join(ctx context.Context, rank millrace.Rank, start Start) (Begin, error)
	// Plan returns a step of an attempt, blocking until it is sealed; io.EOF when the run ends before it; *RunError when it failed.
	Plan(ctx context.Context, attempt millrace.Attempt, step millrace.Step) (*StepPlan, error)
	// Commit says that the rank has taken every microbatch up to and including step. It may come twice for a step, and skips steps
	// where later ones came at once. When it returns, the fact is safe from a crash of this process.
	Commit(ctx context.Context, rank millrace.Rank, attempt millrace.Attempt, step millrace.Step) error
	// CheckpointSaved says that the trainer's checkpoint of step is durable.
	CheckpointSaved(ctx context.Context, rank millrace.Rank, attempt millrace.Attempt, step millrace.Step) error
	// Reported passes on what a trainer of a data-parallel rank measured. It never blocks, and may be lost.
	Reported(rank millrace.Rank, report Report)
	// Left says that the rank's trainer is gone. It is called once for every Join that was called, after its commits.
	Left(rank millrace.Rank)
	// Waiting names what the next batch waits for, for the trainer's log; "" where nothing is known.
	Waiting() string
	// Alerts returns what the run lacks, blocking while that is what it was at version after; 0 is before all.
	Alerts(ctx context.Context, after uint64) (alerts []Alert, version uint64, err error)
}

// Alert is something that the run lacks: it goes on, but people should know.
type Alert struct {
	Kind  string `json:"kind"`
	Text  string `json:"text"`
	Since int64  `json:"since"` // unix milliseconds
}

// Holds tells whether an alert is in a list.
func Holds(alerts []Alert, a Alert) bool {
	return slices.ContainsFunc(alerts, func(b Alert) bool { return a.Kind == b.Kind && a.Text == b.Text })
}

// Report is what a trainer measured of a step.
type Report struct {
	Attempt      millrace.Attempt
	Step         millrace.Step
	Losses       []SourceLoss // by source
	Microbatches []uint32
	Seconds      []float64 // of each microbatch
}

// SourceLoss is a source's part of a step's loss on one rank.
type SourceLoss struct {
	Source string
	Sum    float64
	Tokens uint64 // that the sum is over
}

// Fetcher gets a step's tokens for all ranks of the host at once.
type Fetcher interface {
	// Fetch blocks until the tokens of the data-parallel ranks' parts are here. The payload is shared and stays as it is until Release.
	Fetch(ctx context.Context, plan *millrace.Plan, ranks []millrace.Rank) (Payload, error)
}

// Payload is the tokens of some ranks' parts of a step.
type Payload interface {
	// Tokens returns, for each segment of the part, its tokens, and one more where its document goes on.
	Tokens(rank millrace.Rank, microbatch uint32) ([][]uint32, error)
	// Masked tells which segments of the part turned out bad after they were planned and are masked; their tokens are not there. nil: none.
	Masked(rank millrace.Rank, microbatch uint32) []bool
	// Release ends the use of everything that Tokens returned; called once.
	Release()
}
