package delta

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"millrace"
)

// Log gives access to the files of a log.
type Log interface {
	// Names returns the names of its files.
	Names() []string
	// Read returns the content of a commit.
	Read(name string) ([]byte, error)
	// Rows passes the values of columns of a Parquet file to fn, row by row. A column that the file lacks is nil.
	Rows(name string, columns []string, fn func(values []any) error) error
}

// Table is one version of a table.
type Table struct {
	Version uint64
	Keys    []string // the partition columns
	Files   []File   // in the order of their paths
}

// File is a file of rows.
type File struct {
	Path   string // below the table's directory
	Values []any  // of the partition columns; nil: null
}

// Open reads a version of a table, the newest one if version is nil. dir names the table in errors, which wrap
// millrace.ErrInvalid or millrace.ErrDamaged.
func Open(log Log, dir string, version *uint64) (*Table, error) {
	parts, err := choose(log.Names(), version)
	if err != nil {
		return nil, fmt.Errorf("read the log of the Delta table %s: %w", dir, err)
	}
	r := &replay{dir: dir, live: map[key]added{}}
	for _, name := range parts.checkpoint {
		if err := r.checkpoint(log, name); err != nil {
			return nil, fmt.Errorf("read the checkpoint %s of the Delta table %s: %w", name, dir, err)
		}
	}
	for _, name := range parts.commits {
		text, err := log.Read(name)
		if err == nil {
			err = r.commit(text)
		}
		if err != nil {
			return nil, fmt.Errorf("read the commit %s of the Delta table %s: %w", name, dir, err)
		}
	}
	return r.table(parts.version)
}

// table returns the table after all actions.
func (r *replay) table(version uint64) (*Table, error) {
	refuse := func(format string, args ...any) error {
		return millrace.Errorf(millrace.ErrInvalid, "%s is a Delta table, and its version %d %s", r.dir, version,
			fmt.Sprintf(format, args...))
	}
	if r.protocol == nil || r.schema == nil {
		return nil, millrace.Errorf(millrace.ErrDamaged, "the log of the Delta table %s has no protocol or no schema "+
			"up to version %d: restore it", r.dir, version)
	}
	if why := r.unread(); why != "" {
		return nil, refuse("%s", why)
	}
	out := &Table{Version: version, Keys: r.schema.keys}
	for _, k := range slices.SortedFunc(maps.Keys(r.live), key.compare) {
		a := r.live[k]
		switch file, why := placeOf(a.uri); {
		case k.vector != "":
			return nil, refuse("has deletion vectors, as that of %s, which are not read: %s", a.uri, purge)
		case why != "":
			return nil, refuse("lists the file %s, which %s: %s", a.uri, why, copyTable)
		default:
			f := File{Path: file}
			for i, name := range r.schema.keys {
				v, err := r.schema.types[i].value(a.values[name])
				if err != nil {
					return nil, refuse("gives the column %s of %s a value that is not read: %v: %s", name, a.uri,
						err, copyTable)
				}
				f.Values = append(f.Values, v)
			}
			out.Files = append(out.Files, f)
		}
	}
	slices.SortFunc(out.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// Cures of tables that are refused.
const (
	purge = "rewrite its files, as with `REORG TABLE … APPLY (PURGE)`, or write its rows as plain Parquet files " +
		"and name their directory"
	copyTable = "write its rows as plain Parquet files, as with " +
		"`spark.read.format(\"delta\").load(…).write.parquet(…)`, and name their directory"
)

// scheme begins a path that is a URL.
var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// placeOf returns the path of a file below the table's directory, or why it has none. Paths of logs are URIs.
func placeOf(uri string) (file, why string) {
	plain, err := url.PathUnescape(uri)
	switch {
	case err != nil:
		return "", "is no URI"
	case scheme.MatchString(uri) || strings.HasPrefix(uri, "/"):
		return "", "lies outside of the table, as those of a shallow clone do"
	}
	if file = path.Clean(plain); file == ".." || strings.HasPrefix(file, "../") || file == "." {
		return "", "lies outside of the table"
	}
	return file, ""
}
