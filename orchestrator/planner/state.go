package planner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"millrace"
	"millrace/mixing"
)

// State is all that select remembers between steps: restored, it goes on exactly where it was taken. Its JSON form is at most 16 KiB at
// 64 sources.
type State struct {
	Version int           `json:"planner"` // PlannerVersion that made it
	Step    millrace.Step `json:"step"`    // next to plan
	Tokens  uint64        `json:"tokens"`  // document tokens placed in all
	Sources []SourceState `json:"sources"` // in the order of Spec.Sources
}

// SourceState is a source's part of a State: its cursor, its counters and its account with the mixture.
type SourceState struct {
	Ordinal  millrace.Ordinal // of the document that the next segment comes from
	Offset   uint32           // tokens of that document already placed
	Epoch    millrace.Epoch   // of the last document consumed
	Tokens   uint64           // document tokens placed
	Samples  uint64           // documents placed, counted at their first segment
	Deficit  int64            // target minus placed, in parts of mixing.One
	Finished bool             // it ended and left
	Anchor   millrace.Anchor  // the newest known at or before Ordinal; zero where none is needed
}

// NewState returns the state before the first step.
func NewState(sources int) State {
	return State{Version: PlannerVersion, Sources: make([]SourceState, sources)}
}

// ParseState reads what State.String wrote. It refuses unknown keys and what Validate refuses.
func ParseState(text string) (State, error) {
	var s State
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return State{}, fmt.Errorf("parse planner state: %w", err)
	}
	if d.More() {
		return State{}, fmt.Errorf("parse planner state: something follows it: %w", millrace.ErrInvalid)
	}
	return s, s.Validate(len(s.Sources))
}

// String returns the compact JSON form.
func (s State) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Sprintf("planner state: %v", err) // integers always marshal
	}
	return string(text)
}

// Equal tells whether both go on alike.
func (s State) Equal(other State) bool {
	return s.Version == other.Version && s.Step == other.Step && s.Tokens == other.Tokens && slices.Equal(s.Sources, other.Sources)
}

// Clone returns an independent copy.
func (s State) Clone() State {
	s.Sources = slices.Clone(s.Sources)
	return s
}

// PastCuts returns the state with every cursor behind a document that is placed in part: for a run in which that ordinal is another
// document, whose rest would be nothing's.
func (s State) PastCuts() State {
	s = s.Clone()
	for i := range s.Sources {
		if src := &s.Sources[i]; src.Offset > 0 {
			src.Ordinal, src.Offset = src.Ordinal+1, 0
		}
	}
	return s
}

// Validate tells whether a run with that many sources can go on from the state.
func (s State) Validate(sources int) error {
	if s.Version != PlannerVersion {
		return fmt.Errorf("planner state: it is of planner version %d, this binary plans version %d; use a binary that does: %w",
			s.Version, PlannerVersion, millrace.ErrInvalid)
	}
	if len(s.Sources) != sources {
		return fmt.Errorf("planner state: it has %d sources, the run has %d: %w", len(s.Sources), sources, millrace.ErrMismatch)
	}
	tokens := uint64(0)
	for i, src := range s.Sources {
		tokens += src.Tokens
		if src.Anchor.Ordinal > src.Ordinal || src.Anchor.EpochStart > src.Anchor.Ordinal {
			return fmt.Errorf("planner state: source %d is at ordinal %s, its anchor at %s of an epoch from %s: %w",
				i, src.Ordinal, src.Anchor.Ordinal, src.Anchor.EpochStart, millrace.ErrInvalid)
		}
	}
	if tokens != s.Tokens {
		return fmt.Errorf("planner state: its sources placed %d tokens, it says %d: %w", tokens, s.Tokens, millrace.ErrInvalid)
	}
	if _, err := s.apportioner(); err != nil {
		return fmt.Errorf("planner state: %w: %w", err, millrace.ErrInvalid)
	}
	return nil
}

// apportioner returns the mixture's accounts as they stand, with no shares in force.
func (s State) apportioner() (*mixing.Apportioner, error) {
	accounts := make([]mixing.Account, len(s.Sources))
	for i, src := range s.Sources {
		accounts[i] = mixing.Account{Deficit: src.Deficit, Left: src.Finished}
	}
	return mixing.RestoreApportioner(accounts)
}

// sourceNumbers and anchorNumbers are the lengths of a SourceState's array without and of its anchor.
const (
	sourceNumbers = 7
	anchorNumbers = 6
)

// MarshalJSON writes [ordinal, offset, epoch, tokens, samples, deficit, finished] and, where there is an anchor, [ordinals before
// the cursor, epoch, ordinals into the epoch, shard, block, record] behind them.
func (s SourceState) MarshalJSON() ([]byte, error) {
	finished := uint64(0)
	if s.Finished {
		finished = 1
	}
	b := []byte{'['}
	for _, n := range []uint64{uint64(s.Ordinal), uint64(s.Offset), uint64(s.Epoch), s.Tokens, s.Samples} {
		b = append(strconv.AppendUint(b, n, 10), ',')
	}
	b = append(strconv.AppendInt(b, s.Deficit, 10), ',')
	b = strconv.AppendUint(b, finished, 10)
	if a := s.Anchor; a != (millrace.Anchor{}) {
		back, into := uint64(s.Ordinal-a.Ordinal), uint64(a.Ordinal-a.EpochStart)
		for _, n := range []uint64{back, uint64(a.Epoch), into, uint64(a.Shard), uint64(a.Block), a.Record} {
			b = strconv.AppendUint(append(b, ','), n, 10)
		}
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *SourceState) UnmarshalJSON(text []byte) error {
	var numbers []json.Number
	if err := json.Unmarshal(text, &numbers); err != nil {
		return err
	}
	if len(numbers) != sourceNumbers && len(numbers) != sourceNumbers+anchorNumbers {
		return fmt.Errorf("a source has %d numbers, want %d or %d", len(numbers), sourceNumbers, sourceNumbers+anchorNumbers)
	}
	r := numberReader{numbers: numbers}
	*s = SourceState{
		Ordinal: millrace.Ordinal(r.unsigned(64)), Offset: uint32(r.unsigned(32)), Epoch: millrace.Epoch(r.unsigned(32)),
		Tokens: r.unsigned(64), Samples: r.unsigned(64), Deficit: r.signed(), Finished: r.unsigned(1) == 1,
	}
	if len(numbers) > sourceNumbers {
		a := &s.Anchor
		a.Ordinal = s.Ordinal - millrace.Ordinal(r.unsigned(64))
		a.Epoch = millrace.Epoch(r.unsigned(32))
		a.EpochStart = a.Ordinal - millrace.Ordinal(r.unsigned(64))
		a.Shard, a.Block, a.Record = uint32(r.unsigned(32)), uint32(r.unsigned(32)), r.unsigned(64)
	}
	return r.err
}

// numberReader reads integers one after the other and keeps the first error.
type numberReader struct {
	numbers []json.Number
	err     error
}

func (r *numberReader) unsigned(bits int) uint64 {
	n, err := strconv.ParseUint(r.next(), 10, bits)
	r.keep(err)
	return n
}

func (r *numberReader) signed() int64 {
	n, err := strconv.ParseInt(r.next(), 10, 64)
	r.keep(err)
	return n
}

func (r *numberReader) next() string {
	n := r.numbers[0]
	r.numbers = r.numbers[1:]
	return n.String()
}

func (r *numberReader) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}
