package facts

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
)

// savedText is the JSON form of a run state. docs/resume.md describes its keys.
type savedText struct {
	Version int    `json:"millrace"` // format of this object
	Step    uint64 `json:"step"`     // first step that was not consumed
	Attempt uint32 `json:"attempt"`
	Planner string `json:"planner"` // progress.State, compact
	// Sources names the planner's sources in its order, with fingerprints of their files: see packSources.
	Sources   string          `json:"sources"`
	Eras      string          `json:"eras,omitempty"` // of the sources whose epochs do not read all files: see packEras
	Identity  json.RawMessage `json:"identity"`       // compact form
	Overrides *overridesText  `json:"live,omitempty"`
	// Inside a step only: microbatches of Step that were consumed, and the placement digest of the step, under which
	// they were counted.
	Microbatch uint32 `json:"microbatch,omitempty"`
	Placement  string `json:"placement,omitempty"`
}

const savedVersion = 2

func (t savedText) encode() []byte {
	text, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("encode run state: %v", err)) // plain fields only: cannot happen
	}
	return text
}

// SavedState is a state that a trainer saved, decoded but not migrated: it may belong to another run. Its overrides
// refer to a mixture file, so they are decoded once the file is known.
type SavedState struct {
	Attempt    uint32
	Planner    progress.State
	Sources    []SourceFiles
	Identity   []byte
	Microbatch uint32 // inside a step: its microbatches that were consumed
	Placement  string // inside a step: its placement digest, in hex
	overrides  *overridesText
}

// ReadSaved decodes a state that a trainer saved.
func ReadSaved(text []byte) (*SavedState, error) {
	var version struct {
		Millrace *int `json:"millrace"`
	}
	if err := json.Unmarshal(text, &version); err != nil || version.Millrace == nil {
		return nil, unreadable(invalid("it is no state of a run"))
	}
	if v := *version.Millrace; v != savedVersion {
		return nil, invalid(
			"read state: its format is version %d, this program reads version %d: go on with the program that saved it",
			v, savedVersion,
		)
	}
	var t savedText
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, unreadable(wrongType(err))
	}
	if _, err := millrace.ParseDigest(t.Placement); t.Microbatch > 0 && err != nil {
		return nil, unreadable(invalid("its placement %.40q is no digest", t.Placement))
	}
	s := &SavedState{
		Attempt:    t.Attempt,
		Identity:   t.Identity,
		Microbatch: t.Microbatch,
		Placement:  t.Placement,
		overrides:  t.Overrides,
	}
	var err error
	if s.Planner, err = progress.Parse(t.Planner); err != nil {
		return nil, unreadable(err)
	}
	if uint64(s.Planner.Step) != t.Step {
		return nil, unreadable(invalid("step %d, but its planner stands at %d", t.Step, s.Planner.Step))
	}
	if s.Sources, err = unpackSources(t.Sources); err != nil {
		return nil, unreadable(err)
	}
	if err := unpackEras(t.Eras, s.Sources); err != nil {
		return nil, unreadable(err)
	}
	if len(s.Sources) != len(s.Planner.Sources) {
		return nil, unreadable(invalid("it names %d sources and holds %d", len(s.Sources), len(s.Planner.Sources)))
	}
	return s, nil
}

// wrongType returns the error for a key with a value of a wrong type, in the words of JSON.
func wrongType(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return millrace.Mark(err, millrace.ErrInvalid)
	}
	want := "an object"
	switch wrong.Type.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Uint32, reflect.Uint64:
		want = "a whole number from 0"
	case reflect.Slice, reflect.Array:
		want = "an array"
	}
	value := "a " + wrong.Value
	switch {
	case strings.HasPrefix(wrong.Value, "number "):
		value = "the " + wrong.Value
	case wrong.Value == "array" || wrong.Value == "object":
		value = "an " + wrong.Value
	}
	return invalid("its key %q holds %s, not %s", wrong.Field, value, want)
}

// unreadable adds the cure for a state that was changed after it was saved.
func unreadable(err error) error {
	return fmt.Errorf("read state: %w: pass the value of state_dict() unchanged", err)
}

// readOwn decodes a state that this run journaled. Without a spec it leaves the overrides out.
func readOwn(text []byte, spec *planner.Spec) (*RunState, error) {
	saved, err := ReadSaved(text)
	if err != nil {
		return nil, err
	}
	out := &RunState{Run: NewRun(spec, saved.Identity, saved.Sources), Attempt: saved.Attempt, Planner: saved.Planner}
	if spec == nil {
		return out, nil
	}
	if err := out.Planner.Validate(len(spec.Sources)); err != nil {
		return nil, err
	}
	if out.Overrides, err = parseOverrides(saved.overrides, spec.Schedule); err != nil {
		return nil, unreadable(err)
	}
	return out, nil
}

// Encode returns the text that a trainer saves. Equal states have equal texts.
func (s *RunState) Encode() []byte { return s.text().encode() }

// EncodeInside returns the text that a trainer saves inside the next step, after some of its microbatches. placement is
// the step's placement digest, in hex. After no microbatch the text is that of Encode.
func (s *RunState) EncodeInside(microbatch uint32, placement string) []byte {
	t := s.text()
	t.Microbatch, t.Placement = microbatch, placement
	return t.encode()
}

func (s *RunState) text() savedText {
	return savedText{
		Version:   savedVersion,
		Step:      s.NextStep(),
		Attempt:   s.Attempt,
		Planner:   s.Planner.Compact(),
		Sources:   s.packed,
		Eras:      s.eras,
		Identity:  s.Identity,
		Overrides: s.Overrides.toText(s.Spec),
	}
}

// invalid returns an error that is marked as wrong usage.
func invalid(format string, args ...any) error {
	return millrace.Errorf(millrace.ErrInvalid, format, args...)
}
