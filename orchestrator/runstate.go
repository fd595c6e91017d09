package orchestrator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"millrace"
	"millrace/orchestrator/planner"
)

// RunState is what a trainer saves: all that a fresh run directory needs to go on. Equal on all ranks at a step boundary.
type RunState struct {
	Version int             `json:"millrace"` // format of this object, 1
	Step    uint64          `json:"step"`     // first step that was not consumed
	Attempt uint32          `json:"attempt"`
	Planner json.RawMessage `json:"planner"`
	// Identity is the run's identity in its compact form; Sources the fingerprint of each source's files.
	Identity json.RawMessage   `json:"identity"`
	Sources  map[string]string `json:"sources"`
	// Mid-step only: microbatches of Step that were consumed, and that step's placement digest, without which they mean nothing.
	Microbatch uint32 `json:"microbatch,omitempty"`
	Placement  string `json:"placement,omitempty"`
}

const runStateVersion = 1

// ParseRunState reads what a trainer saved.
func ParseRunState(text []byte) (*RunState, error) {
	var rs RunState
	if err := json.Unmarshal(text, &rs); err != nil {
		return nil, fmt.Errorf("read state: %v: pass what state_dict() returned, unchanged: %w", err, millrace.ErrInvalid)
	}
	if rs.Version != runStateVersion {
		return nil, fmt.Errorf("read state: its version is %d, this program reads %d: %w", rs.Version, runStateVersion, millrace.ErrInvalid)
	}
	return &rs, nil
}

func (rs *RunState) planner(spec *planner.Spec) (planner.State, error) {
	st, err := planner.ParseState(string(rs.Planner))
	if err != nil {
		return st, fmt.Errorf("read state: %w", err)
	}
	if err := st.Validate(len(spec.Sources)); err != nil {
		return st, fmt.Errorf("read state: %w", err)
	}
	if uint64(st.Step) != rs.Step {
		return st, fmt.Errorf("read state: step %d, but its planner stands at %d: %w", rs.Step, st.Step, millrace.ErrInvalid)
	}
	return st, nil
}

// runState is the run state with the planner at st.
func (m *Machine) runState(attempt uint32, st planner.State) []byte {
	rs := RunState{Version: runStateVersion, Step: uint64(st.Step), Attempt: attempt, Planner: json.RawMessage(st.String()), Identity: m.cfg.Identity, Sources: map[string]string{}}
	for name, mf := range m.s.Manifests {
		rs.Sources[name] = fmt.Sprintf("%x", mf.Fingerprint[:8])
	}
	text, err := json.Marshal(&rs)
	if err != nil {
		panic(fmt.Sprintf("encode run state: %v", err)) // plain fields only: cannot happen
	}
	return text
}

// accept checks that a state belongs to this run, but for what is overridden by name. reordered tells that an ordinal may be another
// document now than when the state was saved.
func (m *Machine) accept(rs *RunState, override []string) (reordered bool, err error) {
	changed, err := m.cfg.Changed(rs.Identity)
	if err != nil {
		return false, fmt.Errorf("read state: %w", err)
	}
	for name, mf := range m.s.Manifests {
		if was := rs.Sources[name]; was != "" && was != fmt.Sprintf("%x", mf.Fingerprint[:8]) {
			changed = append(changed, fmt.Sprintf("sources.%s.files: their names, sizes or contents", name))
		}
	}
	changed = slices.DeleteFunc(changed, func(c string) bool {
		name, _, _ := strings.Cut(c, ":")
		overridden := slices.Contains(override, name) || slices.Contains(override, "*")
		reordered = reordered || overridden && decidesDocuments(name)
		return overridden
	})
	if len(changed) > 0 {
		slices.Sort(changed)
		return false, fmt.Errorf("the state was saved by a run of another identity: %s: restore what changed, or pass override=[names] to load_state_dict to go on regardless: %w",
			strings.Join(changed, "; "), millrace.ErrMismatch)
	}
	return reordered, nil
}

// decidesDocuments tells whether a part of the identity decides which document an ordinal is, or its tokens.
func decidesDocuments(name string) bool {
	room, _, _ := strings.Cut(name, ".")
	return slices.Contains([]string{"version", "seed", "shuffle", "tokenizer", "limits", "sources"}, room)
}
