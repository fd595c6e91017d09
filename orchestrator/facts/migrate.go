package facts

import (
	"fmt"
	"slices"
	"strings"

	"millrace"
	"millrace/orchestrator/planner/progress"
)

// Rules compare identities and classify their keys.
type Rules struct {
	// Changed lists the differences between a stored identity and this run's, as "key: how".
	Changed func(stored []byte) ([]string, error)
	// Classify returns the class of a key.
	Classify func(key string) millrace.KeyClass
	// Earlier has this run's identity as it would be if the run had begun with an earlier planner. nil: the same.
	Earlier *Earlier
	// Files compares a source's files at a state with those of this run; nil: the comparison is not possible.
	Files func(FilesAt) (FilesChange, error)
}

// Earlier is the identity of a run that began with a planner whose defaults were others.
type Earlier struct {
	Identity []byte
	Changed  func(stored []byte) ([]string, error) // like Rules.Changed
}

// Of returns the identity of a run that is in a state, given that of a new run, and the comparison with it.
func (r *Rules) Of(st *progress.State, now []byte) (identity []byte, changed func(stored []byte) ([]string, error)) {
	if r.Earlier == nil || st.ShufflesPieces() {
		return now, r.Changed
	}
	return r.Earlier.Identity, r.Earlier.Changed
}

// Migrate turns a saved state into a state of this run. It refuses differences that no override names, and differences
// with which the state cannot continue. docs/resume.md says how each difference changes the planner's state.
func (saved *SavedState) Migrate(to *Run, rules Rules, override []string) (*RunState, error) {
	identity, changed := rules.Of(&saved.Planner, to.Identity)
	lines, err := changed(saved.Identity)
	if err != nil {
		return nil, unreadable(err)
	}
	m := migration{saved: saved.Sources, now: slices.Clone(to.sources), classify: rules.Classify}
	if m.override, m.growths, err = parseOverride(override); err != nil {
		return nil, err
	}
	m.listDifferences(lines)
	m.compareFiles(&saved.Planner, to.Spec, rules.Files)
	if err := m.checkOverridden(); err != nil {
		return nil, err
	}
	if err := m.checkAdaptable(saved.Planner); err != nil {
		return nil, err
	}
	said, err := m.grow(&saved.Planner)
	if err != nil {
		return nil, err
	}
	text := saved.overrides
	if text != nil && m.hasOtherMixture() {
		text = &overridesText{Skips: text.Skips, Costs: text.Costs}
	}
	run := NewRun(to.Spec, identity, m.now)
	run.Said = said
	out := &RunState{Run: run, Attempt: saved.Attempt, Planner: m.adapt(saved.Planner)}
	if text == nil {
		return out, nil
	}
	if out.Overrides, err = parseOverrides(text, to.Spec.Schedule); err != nil {
		return nil, unreadable(err)
	}
	return out, nil
}

// hasOtherMixture reports whether the state's changes were made to another mixture: a key that takes part in the
// mixture has another value, or the sources differ. Then only the mixture file counts.
func (m *migration) hasOtherMixture() bool {
	return slices.ContainsFunc(m.differences, func(c difference) bool { return c.class.DecidesMixture() }) ||
		!slices.EqualFunc(m.saved, m.now, func(a, b SourceFiles) bool { return a.Name == b.Name })
}

// migration compares the sources and the identity of a saved state with those of a run.
type migration struct {
	saved, now  []SourceFiles
	classify    func(key string) millrace.KeyClass
	differences []difference
	override    []string           // without growths
	growths     map[string]growth  // by source
	files       map[string]refiled // sources with other files than the state
}

// difference is one key with another value.
type difference struct {
	name  string // as overrides spell it
	line  string // for people: the name and how it differs
	class millrace.KeyClass
}

// listDifferences lists the differences of the identities and of the sources. The sources are compared too because an
// identity may have shortened them.
func (m *migration) listDifferences(identity []string) {
	named := map[string]bool{}
	for _, line := range identity {
		name, _, _ := strings.Cut(line, ": ")
		m.differences = append(m.differences, difference{name: name, line: line, class: m.classify(name)})
		named[name] = true
	}
	add := func(name, how string) {
		if !named[name] {
			m.differences = append(m.differences, difference{name: name, line: name + ": " + how})
		}
	}
	for _, s := range m.now {
		switch was := find(m.saved, s.Name); {
		case was < 0:
			add("sources."+s.Name, "added")
		case m.saved[was].Files != s.Files:
			add("sources."+s.Name+".files", "their names, sizes or contents, or `seekable_copies`")
		}
	}
	for _, s := range m.saved {
		if find(m.now, s.Name) < 0 {
			add("sources."+s.Name, "removed")
		}
	}
	slices.SortFunc(m.differences, func(a, b difference) int { return strings.Compare(a.line, b.line) })
}

func find(list []SourceFiles, name string) int {
	return slices.IndexFunc(list, func(s SourceFiles) bool { return s.Name == name })
}

// shownDifferences is the number of differences that an error names.
const shownDifferences = 8

// checkOverridden refuses differences that are not overridden.
func (m *migration) checkOverridden() error {
	var lines, names []string
	for _, c := range m.differences {
		if !m.isOverridden(c.name) {
			lines, names = append(lines, m.describe(c)), append(names, m.cures(c)...)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if n := len(lines) - shownDifferences; n > 0 {
		lines = append(lines[:shownDifferences], fmt.Sprintf("and %d more", n))
		names = []string{`"sources"`, `"mixture"`, "…"}
	}
	return millrace.Errorf(millrace.ErrMismatch,
		"the state was saved by a run of another identity: %s: "+
			"restore the old values, or pass override=[%s] to load_state_dict to go on regardless",
		strings.Join(lines, "; "), strings.Join(names, ", "))
}

// isOverridden reports whether an override names a difference. A name covers every key below it. The name of a source
// also covers the weight that was added or removed together with the source.
func (m *migration) isOverridden(name string) bool {
	if source, ok := filesOf(name); ok && m.growths[source] != (growth{}) {
		return true
	}
	source, isWeight := strings.CutPrefix(name, "mixture.weights.")
	moved := isWeight && (find(m.saved, source) < 0) != (find(m.now, source) < 0)
	return slices.ContainsFunc(m.override, func(o string) bool {
		return o == "*" || isUnder(name, o) || moved && isUnder("sources."+source, o)
	})
}

func isUnder(name, room string) bool {
	rest, ok := strings.CutPrefix(name, room)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// checkAdaptable refuses a state that cannot continue with any change: one inside a window, or one that carries
// segments of a removed source.
func (m *migration) checkAdaptable(st progress.State) error {
	if len(m.differences) == 0 {
		return nil
	}
	names := make([]string, len(m.saved))
	for i, s := range m.saved {
		names[i] = s.Name
	}
	return st.CheckAdaptable(names, func(name string) bool { return find(m.now, name) < 0 })
}

// adapt maps the planner's state to the sources of this run.
func (m *migration) adapt(st progress.State) progress.State {
	maps := make([]progress.Mapping, len(m.now))
	for i, s := range m.now {
		maps[i].From = find(m.saved, s.Name)
		for _, c := range m.differences {
			mine := m.isOf(c, s.Name)
			maps[i].IsReplaced = maps[i].IsReplaced || mine || c.class == millrace.KeyDocuments
			maps[i].HasNewEnd = maps[i].HasNewEnd || mine || c.class == millrace.KeyEnd
		}
	}
	for i, s := range m.now {
		if f, ok := m.files[s.Name]; ok && f.isGone != nil {
			maps[i].IsGone = func(n millrace.Ordinal) bool { return f.isGone[n] }
		}
	}
	st = st.Adapt(maps)
	if slices.ContainsFunc(m.differences, func(c difference) bool { return c.class == millrace.KeyUnit }) {
		st = st.ResetDeficits()
	}
	return st
}
