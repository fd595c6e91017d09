// Package registry is the table of the file formats: one row for each. The words of the mixture file, the detection of
// formats, the schema, the table of docs/formats.md and the texts of errors follow from it. It imports no reader:
// package all has the reader of each row.
package registry

import "slices"

// Name is the name of a format in the mixture file.
type Name string

// The formats that have rules outside of the table and of their readers.
const (
	Arrow       = "arrow"
	ArrayRecord = "arrayrecord"
	JSON        = "json"
	JSONL       = "jsonl"
	Lengths     = "lengths"
	MDS         = "mds"
	Megatron    = "megatron"
	OLMo        = "olmo"
	Parquet     = "parquet"
	Text        = "text"
	TFRecord    = "tfrecord"
	Tokens      = "tokens"
	WebDataset  = "webdataset"
)

// Records is the content of a format's records.
type Records int

// The contents.
const (
	OfText   Records = iota // fields, one of which may be a text; a tokenizer makes tokens of it
	OfTokens                // documents of token ids
	// OfPlainIDs: documents of token ids, in files that may leave out the type of ids and the ends of documents
	OfPlainIDs
)

// Row describes a format. A file shows its format by content first, by its name second.
type Row struct {
	Name    Name
	Aliases []string // other words for it in the mixture file
	Records Records
	// IsAlone: a file can be read without the other files of its dataset.
	IsAlone bool

	Endings []string // of file names, in lower case and without packings; no two formats share one
	Weak    []string // endings that other programs use beside their data, too
	Packed  []string // packings that the reader unpacks, by their names
	Sides   []string // names of files that describe a dataset of this format and hold no records
	Besides []string // endings of files that are beside data of this format and hold no records
	// Shows reports whether a file shows by its first bytes that it has this format; nil: its bytes show nothing.
	Shows func(h Head) bool
	// IsLoose: files of other formats may begin like files of this one, so Shows decides after those of all others.
	IsLoose bool
	// Shards lists the shards of an index.json of this format; nil: it has none.
	Shards func(index []byte) ([]Listed, error)

	// the cells of the table in docs/formats.md
	Files, Record, Access string
}

// Named returns the row of a format, nil if there is none.
func Named(name string) *Row {
	for i := range rows {
		if string(rows[i].Name) == name {
			return &rows[i]
		}
	}
	return nil
}

// Ending returns the row of the format whose files have this ending, nil if none has it.
func Ending(ending string) *Row {
	for i := range rows {
		if slices.Contains(rows[i].Endings, ending) {
			return &rows[i]
		}
	}
	return nil
}

// Shown returns the row of the format that the first bytes of a file show, nil if they show none. Of a file that was
// packed, packing is the name of its packing; then only formats whose reader unpacks it count.
func Shown(h Head, packing string) *Row {
	for _, loose := range []bool{false, true} {
		for i := range rows {
			r := &rows[i]
			if r.Shows == nil || r.IsLoose != loose || packing != "" && !slices.Contains(r.Packed, packing) {
				continue
			}
			if r.Shows(h) {
				return r
			}
		}
	}
	return nil
}

// Words returns the names of all formats, those of text first.
func (Name) Words() (words []string) {
	for _, r := range rows {
		words = append(words, string(r.Name))
	}
	return words
}

// Aliases returns the names of formats by their other words.
func (Name) Aliases() map[string]string {
	names := map[string]string{}
	for _, r := range rows {
		for _, alias := range r.Aliases {
			names[alias] = string(r.Name)
		}
	}
	return names
}

// HoldsText reports whether the format's records are text, which needs a tokenizer.
func (n Name) HoldsText() bool {
	r := Named(string(n))
	return r == nil || r.Records == OfText
}

// HoldsPlainIDs reports whether a file of the format may leave out the type of its ids and the ends of its documents.
func (n Name) HoldsPlainIDs() bool {
	r := Named(string(n))
	return r != nil && r.Records == OfPlainIDs
}

// Unread returns words for formats that are not read.
func Unread() []string {
	return []string{"avro", "hdf5", "lance", "nemo", "orc", "recordio"}
}

// Advice returns what to write in place of a word that names several formats or none, "" for other words.
func Advice(word string) string {
	switch word {
	case "npy", "numpy":
		return "write `tokens` for an array that NumPy saved, `olmo` for the files of dolma and OLMo-core, or leave " +
			"`format` out: the files show it"
	case "hf", "huggingface", "datasets":
		return "write the format of the data set's files, as `parquet`, `jsonl`, or `arrow` for those of " +
			"save_to_disk; or leave `format` out: the files show it"
	case "bin":
		return "write `megatron` for a .bin with an .idx, `tokens` for ids alone, or leave `format` out: the files " +
			"show it"
	}
	return ""
}
