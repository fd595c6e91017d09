package millrace

import (
	"encoding/hex"
	"fmt"
	"strconv"
)

// Ordinal is a position in a source's deterministic stream, from 0. It never depends on topology, time or failures.
type Ordinal uint64

// String returns the decimal form.
func (o Ordinal) String() string { return strconv.FormatUint(uint64(o), 10) }

// StripeRun is the number of consecutive ordinals of a source in one stripe before the next stripe's turn. It is not
// part of a run's identity, but all roles of one release must use the same number.
const StripeRun = 32

// Stripe returns the number of the ordinal's stripe in a source that has `stripes` stripes.
func (o Ordinal) Stripe(stripes uint64) uint64 { return uint64(o) / StripeRun % stripes }

// Step is one optimizer step of a run, from 0.
type Step uint64

// String returns the decimal form.
func (s Step) String() string { return strconv.FormatUint(uint64(s), 10) }

// Epoch is one pass over a source, from 0. It is never a fencing number.
type Epoch uint32

// Term is the fencing number of an orchestrator or of a loader's assignment. Receivers refuse terms below the highest
// that they have seen.
type Term uint64

// Attempt is the number of an attempt: a stretch of a run that began at one start. The first is 1; 0 means none yet.
type Attempt uint32

// StartKind is the kind of the start that a trainer declares. Its text is on the wire.
type StartKind string

// The kinds of start.
const (
	StartNone     StartKind = ""         // no declaration: fresh on a new run, an error on a run with history
	StartFresh    StartKind = "fresh"    // from step 0
	StartLatest   StartKind = "latest"   // from the first step that not all ranks have consumed
	StartState    StartKind = "state"    // after the step of a saved state
	StartContinue StartKind = "continue" // same attempt, own position: only the sidecar was lost
)

// Rank is a trainer rank, from 0. Plans and slots use data-parallel ranks. Sockets, joins and commits use ranks of the
// world; Topology.Coordinates gives the data-parallel rank of a world rank.
type Rank uint32

// Stream names one of several independent streams of a run.
type Stream string

// Train is the stream that every run has.
const Train Stream = "train"

// SampleID is a stable address inside a source: a shard of its manifest and a record of that shard, both from 0.
type SampleID struct {
	Shard  uint32
	Record uint64
}

// String returns shard#record.
func (id SampleID) String() string { return fmt.Sprintf("%d#%d", id.Shard, id.Record) }

// Lengths has the sizes of a document. 0: unknown or absent.
type Lengths struct {
	Tokens  uint32
	Patches uint32
	Bytes   uint32
}

// SampleMeta is the metadata of an ordinal: of a document, or of a piece of one. It is all that the planner sees. Three
// kinds of documents keep their ordinals and count zero: one that cannot be decoded (Rejected), one without
// tokens, and one that a filter in force refuses. Bit 0 of Refused is for the source's own filter; each further bit is
// for the filter of a stage. Bits 30 and 31 are notes (progress.Counts), not refusals.
//
// The planner keeps some hundred thousand of them. They have the size of a cache line, and no pointer for the garbage
// collector to follow.
type SampleMeta struct {
	Ordinal  Ordinal
	Epoch    Epoch
	ID       SampleID
	Offset   uint32  // the document's tokens before the ordinal's piece; 0: the ordinal begins with the document
	Lengths  Lengths // of the whole document
	Refused  uint64
	Rejected bool
	// Untrained are the labels of the ordinal that are left out of the loss: its untrained tokens after the first one,
	// and the next one if the document continues after its piece.
	Untrained uint32
}

// Segment is a run of tokens Offset … Offset+Length of one document. Source indexes the run's sources sorted by name.
// If More is set, the document continues after the segment, and the last label is the document's next token. Patches
// are all patches of the document; the segment with its first token carries them.
type Segment struct {
	Source    uint32
	Untrained uint32 // labels that are left out of the loss; counted if Plan.Counted is set
	Ordinal   Ordinal
	Epoch     Epoch
	ID        SampleID
	Offset    uint32
	Length    uint32
	Patches   uint32
	More      bool
}

// Labels returns the labels of the segment that count in the loss: of each token but the document's last, and without
// untrained ones.
func (s *Segment) Labels() uint32 {
	if s.More {
		return s.Length - s.Untrained
	}
	return s.Length - 1 - s.Untrained
}

// Assignment is a segment's place in one microbatch of one rank: row and start column (packed), or row 0 and start in
// the 1-D arrays (varlen).
//
// Parts > 0: the segment is split over that many data-parallel ranks of the same microbatch. This rank has slice Part
// of the zigzag: chunks Part and 2*Parts-1-Part of 2*Parts equal ones. There is one assignment for each slice; the
// content digest counts the segment once.
//
// Holder > 0: context-parallel rank Holder-1 alone holds the segment, whole. 0: each context-parallel rank holds a
// slice.
type Assignment struct {
	Segment
	Rank       Rank
	Microbatch uint32
	Row        uint32
	Start      uint32
	Part       uint32
	Parts      uint32
	Holder     uint32
	Half       uint32 // in a preference pair (constructors.Chosen); 0: in none, as in every plan
}

// Columns returns the columns of its row that the assignment takes, before context parallelism. Every segment is
// rounded up to pad tokens. A slice takes 2 of the segment's 2*Parts chunks, each of Length / (2*Parts) tokens rounded
// up, then up to pad. So the slices of a segment are equally wide, and the last chunks end in padding.
func (a *Assignment) Columns(pad uint32) uint32 {
	if a.Parts == 0 {
		return uint32((uint64(a.Length) + uint64(pad) - 1) / uint64(pad) * uint64(pad))
	}
	chunks := 2 * uint64(a.Parts)
	width := (uint64(a.Length) + chunks - 1) / chunks
	return 2 * uint32((width+uint64(pad)-1)/uint64(pad)*uint64(pad))
}

// Slot names one microbatch of one rank in one attempt; its value is immutable.
type Slot struct {
	Attempt    Attempt
	Step       Step
	Rank       Rank
	Microbatch uint32
}

// String returns attempt/step/rank/microbatch.
func (s Slot) String() string {
	return fmt.Sprintf("%d/%d/%d/%d", s.Attempt, s.Step, s.Rank, s.Microbatch)
}

// Digest is a blake2b-128 digest of content or of placement.
type Digest [16]byte

// String returns lower-case hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// IsZero reports whether the digest was never set.
func (d Digest) IsZero() bool { return d == Digest{} }

// ParseDigest reads the text that String writes.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(d) {
		return d, fmt.Errorf("parse digest %q: want %d hexadecimal characters", s, 2*len(d))
	}
	copy(d[:], b)
	return d, nil
}
