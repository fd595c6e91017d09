package growing

import (
	"fmt"
	"io"
	"log/slog"

	"millrace"
	"millrace/app/config"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner"
	"millrace/sources/facts/growth"
)

// Against describes how a run of a mixture file continues from a saved state.
type Against struct {
	Step    uint64   `json:"step"` // the first step that was not consumed
	Sources []Source `json:"sources,omitempty"`
	Refused string   `json:"refused,omitempty"` // why the run cannot continue with the given overrides
	Said    []string `json:"said,omitempty"`    // the messages of the run when it continues
}

// Source is a source whose files differ from those at the state.
type Source struct {
	Name    string   `json:"name"`
	Added   []string `json:"added,omitempty"`
	Missing []string `json:"missing,omitempty"`
	Unknown string   `json:"unknown,omitempty"` // why the difference is not known
	Choices []Choice `json:"choices,omitempty"`
}

// Choice is an override for the files of a source, and its effect.
type Choice struct {
	Override []string        `json:"override"`
	Refused  string          `json:"refused,omitempty"`
	Numbers  *growth.Numbers `json:"numbers,omitempty"`
	Text     string          `json:"text,omitempty"`
}

// Now is the run of a mixture file, as it would begin now.
type Now struct {
	Spec     *planner.Spec
	Identity []byte               // canonical JSON
	Files    []*millrace.Manifest // of the sources, in the order of Spec
	Rules    facts.Rules          // of migrating a saved state to the run
}

// Compare compares a state with a run of a mixture file.
func Compare(c *config.Config, text []byte, now Now, override []string, log *slog.Logger) (*Against, error) {
	var files []facts.SourceFiles
	for _, m := range now.Files {
		files = append(files, facts.SourceFiles{Name: m.Source, Files: growth.Begin(m.Fingerprint)})
	}
	run := facts.NewRun(now.Spec, now.Identity, files)
	saved, err := facts.ReadSaved(text)
	if err != nil {
		return nil, err
	}
	out := &Against{Step: uint64(saved.Planner.Step)}
	for _, at := range saved.OtherFiles(run) {
		out.Sources = append(out.Sources, compareSource(c, at, log))
	}
	state, err := saved.Migrate(run, now.Rules, override)
	if err != nil {
		out.Refused = err.Error()
	} else {
		out.Said = state.Said
	}
	return out, nil
}

func compareSource(c *config.Config, at facts.FilesAt, log *slog.Logger) Source {
	out := Source{Name: at.Source}
	change, err := Change(c, at, log)
	if err != nil {
		out.Unknown = err.Error()
		return out
	}
	out.Added, out.Missing = change.Added(), change.Gone()
	name := "sources." + at.Source + ".files"
	out.Choices = append(out.Choices, choiceOf(change, []string{name}, nil))
	for _, wants := range [][2]bool{{true, false}, {false, true}, {true, true}} {
		var names []string
		if wants[0] {
			names = append(names, name+"=append")
		}
		if wants[1] {
			names = append(names, name+"=mask")
		}
		eras, err := change.Grow(wants[0], wants[1])
		switch {
		case err != nil:
			out.Choices = append(out.Choices, Choice{Override: names, Refused: err.Error()})
		case wants == [2]bool{len(out.Added) > 0, len(out.Missing) > 0}:
			out.Choices = append(out.Choices, choiceOf(change, names, &eras))
		}
	}
	return out
}

func choiceOf(change *growth.Change, names []string, grown *millrace.Eras) Choice {
	n := change.Count(grown)
	return Choice{Override: names, Numbers: &n, Text: n.Describe(grown != nil)}
}

// Print prints the comparison for people.
func (a *Against) Print(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "\nagainst the state of step %d\n", a.Step); err != nil {
		return err
	}
	for _, s := range a.Sources {
		fmt.Fprintf(w, "  source %s: %d new files, %d missing files\n", s.Name, len(s.Added), len(s.Missing))
		if s.Unknown != "" {
			fmt.Fprintf(w, "    what an override means is not known: %s\n", s.Unknown)
		}
		for _, choice := range s.Choices {
			for i, name := range choice.Override {
				if i > 0 {
					fmt.Fprint(w, " and")
				} else {
					fmt.Fprint(w, "    with")
				}
				fmt.Fprintf(w, " --override %s", name)
			}
			if choice.Refused != "" {
				fmt.Fprintf(w, ": refused: %s\n", choice.Refused)
			} else {
				fmt.Fprintf(w, ": %s\n", choice.Text)
			}
		}
	}
	if a.Refused != "" {
		_, err := fmt.Fprintf(w, "  the run is refused: %s\n", a.Refused)
		return err
	}
	_, err := fmt.Fprintln(w, "  the run goes on")
	return err
}
