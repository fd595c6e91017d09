package find

import (
	"slices"
	"strings"

	"millrace"
)

// table is a kind of table whose files a log lists. A directory of it also has files of rows that were deleted.
type table struct {
	name string
	log  string // the directory of its log
	cure string
	is   func(names []string) bool // decides by the names in the log's directory
}

// deltaLog is the directory of the log of a Delta table.
const deltaLog = "_delta_log"

// tables returns the kinds of tables.
func tables() []table {
	ending := func(end string) func([]string) bool {
		return func(names []string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, end) })
		}
	}
	return []table{
		{"Delta", deltaLog, "", func(names []string) bool { return len(names) > 0 }}, // it is read
		{"Iceberg", "metadata", "write its rows as plain Parquet files, as with " +
			"`spark.table(…).write.parquet(…)` or PyIceberg's `scan().to_arrow()`, and name their directory",
			ending(".metadata.json")},
		{"Hudi", ".hoodie", "write its rows as plain Parquet files, as with " +
			"`spark.read.format(\"hudi\").load(…).write.parquet(…)`, and name their directory",
			func(names []string) bool { return len(names) > 0 }},
		{"Lance", "_versions", "write its rows as Parquet, as with `pyarrow.dataset.write_dataset(" +
			"lance.dataset(…).scanner().to_reader(), …, format=\"parquet\")`, and name their directory",
			ending(".manifest")},
	}
}

// isOfLog reports whether a file of a store may be in the log of a table.
func isOfLog(url string) bool {
	return slices.ContainsFunc(tables(), func(t table) bool { return strings.Contains(url, "/"+t.log+"/") })
}

// tableIn returns the kind of the table in a directory, nil if it is none.
func tableIn(at folders, dir string) *table {
	names := at.names(dir)
	for _, t := range tables() {
		if slices.Contains(names, t.log) && t.is(at.names(below(dir, t.log))) {
			return &t
		}
	}
	return nil
}

// isRead reports whether the log of such tables is read.
func (t *table) isRead() bool { return t.cure == "" }

// refuse returns the error of a table whose log is not read.
func (t *table) refuse(dir string) error {
	return millrace.Errorf(millrace.ErrInvalid, "%s is a table of %s, and its log says which of its files hold its "+
		"rows; that log is not read: %s", dir, t.name, t.cure)
}

// refuseInside returns the error of files inside a table that are named by a pattern or a directory.
func (t *table) refuseInside(dir, table string) error {
	return millrace.Errorf(millrace.ErrInvalid, "%s lies in a table of %s, and its log says which of its files hold "+
		"its rows: name the directory of the table, %s, or single files of it", dir, t.name, table)
}

// checkListed refuses the files of a store that a pattern was compared with, if they are inside a table.
func checkListed(at stored) error {
	for dir := range at.in {
		if t := tableIn(at, dir); t != nil {
			return t.refuseInside(dir, dir)
		}
	}
	return nil
}
