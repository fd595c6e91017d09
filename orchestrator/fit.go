package orchestrator

import (
	"fmt"
	"slices"
	"strings"

	"millrace"
	"millrace/orchestrator/planner"
)

// fit makes a state this run's: it refuses what differs and is not overridden, and moves the planner to what this run is.
func (m *Machine) fit(rs *RunState, override []string) (planner.State, Live, error) {
	st, err := rs.state()
	if err != nil {
		return st, Live{}, err
	}
	saved, err := unpackSources(rs.Sources)
	if err == nil && len(saved) != len(st.Sources) {
		err = millrace.Errorf(millrace.ErrInvalid, "it names %d sources and holds %d", len(saved), len(st.Sources))
	}
	var live Live
	if err != nil {
		return st, live, unreadable(err)
	}
	f := fitting{saved: saved, now: m.files(), classify: m.cfg.Classify}
	lines, err := m.cfg.Changed(rs.Identity)
	if err != nil {
		return st, live, unreadable(err)
	}
	f.name(lines)
	if err := f.judge(override); err != nil {
		return st, live, err
	}
	if err := f.adaptable(st); err != nil {
		return st, live, err
	}
	text := rs.Live
	if text != nil && f.remixed() {
		text = &liveText{Skips: text.Skips, Costs: text.Costs}
	}
	if text != nil {
		if live, err = parseLive(text, m.cfg.Spec.Schedule); err != nil {
			return st, live, unreadable(err)
		}
	}
	return f.adapt(st), live, nil
}

// remixed reports whether the mixture file decides another mixture than the one that the state's changes were made to: another value of a key
// that takes part in it, or other sources. The file holds then.
func (f *fitting) remixed() bool {
	return slices.ContainsFunc(f.changes, func(c change) bool { return c.class.DecidesMixture() }) ||
		!slices.EqualFunc(f.saved, f.now, func(a, b sourceFiles) bool { return a.name == b.name })
}

// fitting compares what a state was saved of with what there is now.
type fitting struct {
	saved, now []sourceFiles
	classify   func(key string) millrace.KeyClass
	changes    []change
}

// change is one key that differs.
type change struct {
	name  string // what overrides it
	line  string // for people: the name and how it differs
	class millrace.KeyClass
	files bool // the files of a source, and no key of the mixture file
}

// name lists what differs: what the identity says, and of the sources what it may have shortened.
func (f *fitting) name(identity []string) {
	named := map[string]bool{}
	for _, line := range identity {
		name, _, _ := strings.Cut(line, ": ")
		f.changes, named[name] = append(f.changes, change{name: name, line: line, class: f.classify(name)}), true
	}
	add := func(name, how string) {
		if !named[name] {
			f.changes = append(f.changes, change{name: name, line: name + ": " + how, files: true})
		}
	}
	for _, s := range f.now {
		switch was := find(f.saved, s.name); {
		case was < 0:
			add("sources."+s.name, "added")
		case f.saved[was].files != s.files:
			add("sources."+s.name+".files", "their names, sizes or contents")
		}
	}
	for _, s := range f.saved {
		if find(f.now, s.name) < 0 {
			add("sources."+s.name, "removed")
		}
	}
	slices.SortFunc(f.changes, func(a, b change) int { return strings.Compare(a.line, b.line) })
}

func find(list []sourceFiles, name string) int {
	return slices.IndexFunc(list, func(s sourceFiles) bool { return s.name == name })
}

// shownChanges is how many changes an error names.
const shownChanges = 8

// judge refuses changes that are not overridden.
func (f *fitting) judge(override []string) error {
	var lines, names []string
	for _, c := range f.changes {
		if !f.overridden(c.name, override) {
			lines, names = append(lines, c.line), append(names, fmt.Sprintf("%q", c.name))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if n := len(lines) - shownChanges; n > 0 {
		lines, names = append(lines[:shownChanges], fmt.Sprintf("and %d more", n)), []string{`"sources"`, `"mixture"`, "…"}
	}
	return millrace.Errorf(millrace.ErrMismatch, "the state was saved by a run of another identity: %s: restore what changed, or pass override=[%s] to load_state_dict to go on regardless",
		strings.Join(lines, "; "), strings.Join(names, ", "))
}

// overridden tells whether a change is. A name stands for all below it; a source's for the weight that came or went with it.
func (f *fitting) overridden(name string, override []string) bool {
	source, isWeight := strings.CutPrefix(name, "mixture.weights.")
	moved := isWeight && (find(f.saved, source) < 0) != (find(f.now, source) < 0)
	return slices.ContainsFunc(override, func(o string) bool {
		return o == "*" || below(name, o) || moved && below("sources."+source, o)
	})
}

func below(name, room string) bool {
	rest, ok := strings.CutPrefix(name, room)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// adaptable refuses a state that cannot go on with anything changed: one inside a window, or one that carries segments of a removed source.
func (f *fitting) adaptable(st planner.State) error {
	if len(f.changes) == 0 {
		return nil
	}
	names := make([]string, len(f.saved))
	for i, s := range f.saved {
		names[i] = s.name
	}
	return st.Adaptable(names, func(name string) bool { return find(f.now, name) < 0 })
}

// adapt moves the planner's state: docs/resume.md says what each change means.
func (f *fitting) adapt(st planner.State) planner.State {
	fits := make([]planner.Fit, len(f.now))
	for i, s := range f.now {
		fits[i].From = find(f.saved, s.name)
		for _, c := range f.changes {
			mine := c.name == "sources" || c.name == "sources."+s.name || c.name == "sources."+s.name+".files"
			fits[i].Other = fits[i].Other || mine || c.class == millrace.KeyDocuments
			fits[i].Again = fits[i].Again || mine || c.class == millrace.KeyEnd
		}
	}
	st = st.Adapt(fits)
	if slices.ContainsFunc(f.changes, func(c change) bool { return c.class == millrace.KeyUnit }) {
		st = st.Forgive()
	}
	return st
}
