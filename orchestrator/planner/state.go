package planner

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"millrace"
	"millrace/mixing"
)

// State is all that select remembers between steps: restored, it goes on exactly where it was taken. Inside a window Sources and Carried
// stand at the window's beginning, which is drawn again from facts, and Done says how much of it is behind.
type State struct {
	Version int           `json:"planner"`           // PlannerVersion that made it
	Step    millrace.Step `json:"step"`              // next to plan
	Tokens  uint64        `json:"tokens"`            // document tokens placed in all
	Done    Done          `json:"done,omitzero"`     // of the window that is under way
	Carried []Carried     `json:"carried,omitempty"` // drawn and charged, not placed yet; by source, ordinal and offset
	Sources []SourceState `json:"sources"`           // in the order of Spec.Sources
}

// Done is how much of a window is behind: its steps, and the document tokens that they placed.
type Done struct {
	Steps  uint32 `json:"steps"`
	Tokens uint64 `json:"tokens"`
}

// SourceState is a source's part of a State: its cursor, its counters and its account with the mixture. Counters count what was drawn, so what
// is carried counts.
type SourceState struct {
	Ordinal   millrace.Ordinal   // of the document that the next segment comes from
	Offset    uint32             // tokens of that document already placed
	Epoch     millrace.Epoch     // of the last document consumed
	Tokens    uint64             // document tokens drawn
	Samples   uint64             // documents drawn, counted at their first segment
	Deficit   int64              // target minus placed, in parts of mixing.One
	Finished  bool               // it ended and left
	SeekPoint millrace.SeekPoint // the newest known at or before the source's Floor; zero where none is needed
}

// PassedOver returns how many documents were consumed that count nothing: refused by filters, without tokens, or rejected.
func (s *SourceState) PassedOver() uint64 {
	begun := uint64(0)
	if s.Offset > 0 {
		begun = 1
	}
	return uint64(s.Ordinal) + begun - s.Samples
}

// NewState returns the state before the first step.
func NewState(sources int) State {
	return State{Version: PlannerVersion, Sources: make([]SourceState, sources)}
}

// String returns the state for people, and for golden files. What is saved is Compact.
func (s State) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Sprintf("planner state: %v", err) // integers always marshal
	}
	return string(text)
}

// Equal tells whether both go on alike.
func (s State) Equal(other State) bool {
	return s.Version == other.Version && s.Step == other.Step && s.Tokens == other.Tokens && s.Done == other.Done &&
		slices.Equal(s.Carried, other.Carried) && slices.Equal(s.Sources, other.Sources)
}

// Clone returns an independent copy.
func (s State) Clone() State {
	s.Sources, s.Carried = slices.Clone(s.Sources), slices.Clone(s.Carried)
	return s
}

// Drawn is the place in the schedule from which on steps are drawn where a run goes on from the state: its step and tokens, or those of the
// beginning of the window that is under way.
func (s *State) Drawn() (step millrace.Step, tokens uint64) {
	return s.Step - millrace.Step(s.Done.Steps), s.Tokens - s.Done.Tokens
}

// begun is the state at the beginning of the window that is under way.
func (s State) begun() State {
	s.Step, s.Tokens = s.Drawn()
	s.Done = Done{}
	return s
}

// Validate tells whether a run with that many sources can go on from the state.
func (s State) Validate(sources int) error {
	if err := s.checkVersion(); err != nil {
		return err
	}
	if len(s.Sources) != sources {
		return millrace.Errorf(millrace.ErrMismatch, "planner state: it has %d sources, the run has %d", len(s.Sources), sources)
	}
	if err := s.validateCarried(); err != nil {
		return err
	}
	if uint64(s.Done.Steps) > uint64(s.Step) || s.Done.Tokens > s.Tokens || s.Done.Steps == 0 && s.Done.Tokens > 0 {
		return millrace.Errorf(millrace.ErrInvalid, "planner state: %d tokens of %d steps of its window are done, of %d in all by step %s",
			s.Done.Tokens, s.Done.Steps, s.Tokens, s.Step)
	}
	tokens := uint64(0)
	for i, src := range s.Sources {
		tokens += src.Tokens
		if src.SeekPoint.Ordinal > s.Floor(i) || src.SeekPoint.EpochStart > src.SeekPoint.Ordinal {
			return millrace.Errorf(millrace.ErrInvalid, "planner state: source %d is at ordinal %s, its seek point at %s of an epoch from %s",
				i, s.Floor(i), src.SeekPoint.Ordinal, src.SeekPoint.EpochStart)
		}
	}
	placed := s.Tokens - s.Done.Tokens
	if tokens > placed && tokens-placed > lengthOf(s.Carried) { // fewer are well: a source may have been taken out of the mixture since
		return millrace.Errorf(millrace.ErrInvalid, "planner state: its sources placed %d tokens, it says %d", tokens, placed)
	}
	if _, err := s.apportioner(); err != nil {
		return millrace.Errorf(millrace.ErrInvalid, "planner state: %w", err)
	}
	return nil
}

func (s State) checkVersion() error {
	if s.Version < 0 || s.Version > max32 || !Supported(uint32(s.Version)) {
		return millrace.Errorf(millrace.ErrInvalid, "planner state: it is of planner version %d, this binary plans version %d: go on with the program that saved it",
			s.Version, PlannerVersion)
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

// MarshalJSON writes [ordinal, offset, epoch, tokens, samples, deficit, finished] and, where there is a seek point, [ordinals before
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
	if a := s.SeekPoint; a != (millrace.SeekPoint{}) {
		back, into := uint64(s.Ordinal-a.Ordinal), uint64(a.Ordinal-a.EpochStart)
		for _, n := range []uint64{back, uint64(a.Epoch), into, uint64(a.Shard), uint64(a.Block), a.Record} {
			b = strconv.AppendUint(append(b, ','), n, 10)
		}
	}
	return append(b, ']'), nil
}
