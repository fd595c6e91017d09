package find

import (
	"fmt"
	"os"
	"strings"

	"millrace"
	"millrace/sources/find/delta"
)

// Rows passes the values of columns of a Parquet file to fn, row by row. A column that the file lacks is nil.
type Rows func(path string, columns []string, fn func(values []any) error) error

// mostCommit is the most bytes of a commit of a table that are read.
const mostCommit = 1 << 30

// deltaFiles is the log of a Delta table on this host or in a store.
type deltaFiles struct {
	*finder
	dir string // of the log
	at  folders
}

var _ delta.Log = deltaFiles{}

// Names implements delta.Log.
func (l deltaFiles) Names() []string { return l.at.names(l.dir) }

// Read implements delta.Log.
func (l deltaFiles) Read(name string) ([]byte, error) {
	if file := below(l.dir, name); IsURL(file) {
		return l.tree.Read(file, mostCommit)
	}
	return os.ReadFile(below(l.dir, name))
}

// Rows implements delta.Log.
func (l deltaFiles) Rows(name string, columns []string, fn func(values []any) error) error {
	if l.rows == nil {
		return millrace.Errorf(millrace.ErrInvalid, "this command does not read checkpoints")
	}
	return l.rows(below(l.dir, name), columns, fn)
}

// delta finds the files of a Delta table. isThere reports whether a file exists.
func (f *finder) delta(at folders, dir, root string, isThere func(file string) bool) ([]match, error) {
	if f.format != "parquet" {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s is a Delta table, whose files are of the format parquet: "+
			"write `format: parquet`, or name other files", dir)
	}
	log := below(dir, deltaLog)
	t, err := delta.Open(deltaFiles{f, log, at}, dir, f.version)
	if err != nil {
		return nil, err
	}
	f.versions = append(f.versions, t.Version)
	f.skipped = append(f.skipped, Skipped{Path: log, Side: true, Reason: fmt.Sprintf("it is the log of a Delta table, "+
		"of which version %d is read: %d files", t.Version, len(t.Files))})
	var found []match
	parts := map[string][]Constant{} // files of one partition share them
	for _, file := range t.Files {
		m := match{path: below(dir, file.Path), root: root, inside: file.Path}
		part := fmt.Sprintf("%q", file.Values)
		if parts[part] == nil {
			for i, name := range t.Keys {
				parts[part] = append(parts[part], Constant{name, file.Values[i]})
			}
		}
		m.constants = parts[part]
		if !isThere(m.path) {
			return nil, &missing{fmt.Sprintf("read %s: version %d of the Delta table %s lists it, and it is not there"+
				": restore it, or name a `version` whose files were not vacuumed", m.path, t.Version, dir)}
		}
		found = append(found, m)
	}
	return found, nil
}

// checkInsideStored refuses the files of a pattern, or of a directory, that are inside a Delta table of a store. dir is
// their directory. A listing shows only the files below dir, so the function looks for a log above dir by its usual
// names.
func (f *finder) checkInsideStored(dir string) error {
	for at := dir; strings.Count(at, "/") >= 2 && f.format == "parquet"; at = parent(at) {
		for _, name := range []string{"_last_checkpoint", "00000000000000000000.json"} {
			if ok, err := f.tree.Exists(at + "/" + deltaLog + "/" + name); err == nil && ok {
				return (&table{name: "Delta"}).refuseInside(dir, at)
			}
		}
	}
	return nil
}
