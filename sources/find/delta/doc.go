// Package delta reads the log of a Delta table: the files that hold the rows of one version, and the values of their
// partition columns.
//
// A version is the newest checkpoint before it, with the commits after that. A feature of a table that changes which
// rows a file has, or how its columns are named, is refused by name.
package delta
