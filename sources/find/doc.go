// Package find resolves the paths of a mixture file into the files of a source, and detects formats by the names of
// files.
//
// No other package interprets file names: patterns, directories, suffixes of formats and of compressions.
package find
