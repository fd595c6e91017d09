package main

import (
	"fmt"
	"io"
)

func (v *statusView) print(w io.Writer) error {
	if v.Step != nil {
		fmt.Fprintf(w, "step %d, planned up to %d, attempt %d\n", *v.Step, *v.Planned, v.Attempt)
	}
	if v.Waiting != "" {
		fmt.Fprintf(w, "waiting: %s\n", v.Waiting)
	}
	for _, a := range v.Alerts {
		fmt.Fprintf(w, "warning: %s\n", a.line())
	}
	rows := []string{row("\nROLE", "NAME", "PID", "STATE", "TERM", "RESTARTS")}
	for _, r := range v.Roles {
		rows = append(rows, row(r.Role, r.Name, r.Pid, r.State, r.Term, r.Restarts))
	}
	if len(v.Roles) > 0 {
		if err := table(w, rows...); err != nil {
			return err
		}
	}
	rows = []string{row("\nSOURCE", "TOKENS", "SAMPLES", "PASSED OVER", "EPOCH", "SHARE")}
	for _, name := range sortedNames(v.Sources) {
		s := v.Sources[name]
		rows = append(rows, row(name, count(s.Tokens), count(s.Samples), count(s.Passed), s.Epoch, percent(s.Share)))
	}
	if len(v.Sources) > 0 {
		if err := table(w, rows...); err != nil {
			return err
		}
	}
	for _, name := range sortedNames(v.Sources) {
		if why := v.Sources[name].Why; why != "" {
			fmt.Fprintf(w, "%s is shuffled in %s, not as the mixture file asks: %s\n", name, v.Sources[name].Shuffle, why)
		}
	}
	if len(v.Stripes) > 0 {
		if err := v.printStripes(w); err != nil {
			return err
		}
	}
	if v.Mixture != nil {
		printChanges(w, v.Mixture.Changes)
	}
	if v.Masked > 0 {
		fmt.Fprintf(w, "\nmasked: %d segments that turned out bad after their steps were sealed\n", v.Masked)
	}
	if v.Quarantined.Count > 0 {
		fmt.Fprintf(w, "\nquarantined: %d\n", v.Quarantined.Count)
	}
	for _, q := range v.Quarantined.Recent {
		fmt.Fprintf(w, "  %s %s at byte %d: %s\n", q.Source, q.ID, q.Offset, q.Reason)
	}
	return nil
}

// printStripes shows what stands by for what.
func (v *statusView) printStripes(w io.Writer) error {
	rows := []string{row("\nSTRIPE", "LOADER", "TERM", "SHADOW", "TERM")}
	for _, p := range v.Stripes {
		name, term := p.Shadow, fmt.Sprint(p.ShadowTerm)
		if name == "" {
			name, term = "-", "-"
		}
		rows = append(rows, row(fmt.Sprintf("%s/%d", p.Source, p.Stripe), p.Loader, p.Term, name, term))
	}
	return table(w, rows...)
}

func (a *alertView) line() string {
	if a.Since == "" {
		return a.Text
	}
	return a.Text + " (since " + a.Since + ")"
}
