package index

import (
	"fmt"
	"io"

	"millrace/app/dryrun"
	"millrace/app/profile"
	"millrace/app/report"
)

// Source describes a source. Scripts read the JSON names.
type Source struct {
	Name    string `json:"name"`
	Files   int    `json:"files"`
	Bytes   int64  `json:"bytes"`
	Records uint64 `json:"records"`
	Counted bool   `json:"counted"`
	Tokens  uint64 `json:"tokens"`
	Known   uint64 `json:"known"` // records whose length is known
	Shuffle string `json:"shuffle"`
	Why     string `json:"why,omitempty"`

	Cache   *dryrun.CacheFill `json:"cache,omitempty"`   // nil unless the token cache was filled
	Profile *Cost             `json:"profile,omitempty"` // nil unless it was measured
}

// Cost is the cost of reading a source, and the stripes that runs of the mixture divide it into.
type Cost struct {
	profile.Source
	Stripes int `json:"stripes"`
}

// Print prints sources for people.
func Print(views []Source, w io.Writer) error {
	rows := []string{report.Row("SOURCE", "FILES", "SIZE", "RECORDS", "LENGTHS KNOWN", "TOKENS", "SHUFFLE")}
	for _, v := range views {
		records, shuffle := "not counted", v.Shuffle
		if v.Counted {
			records = report.Count(v.Records)
		}
		if v.Why != "" {
			shuffle += ": " + v.Why
		}
		rows = append(
			rows,
			report.Row(
				v.Name, v.Files, report.Size(v.Bytes), records, report.Count(v.Known),
				report.About(v.Tokens, v.Counted && v.Known == v.Records), shuffle,
			),
		)
	}
	if err := report.Table(w, rows...); err != nil {
		return err
	}
	for _, v := range views {
		if v.Cache == nil || v.Cache.Cached+v.Cache.Left == 0 {
			continue
		}
		fmt.Fprintf(w, "%s: %d of %d files are in the token cache", v.Name, v.Cache.Cached, v.Files)
		if v.Cache.Left > 0 {
			fmt.Fprint(w, "; it has no room for the others: raise cache.tokens, or free its disk")
		}
		fmt.Fprintln(w)
	}
	return printProfile(w, views)
}

// printProfile writes what --profile found, if it was asked for.
func printProfile(w io.Writer, views []Source) error {
	rows := []string{report.Row("\nSOURCE", "SECONDS PER M TOKENS", "OF THESE FOR FILES", "BYTES PER TOKEN",
		"MEMORY OF A LOADER", "STRIPES")}
	for _, v := range views {
		if p := v.Profile; p != nil {
			rows = append(rows, report.Row(v.Name, fmt.Sprintf("%.3g", p.Work), fmt.Sprintf("%.3g", p.Reading),
				fmt.Sprintf("%.3g", p.Bytes), report.Size(p.Resident), p.Stripes))
		}
	}
	if len(rows) == 1 {
		return nil
	}
	return report.Table(w, rows...)
}
