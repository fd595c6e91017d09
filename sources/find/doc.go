// Package find turns the paths of a mixture file into the files of a source, and tells the format of a file.
//
// It is the only place that knows file names: patterns, directories, suffixes of formats and of compressions.
package find
