// Package all has the reader of each format of package registry.
package all

import (
	"fmt"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/arrayrecord"
	"millrace/sources/format/arrow"
	"millrace/sources/format/csv"
	"millrace/sources/format/jsonl"
	"millrace/sources/format/lengths"
	"millrace/sources/format/litdata"
	"millrace/sources/format/mds"
	"millrace/sources/format/megatron"
	"millrace/sources/format/parquet"
	"millrace/sources/format/parts/example"
	"millrace/sources/format/parts/rows"
	"millrace/sources/format/registry"
	"millrace/sources/format/text"
	"millrace/sources/format/tfrecord"
	"millrace/sources/format/tokenfiles"
	"millrace/sources/format/webdataset"
)

// Settings are what readers need to know beside the file. Each takes what concerns it.
type Settings struct {
	Files     sources.FS         // of the other files of a shard
	Record    string             // `record` of the mixture file; empty: the format's own
	IDs       tokenfiles.Options // of files of plain ids
	Truncated bool               // archives without an end mark are read
	Windows   *rows.Windows      // of packed lines that random reads keep; nil: none
	Pages     *parquet.Pages     // that random reads keep; nil: none
}

// reader makes the reader of one format.
type reader struct {
	name registry.Name
	make func(s Settings) sources.Format
}

// readers returns the table: one row for each row of the registry.
func readers() []reader {
	return []reader{
		{registry.JSONL, func(s Settings) sources.Format { return jsonl.Format{Windows: s.Windows} }},
		{registry.JSON, func(s Settings) sources.Format { return jsonl.Arrays{Windows: s.Windows} }},
		{"csv", func(s Settings) sources.Format { return csv.Format{Windows: s.Windows} }},
		{registry.Parquet, func(s Settings) sources.Format { return parquet.Format{Pages: s.Pages} }},
		{registry.Arrow, func(Settings) sources.Format { return arrow.Format{} }},
		{registry.WebDataset, func(s Settings) sources.Format {
			f := webdataset.New(s.Files)
			f.Truncated = s.Truncated
			return f
		}},
		{registry.MDS, func(s Settings) sources.Format { return mds.New(s.Files) }},
		{"litdata", func(s Settings) sources.Format { return litdata.New(s.Files) }},
		{registry.ArrayRecord, func(s Settings) sources.Format {
			return arrayrecord.Format{Content: example.Content(s.Record)}
		}},
		{registry.TFRecord, func(s Settings) sources.Format {
			return tfrecord.Format{Content: example.Content(s.Record)}
		}},
		{registry.Text, func(s Settings) sources.Format {
			return text.Format{Record: text.Record(s.Record), Windows: s.Windows}
		}},
		{registry.Megatron, func(s Settings) sources.Format { return megatron.New(s.Files) }},
		{registry.OLMo, func(s Settings) sources.Format { return tokenfiles.OLMo(s.Files, s.IDs) }},
		{"datatrove", func(s Settings) sources.Format { return tokenfiles.Datatrove(s.Files, s.IDs) }},
		{registry.Tokens, func(s Settings) sources.Format { return tokenfiles.Tokens(s.Files, s.IDs) }},
		{registry.Lengths, func(Settings) sources.Format { return lengths.Format{} }},
	}
}

// New returns the reader of a format.
func New(name registry.Name, s Settings) (sources.Format, error) {
	for _, r := range readers() {
		if r.name == name {
			return r.make(s), nil
		}
	}
	return nil, fmt.Errorf("open files of format %q: it has no reader: %w", name, millrace.ErrInvalid)
}
