// Package report renders the answers of the commands: the JSON objects that scripts read, tables for people, and plots.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Encode prints one line of JSON. The characters <, > and & are not escaped.
func Encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Table prints rows of tab-separated cells in columns. The first row holds the heads.
func Table(w io.Writer, rows ...string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, r)
	}
	return t.Flush()
}

// Row joins the cells of a row.
func Row(cells ...any) string {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = fmt.Sprint(c)
	}
	return strings.Join(texts, "\t")
}

// About writes a number with its thousands apart and marks an estimate by ~.
func About(n uint64, exact bool) string {
	if exact {
		return Count(n)
	}
	return "~" + Count(n)
}

// Count writes a number with its thousands apart.
func Count(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Size writes a number of bytes in the largest unit of which there is at least one.
func Size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}

// Percent writes a fraction as a percentage.
func Percent(f float64) string { return fmt.Sprintf("%.2f%%", 100*f) }

// Names returns the keys of a map in order.
func Names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
