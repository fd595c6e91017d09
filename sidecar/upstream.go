package sidecar

import (
	"context"
	"errors"
	"slices"

	"millrace"
	"millrace/constructors"
	"millrace/internal/activity"
	"millrace/proto"
)

// Start is the start that a trainer declares.
type Start struct {
	Kind     millrace.StartKind
	State    []byte   // JSON, of any rank; for millrace.StartState
	Override []string // identity names that may differ from the state's
	Seat     Seat     // of the trainer's GPU; no batch depends on it
	ReadOnly bool     // the client can map memory that it can only read
	// For millrace.StartContinue: the next batch of the trainer.
	Attempt    millrace.Attempt
	Step       millrace.Step
	Microbatch uint32
}

// Begin has a rank's first batch and describes all its batches.
type Begin struct {
	Attempt     millrace.Attempt
	Term        millrace.Term
	Step        millrace.Step // of the first batch
	Microbatch  uint32        // of the first batch
	State       []byte        // JSON: the state before Step; with the mid-step fields if Microbatch is not 0
	Notice      string        // for the trainer's log: why the rank begins at another place than its state's
	Topology    millrace.Topology
	Broadcast   millrace.Broadcast
	Shapes      []millrace.Shape // of the stages, in their order; a plan names its shape
	PadMultiple uint32
	Untrained   bool // some tokens may be left out of the loss
	Fields      bool // some segments have passed-through fields
}

// Source returns the rank of the world that has the tensors of a rank's batches: the rank itself, or the rank that
// broadcasts to it.
func (b *Begin) Source(rank millrace.Rank) millrace.Rank { return b.Broadcast.Source(b.Topology, rank) }

// Fed lists the data-parallel ranks whose samples the host of the given ranks needs. Ranks without tokens need them if
// the metadata of a batch depends on tokens, or comes with them.
func (b *Begin) Fed(ranks []millrace.Rank) (out []millrace.Rank) {
	for _, r := range ranks {
		isNeeded := b.Source(r) == r && !b.Broadcast.IsBare(b.Topology, r) || b.Untrained || b.Fields
		if dp := millrace.Rank(b.Topology.Coordinates(r).DP); isNeeded && !slices.Contains(out, dp) {
			out = append(out, dp)
		}
	}
	return out
}

// share is the part of each plan that a rank of the world gets.
type share struct {
	part  millrace.Rank // data-parallel
	slice uint32        // context-parallel
	whole bool          // with the tensors; otherwise their description alone
	bare  bool          // with the tensors that need no tokens alone
}

func (b *Begin) share(rank millrace.Rank) share {
	at := b.Topology.Coordinates(rank)
	return share{part: millrace.Rank(at.DP), slice: uint32(at.CP), whole: b.Source(rank) == rank,
		bare: b.Broadcast.IsBare(b.Topology, rank)}
}

// SourceNames has the printable names of one source.
type SourceNames struct {
	Name   string
	Shards []string // by SampleID.Shard: the path below the source's root
}

// StepPlan is a sealed step, the state after it and the names of its sources.
type StepPlan struct {
	*millrace.Plan
	State   []byte        // JSON: the state after the step
	Sources []SourceNames // indexed by Segment.Source; shared by all plans
}

// RunError is the error of a failed run. Every rank receives it.
type RunError struct{ Reason string }

func (e *RunError) Error() string { return e.Reason }

// ErrAlone is the cause that ends a server's context if the run is gone and no sidecar follows. The server then sends
// no LEAVING, because no process would record that clients consumed the pushed batches.
var ErrAlone = errors.New("the run is gone")

// StartError is the error of ranks that cannot start as declared. The declarations differ, the state has another
// identity, or a run with history got no declaration.
type StartError struct{ Reason string }

func (e *StartError) Error() string { return e.Reason }

// Upstream is the orchestrator as the sidecar sees it. Calls are safe for concurrent use and return when their context
// ends. An implementation hides restarts of the orchestrator: calls wait until it is back.
type Upstream interface {
	// Join declares the start of a rank of the world, and blocks until every rank of the run has joined. The trainer
	// receives a *StartError or *RunError.
	Join(ctx context.Context, rank millrace.Rank, start Start) (Begin, error)
	// Plan returns a step of an attempt and blocks until it is sealed. It returns io.EOF if the run ends before the
	// step, and a *RunError if the run failed.
	Plan(ctx context.Context, attempt millrace.Attempt, step millrace.Step) (*StepPlan, error)
	// Commit reports that the rank has consumed every microbatch up to and including step. It may be repeated, and a
	// later step includes the earlier ones. After it has returned nil, the commit survives a crash of this process.
	Commit(ctx context.Context, rank millrace.Rank, attempt millrace.Attempt, step millrace.Step) error
	// CheckpointSaved reports that the trainer's checkpoint of step is durable.
	CheckpointSaved(ctx context.Context, rank millrace.Rank, attempt millrace.Attempt, step millrace.Step) error
	// Reported passes on the measurements of a data-parallel rank's trainer. It never blocks, and a report may be lost.
	Reported(rank millrace.Rank, r Report)
	// Left reports that the rank's trainer is gone. It is called once for every call of Join, after the rank's commits.
	Left(rank millrace.Rank)
	// Waiting returns the cause of the wait for a plan or its tokens, with a text for the trainer's log. The text is ""
	// if there is no reason.
	Waiting() activity.Cause
	// Delivery returns the newest figures of the run, nil if there are none, and asks for newer ones.
	Delivery() *proto.Delivery
	// Alerts returns the open alerts and the version of the list. It blocks until the version is above after. The first
	// version is above 0.
	Alerts(ctx context.Context, after uint64) (alerts []Alert, version uint64, err error)
}

// Alert is a condition that people should know. The run continues.
type Alert struct {
	Kind  string `json:"kind"`
	Text  string `json:"text"`
	Since int64  `json:"since"` // unix milliseconds
}

// Holds reports whether a list has an alert of the same kind and text.
func Holds(alerts []Alert, a Alert) bool {
	return slices.ContainsFunc(alerts, func(b Alert) bool { return a.Kind == b.Kind && a.Text == b.Text })
}

// Report has the measurements of one step on one rank.
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
	Tokens uint64 // tokens in the sum
}

// Fetcher fetches a step's tokens for all ranks of the host at once.
type Fetcher interface {
	// Fetch blocks until the tokens of the data-parallel ranks' parts are here. The payload is shared and immutable
	// until Release.
	Fetch(ctx context.Context, plan *millrace.Plan, ranks []millrace.Rank) (Payload, error)
}

// Payload has the tokens of some ranks' parts of a step.
type Payload interface {
	// Tokens returns the tokens of each segment of a part, and one more token if the document continues after the
	// segment.
	Tokens(rank millrace.Rank, microbatch uint32) ([]constructors.Tokens, error)
	// Masked reports for each segment of a part whether it is masked; a masked segment has no tokens. nil: none is.
	Masked(rank millrace.Rank, microbatch uint32) []bool
	// Fields returns the passed-through fields of each segment of a part, a JSON object or "". nil: none has any.
	Fields(rank millrace.Rank, microbatch uint32) []string
	// Bytes returns the memory that the tokens and fields take until Release.
	Bytes() int64
	// Release ends the use of everything that Tokens returned. It is called once.
	Release()
}
