package progress

import (
	"encoding/json"
	"fmt"
	"slices"

	"millrace"
	"millrace/mixing"
)

// State is the planner's memory between two steps. Inside a window, Sources and Carried are those at the window's
// beginning: the window is drawn again from the same documents, and Done counts its steps that are over.
type State struct {
	Version int           `json:"planner"`           // PlannerVersion that made it
	Step    millrace.Step `json:"step"`              // next to plan
	Tokens  uint64        `json:"tokens"`            // document tokens placed so far
	Done    Done          `json:"done,omitzero"`     // of the window that is under way
	Carried []Carried     `json:"carried,omitempty"` // drawn and charged, not placed yet; by source, ordinal and offset
	Sources []Source      `json:"sources"`           // in the order of planner.Spec.Sources
}

// Done counts the steps of a window that are over, and the document tokens that they placed.
type Done struct {
	Steps  uint32 `json:"steps"`
	Tokens uint64 `json:"tokens"`
}

// Position is a place in the schedule: a step, and the document tokens placed before it.
type Position struct{ Step, Tokens uint64 }

// New returns the state before the first step of a new run.
func New(sources int) State {
	return State{Version: PlannerVersion, Sources: make([]Source, sources)}
}

// NewOf returns the state before the first step of a run that began with a version; 0: it has not begun.
func NewOf(version uint32, sources int) State {
	s := New(sources)
	if version > 0 {
		s.Version = max(int(version), unpooled)
	}
	return s
}

// IsPooled reports whether steps are packed from a pool of waiting segments, if segments may wait.
func (s *State) IsPooled() bool { return s.Version > unpooled }

// ShufflesPieces reports whether the run began with a planner that reads long documents of tokens in shuffled pieces if
// the mixture file does not say.
func (s *State) ShufflesPieces() bool { return s.Version > unpooled }

// String returns the state as JSON for people and golden files. Trainers save Compact.
func (s State) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Sprintf("planner state: %v", err) // integers always marshal
	}
	return string(text)
}

// Equal reports whether runs from both states plan the same steps.
func (s State) Equal(other State) bool {
	return s.Version == other.Version && s.Step == other.Step && s.Tokens == other.Tokens && s.Done == other.Done &&
		slices.Equal(s.Carried, other.Carried) && slices.Equal(s.Sources, other.Sources)
}

// Clone returns an independent copy.
func (s State) Clone() State {
	s.Sources, s.Carried = slices.Clone(s.Sources), slices.Clone(s.Carried)
	return s
}

// Position returns the state's place in the schedule.
func (s *State) Position() Position { return Position{uint64(s.Step), s.Tokens} }

// Drawn returns the step and the tokens from which a run that starts from the state draws. Inside a window these are
// the window's beginning, otherwise the state's own.
func (s *State) Drawn() (step millrace.Step, tokens uint64) {
	return s.Step - millrace.Step(s.Done.Steps), s.Tokens - s.Done.Tokens
}

// Begun returns the state at the beginning of the window that is under way.
func (s State) Begun() State {
	s.Step, s.Tokens = s.Drawn()
	s.Done = Done{}
	return s
}

// Floor returns the first ordinal of a source that a run from the state reads: that of its first carried
// segment, or of its next document. Loaders start there and may forget everything below.
func (s *State) Floor(source int) millrace.Ordinal {
	floor := s.Sources[source].Ordinal
	i, _ := slices.BinarySearchFunc(s.Carried, Carried{Source: uint32(source)}, Carried.Compare)
	if i < len(s.Carried) && s.Carried[i].Source == uint32(source) {
		floor = min(floor, s.Carried[i].Ordinal)
	}
	return floor
}

// isPlain reports whether the state is between windows and carries no segment. Other states have a longer form.
func (s *State) isPlain() bool { return s.Done == Done{} && len(s.Carried) == 0 }

// Validate returns an error unless a run with the given number of sources can start from the state.
func (s State) Validate(sources int) error {
	if err := s.checkVersion(); err != nil {
		return err
	}
	if len(s.Sources) != sources {
		return millrace.Errorf(millrace.ErrMismatch, "planner state: it has %d sources, the run has %d", len(s.Sources),
			sources)
	}
	if err := s.validateCarried(); err != nil {
		return err
	}
	if uint64(s.Done.Steps) > uint64(s.Step) || s.Done.Tokens > s.Tokens || s.Done.Steps == 0 && s.Done.Tokens > 0 {
		return millrace.Errorf(millrace.ErrInvalid,
			"planner state: %d tokens of %d steps of its window are done, of %d in all by step %s", s.Done.Tokens,
			s.Done.Steps, s.Tokens, s.Step)
	}
	tokens := uint64(0)
	for i, src := range s.Sources {
		tokens += src.Tokens
		if src.SeekPoint.Ordinal > s.Floor(i) || src.SeekPoint.EpochStart > src.SeekPoint.Ordinal {
			return millrace.Errorf(millrace.ErrInvalid,
				"planner state: source %d is at ordinal %s, its seek point at %s of an epoch from %s", i, s.Floor(i),
				src.SeekPoint.Ordinal, src.SeekPoint.EpochStart)
		}
	}
	placed := s.Tokens - s.Done.Tokens
	// fewer are valid: a source may have been removed from the mixture since
	if tokens > placed && tokens-placed > LengthOf(s.Carried) {
		return millrace.Errorf(millrace.ErrInvalid, "planner state: its sources placed %d tokens, it counts %d", tokens,
			placed)
	}
	if _, err := s.Apportioner(); err != nil {
		return millrace.Errorf(millrace.ErrInvalid, "planner state: %w", err)
	}
	return nil
}

// validateCarried returns an error unless the carried segments are in order and before the next documents of their
// sources.
func (s *State) validateCarried() error {
	if len(s.Carried) > mostCarried {
		return millrace.Errorf(millrace.ErrInvalid, "planner state: it carries %d segments, the most is %d",
			len(s.Carried), mostCarried)
	}
	for i, c := range s.Carried {
		unordered := i > 0 && s.Carried[i-1].Compare(c) >= 0
		if int(c.Source) >= len(s.Sources) || unordered || !s.Sources[c.Source].drew(c) || c.Length == 0 ||
			c.Age > maxAge {
			return millrace.Errorf(millrace.ErrInvalid,
				"planner state: carried segment %d, %+v, is out of order or was not drawn yet", i, c)
		}
	}
	return nil
}

func (s State) checkVersion() error {
	if s.Version < 0 || s.Version > max32 || !IsSupported(uint32(s.Version)) {
		return millrace.Errorf(millrace.ErrInvalid,
			"planner state: it is of planner version %d, this binary plans version %d: "+
				"go on with the program that saved it",
			s.Version, PlannerVersion)
	}
	return nil
}

// Apportioner returns an apportioner with the state's deficits and no shares in force.
func (s State) Apportioner() (*mixing.Apportioner, error) {
	accounts := make([]mixing.Account, len(s.Sources))
	for i, src := range s.Sources {
		accounts[i] = mixing.Account{Deficit: src.Deficit, Left: src.Finished}
	}
	return mixing.RestoreApportioner(accounts)
}
