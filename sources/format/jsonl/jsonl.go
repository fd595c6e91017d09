// Package jsonl reads JSON: one object a line, or an array of objects. Package rows unpacks the files and finds the
// records in them.
//
// A line ends at LF alone; the last line needs none. A line of only space, tab and CR is no record. A bad line costs
// that record.
package jsonl

import (
	"context"

	"millrace/sources"
	"millrace/sources/format/parts/rows"
)

// Format opens files of JSON lines.
type Format struct {
	// Windows keeps memory of random reads for later ones. Sources may share it; nil keeps none.
	Windows *rows.Windows
}

var _ sources.Format = Format{}

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "jsonl" }

// Traits implements sources.Format.
func (Format) Traits() sources.Traits { return sources.Traits{} }

// Open opens a file of lines.
func (ff Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	blob []byte) (sources.Shard, error) {
	l := rows.Layout{Name: "JSON lines", Noun: "line", Begins: "{", Refuse: refuseDocument, NewParser: parsersOf(field)}
	if _, err := l.NewParser(); err != nil {
		return nil, err
	}
	return rows.Open(ctx, f, l, ff.Windows, lim, blob)
}

func parsersOf(field sources.Field) func() (rows.Parser, error) {
	return func() (rows.Parser, error) { return newParser(field) }
}
