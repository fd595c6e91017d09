package facts

import (
	"errors"
	"fmt"
	"strings"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
)

// FilesAt is a source whose files in this run differ from those at a state.
type FilesAt struct {
	Source   string
	Was, Now [4]byte       // beginnings of the fingerprints of both manifests
	Eras     millrace.Eras // of the state
	At       progress.Source
	Waits    []millrace.Ordinal // of the segments that wait to be packed
	Piece    uint32             // tokens of the pieces that ordinals are; 0: whole documents
}

// FilesChange is the way from the files at a state to those of this run.
type FilesChange interface {
	// String names the files that came and went.
	String() string
	// Cures returns the names of the growths with which no document is read twice or skipped.
	Cures() []string
	// Grow returns the eras if new files are read from the next epoch on (appends), and the ordinals of missing files
	// are passed over (masks).
	Grow(appends, masks bool) (millrace.Eras, error)
	// IsGone reports whether an ordinal that was drawn is of a missing file.
	IsGone(millrace.Ordinal) (bool, error)
	// Describe says how many documents are read twice, or never. Without grown, the source continues at its ordinal in
	// the order of its new files.
	Describe(grown *millrace.Eras) string
}

// growth is what an override wants for the new and the missing files of a source.
type growth struct{ appends, masks bool }

// The values of an override `sources.NAME.files=VALUE`.
const (
	growAppend = "append"
	growMask   = "mask"
)

// refiled is the change of one source's files.
type refiled struct {
	change FilesChange // nil: it is not known
	why    error       // why it is not
	isGone map[millrace.Ordinal]bool
}

// filesOf returns the source of the name of a difference of files.
func filesOf(name string) (source string, ok bool) {
	source, ok = strings.CutPrefix(name, "sources.")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(source, ".files")
}

// parseOverride separates the growths from the other overrides.
func parseOverride(override []string) (names []string, growths map[string]growth, err error) {
	growths = map[string]growth{}
	for _, o := range override {
		at := strings.LastIndexByte(o, '=')
		source, ok := filesOf(o[:max(at, 0)])
		if !ok {
			names = append(names, o)
			continue
		}
		g := growths[source]
		switch o[at+1:] {
		case growAppend:
			g.appends = true
		case growMask:
			g.masks = true
		default:
			return nil, nil, millrace.Errorf(millrace.ErrInvalid, "override %q: the files of a source can be changed "+
				"by %s=append, by %s=mask, or without a value", o, o[:at], o[:at])
		}
		growths[source] = g
	}
	return names, growths, nil
}

// OtherFiles returns the sources of a run whose files differ from those at the state.
func (s *SavedState) OtherFiles(run *Run) (out []FilesAt) {
	return otherFiles(s.Sources, run.sources, &s.Planner, run.Spec)
}

func otherFiles(saved, now []SourceFiles, st *progress.State, spec *planner.Spec) (out []FilesAt) {
	for i, s := range now {
		was := find(saved, s.Name)
		if was < 0 || saved[was].Files == s.Files {
			continue
		}
		at := FilesAt{Source: s.Name, Was: saved[was].Files, Now: s.Files, Eras: saved[was].Eras, At: st.Sources[was]}
		for _, c := range st.Carried {
			if c.Source == uint32(was) {
				at.Waits = append(at.Waits, c.Ordinal)
			}
		}
		if spec != nil {
			at.Piece = spec.Under(st).Sources[i].PieceTokens
		}
		out = append(out, at)
	}
	return out
}

// compareFiles finds out how the files of each source that stays have changed.
func (m *migration) compareFiles(st *progress.State, spec *planner.Spec, files func(FilesAt) (FilesChange, error)) {
	m.files = map[string]refiled{}
	for _, at := range otherFiles(m.saved, m.now, st, spec) {
		f := refiled{why: errors.New("its earlier files are not known")}
		if files != nil {
			f.change, f.why = files(at)
		}
		m.files[at.Source] = f
	}
	for i, s := range m.now { // the state's eras hold
		if was := find(m.saved, s.Name); was >= 0 {
			m.now[i].Eras = m.saved[was].Eras
		}
	}
	for i, s := range m.now { // ordinals have another meaning
		if m.isReplaced(s.Name) {
			m.now[i].Eras = millrace.Eras{}
		}
	}
}

// describe returns the line of a difference, with the names of files.
func (m *migration) describe(c difference) string {
	source, ok := filesOf(c.name)
	if f := m.files[source]; ok && f.change != nil {
		return c.name + ": " + f.change.String()
	}
	return c.line
}

// cures returns the overrides that let a run continue in spite of a difference, quoted.
func (m *migration) cures(c difference) (out []string) {
	source, ok := filesOf(c.name)
	if f := m.files[source]; ok && f.change != nil {
		for _, value := range f.change.Cures() {
			out = append(out, fmt.Sprintf("%q", c.name+"="+value))
		}
	}
	if len(out) == 0 {
		out = []string{fmt.Sprintf("%q", c.name)}
	}
	return out
}

// isOf reports whether a difference changes the documents of a source, or the order of its ordinals.
func (m *migration) isOf(c difference, source string) bool {
	if c.name == "sources."+source+".files" {
		return m.growths[source] == (growth{})
	}
	return c.name == "sources" || c.name == "sources."+source
}

// isReplaced reports whether ordinals of a source may name other documents than at the state.
func (m *migration) isReplaced(source string) bool {
	for _, c := range m.differences {
		if m.isOf(c, source) || c.class == millrace.KeyDocuments {
			return true
		}
	}
	return false
}

// grow brings the growths into force, and returns what every change of files means, for people.
func (m *migration) grow(st *progress.State) (said []string, err error) {
	for i, s := range m.now {
		f, ok := m.files[s.Name]
		if !ok {
			continue
		}
		g := m.growths[s.Name]
		if g == (growth{}) {
			if f.change != nil {
				said = append(said, f.change.Describe(nil))
			} else {
				said = append(said, fmt.Sprintf("source %s: other files: how many documents are read twice or never "+
					"is not known: %v", s.Name, f.why))
			}
			continue
		}
		if f.change == nil {
			return nil, fmt.Errorf("append or mask files of source %s: %w", s.Name, f.why)
		}
		if m.isReplaced(s.Name) {
			return nil, millrace.Errorf(millrace.ErrMismatch, "files of source %s are appended or masked, and other "+
				"keys that decide its documents differ too: restore these keys, and change them in a later resume",
				s.Name)
		}
		eras, err := f.change.Grow(g.appends, g.masks)
		if err != nil {
			return nil, err
		}
		if f.isGone, err = m.goneOf(st, s.Name, f.change); err != nil {
			return nil, err
		}
		m.now[i].Eras, m.files[s.Name] = eras, f
		said = append(said, f.change.Describe(&eras))
	}
	return said, checkErasFit(m.now)
}

// goneOf returns the ordinals of a source that were drawn, and whose files are missing.
func (m *migration) goneOf(st *progress.State, source string, change FilesChange) (map[millrace.Ordinal]bool, error) {
	at := find(m.saved, source)
	var drawn []millrace.Ordinal
	if src := &st.Sources[at]; src.Offset > 0 {
		drawn = append(drawn, src.Ordinal)
	}
	for _, c := range st.Carried {
		if c.Source == uint32(at) {
			drawn = append(drawn, c.Ordinal)
		}
	}
	out := map[millrace.Ordinal]bool{}
	for _, n := range drawn {
		gone, err := change.IsGone(n)
		if err != nil {
			return nil, err
		}
		out[n] = gone
	}
	return out, nil
}

// These bound the bytes that the eras of all sources take in a state: a fixed part, and a part for each source. A state
// of 64 sources has room for them.
const (
	mostEras      = 512
	mostErasOfOne = 16
)

// checkErasFit refuses eras that make saved states too long.
func checkErasFit(sources []SourceFiles) error {
	most := mostEras + mostErasOfOne*len(sources)
	if n := len(packEras(sources)); n > most {
		return millrace.Errorf(millrace.ErrMismatch, "the files that were appended and removed take %d bytes of each "+
			"saved state, and %d are allowed: they lie between other files in the order of names; "+
			"give new files names that follow all others, or make them a source of their own", n, most)
	}
	return nil
}
