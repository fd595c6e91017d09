package orchestrator

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"millrace"
	"millrace/orchestrator/planner"
	pb "millrace/proto"
)

// RunState is what a trainer saves: all that a fresh run directory needs to go on. Equal on all ranks at a step boundary.
type RunState struct {
	Version int    `json:"millrace"` // format of this object
	Step    uint64 `json:"step"`     // first step that was not consumed
	Attempt uint32 `json:"attempt"`
	Planner string `json:"planner"` // planner.State, compact
	// Sources names the planner's sources in its order, and what their files are: see packSources.
	Sources string `json:"sources"`
	// Identity is the run's identity in its compact form.
	Identity json.RawMessage `json:"identity"`
	// Live is what changes of the mixture while the run went on leave of the mixture file; nil where there were none.
	Live *liveText `json:"live,omitempty"`
	// Mid-step only: microbatches of Step that were consumed, and that step's placement digest, without which they mean nothing.
	Microbatch uint32 `json:"microbatch,omitempty"`
	Placement  string `json:"placement,omitempty"`
}

const runStateVersion = 2

// ParseRunState reads what a trainer saved.
func ParseRunState(text []byte) (*RunState, error) {
	var version struct {
		Millrace *int `json:"millrace"`
	}
	if err := json.Unmarshal(text, &version); err != nil || version.Millrace == nil {
		return nil, unreadable(millrace.Errorf(millrace.ErrInvalid, "it is no state of a run"))
	}
	if v := *version.Millrace; v != runStateVersion {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read state: its format is version %d, this program reads version %d: go on with the program that saved it", v, runStateVersion)
	}
	var rs RunState
	if err := json.Unmarshal(text, &rs); err != nil {
		return nil, unreadable(millrace.Errorf(millrace.ErrInvalid, "%v", err))
	}
	return &rs, nil
}

// unreadable says what to do about a state that is not as it was saved.
func unreadable(err error) error {
	return fmt.Errorf("read state: %w: pass what state_dict() returned, unchanged", err)
}

// state is the planner's part, for whatever sources it has.
func (rs *RunState) state() (planner.State, error) {
	st, err := planner.ParseState(rs.Planner)
	if err != nil {
		return st, unreadable(err)
	}
	if uint64(st.Step) != rs.Step {
		return st, unreadable(millrace.Errorf(millrace.ErrInvalid, "step %d, but its planner stands at %d", rs.Step, st.Step))
	}
	return st, nil
}

// planner is the planner's part of a state of this run.
func (rs *RunState) planner(spec *planner.Spec) (planner.State, error) {
	st, err := rs.state()
	if err == nil {
		err = st.Validate(len(spec.Sources))
	}
	return st, err
}

// runState is the run state with the planner at st. It depends on these, on the run's identity and files, and on the changes of the mixture that are
// known, so that it is made again byte for byte.
func (m *Machine) runState(attempt uint32, st planner.State) []byte {
	return m.runStateWith(attempt, st, m.live)
}

// runStateWith is the run state that knows other changes of the mixture than the open attempt.
func (m *Machine) runStateWith(attempt uint32, st planner.State, live Live) []byte {
	rs := RunState{Version: runStateVersion, Step: uint64(st.Step), Attempt: attempt, Planner: st.Compact(), Identity: m.cfg.Identity, Sources: packSources(m.files()),
		Live: live.since(&st).text(m.cfg.Spec)}
	return rs.encode()
}

// relive returns a run state with other changes of the mixture in it.
func relive(state []byte, live *liveText) ([]byte, error) {
	rs, err := ParseRunState(state)
	if err != nil {
		return nil, err
	}
	rs.Live, rs.Planner = live, planner.Renew(rs.Planner)
	return rs.encode(), nil
}

// alike tells whether two run states are the same but for what they know of changes of the mixture, and the program that wrote them.
func alike(a, b []byte) bool {
	x, err := ParseRunState(a)
	if err != nil {
		return false
	}
	y, err := ParseRunState(b)
	if err != nil {
		return false
	}
	x.Live, y.Live = nil, nil
	x.Planner, y.Planner = planner.Renew(x.Planner), planner.Renew(y.Planner)
	return string(x.encode()) == string(y.encode())
}

func (rs *RunState) encode() []byte {
	text, err := json.Marshal(rs)
	if err != nil {
		panic(fmt.Sprintf("encode run state: %v", err)) // plain fields only: cannot happen
	}
	return text
}

// sourceFiles is a source and what of its manifest a state remembers: enough to tell that its files changed.
type sourceFiles struct {
	name  string
	files [4]byte
}

func (m *Machine) files() []sourceFiles {
	out := make([]sourceFiles, len(m.cfg.Sources))
	for i := range m.cfg.Sources {
		out[i] = filesOf(m.cfg.Sources[i].Name, m.s.Manifests[m.cfg.Sources[i].Name])
	}
	return out
}

func filesOf(name string, mf *pb.Manifest) sourceFiles {
	s := sourceFiles{name: name}
	copy(s.files[:], mf.GetFingerprint())
	return s
}

// prefixDigits say how many characters a name shares with the one before it.
const prefixDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// filesText is the length of a fingerprint in base64.
const filesText = 6

// packSources writes sources separated by commas, each as a digit for what its escaped name shares with the one before, the files'
// fingerprint in base64, and the rest of the name.
func packSources(list []sourceFiles) string {
	var b strings.Builder
	before := ""
	for i, s := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		name := url.PathEscape(s.name)
		shared := 0
		for shared < min(len(name), len(before), len(prefixDigits)-1) && name[shared] == before[shared] {
			shared++
		}
		b.WriteByte(prefixDigits[shared])
		b.WriteString(base64.RawURLEncoding.EncodeToString(s.files[:]))
		b.WriteString(name[shared:])
		before = name
	}
	return b.String()
}

// unpackSources reads what packSources wrote.
func unpackSources(text string) ([]sourceFiles, error) {
	var out []sourceFiles
	before := ""
	for part := range strings.SplitSeq(text, ",") {
		bad := millrace.Errorf(millrace.ErrInvalid, "its sources are not readable at %q", part)
		if len(part) < 1+filesText {
			return nil, bad
		}
		shared := strings.IndexByte(prefixDigits, part[0])
		files, err := base64.RawURLEncoding.Strict().DecodeString(part[1 : 1+filesText])
		if shared < 0 || shared > len(before) || err != nil {
			return nil, bad
		}
		before = before[:shared] + part[1+filesText:]
		name, err := url.PathUnescape(before)
		if err != nil {
			return nil, bad
		}
		out = append(out, sourceFiles{name: name, files: [4]byte(files)})
	}
	return out, nil
}
