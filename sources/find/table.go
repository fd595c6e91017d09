package find

import (
	"bytes"
	"slices"
	"strings"
)

// format is a row of the table of formats. A file shows its format by content first, by its name second.
type format struct {
	name    string   // in the mixture file
	endings []string // of file names, in lower case and without packings
	weak    []string // endings that other programs use beside their data, too
	packed  []string // packings that the reader unpacks, by their names
	sides   []string // names of files that describe a dataset of this format and hold no records
	besides []string // endings of files that lie beside data of this format and hold no records
	// holds reports whether a file shows by its first bytes that it has this format; nil: its bytes show nothing
	holds func(f *content) bool
	// shards lists the shards of an index.json of this format; nil: it has none
	shards func(index []byte) ([]listed, error)
}

// content is the beginning of a file.
type content struct {
	path  string
	head  []byte // at most headBytes, unpacked
	whole bool   // head is the whole file
}

func (c *content) begins(magic string) bool { return bytes.HasPrefix(c.head, []byte(magic)) }

// The formats that have rules of their own.
const (
	arrowFormat    = "arrow"
	jsonlFormat    = "jsonl"
	jsonFormat     = "json"
	lengthsFormat  = "lengths"
	megatronFormat = "megatron"
	olmoFormat     = "olmo"
	textFormat     = "text"
	tokensFormat   = "tokens"
)

// formats is the table. Rows with a magic number come before rows of text.
var formats = []format{
	{
		name:    "parquet",
		endings: []string{".parquet"},
		sides:   []string{"_metadata", "_common_metadata"},
		holds:   func(f *content) bool { return f.begins("PAR1") || f.begins("PARE") },
	},
	{
		name:    arrowFormat,
		endings: []string{".arrow", ".arrows", ".feather"},
		holds:   holdsArrow,
	},
	{
		name:    "mds",
		endings: []string{".mds"},
		packed:  []string{"zstd", "gzip", "brotli", "bzip2", "snappy"},
		holds:   func(f *content) bool { return f.lists("shards") },
		shards:  streamingShards,
	},
	{
		name:   "litdata",
		holds:  func(f *content) bool { return f.lists("chunks") },
		shards: litdataChunks,
	},
	{
		name:    "webdataset",
		endings: []string{".tar", ".tgz"},
		packed:  []string{"gzip", "zstd", "bzip2"},
		besides: []string{".tar.idx"},
		holds:   func(f *content) bool { return len(f.head) > 262 && string(f.head[257:262]) == "ustar" },
	},
	{
		name:    megatronFormat,
		endings: []string{".bin", ".idx"},
		holds:   holdsMegatron,
	},
	{
		name:    "arrayrecord",
		endings: []string{".array_record", ".arrayrecord"},
		holds:   func(f *content) bool { return f.begins("\x83\xaf\x70\xd1\x0d\x88\x4a\x3f") },
	},
	{
		name:    "tfrecord",
		endings: []string{".tfrecord", ".tfrecords"},
		packed:  []string{"gzip"},
		holds:   holdsTFRecord,
	},
	{
		name:  tokensFormat,
		holds: holdsTokens,
	},
	{
		name:    olmoFormat,
		endings: []string{".npy"},
	},
	{
		name:    "datatrove",
		endings: []string{".ds"},
		besides: []string{".ds.index", ".ds.metadata", ".ds.loss"},
	},
	{
		name:    jsonlFormat,
		endings: []string{".jsonl", ".json", ".ndjson"},
		weak:    []string{".json"},
		packed:  []string{"gzip", "BGZF", "zstd", "bzip2", "xz"},
		holds:   holdsLines,
	},
	{
		name:   jsonFormat, // its files are named as those of lines
		packed: []string{"gzip", "BGZF", "zstd", "bzip2", "xz"},
		holds:  holdsArray,
	},
	{
		name:    "csv",
		endings: []string{".csv", ".tsv"},
		weak:    []string{".csv", ".tsv", ".csv.gz"},
		packed:  []string{"gzip", "BGZF", "zstd", "bzip2", "xz"},
	},
	{
		name:    textFormat,
		endings: []string{".txt"},
		weak:    []string{".txt", ".txt.gz", ".txt.bgz", ".txt.zst", ".txt.zstd", ".txt.bz2", ".txt.xz"},
		packed:  []string{"gzip", "BGZF", "zstd", "bzip2", "xz"},
	},
}

// sides are names of files that other programs write beside data of any format.
var sides = []string{
	"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", // Hugging Face datasets
	"_success", // Hadoop and Spark
}

// packing is a compression or an archive: the ends of file names, and the first bytes.
type packing struct {
	name    string
	endings []string
	magic   string
}

// packings are the ways to pack a file. A format says which of them its reader unpacks.
var packings = []packing{
	{"gzip", []string{".gz"}, "\x1f\x8b"}, {"BGZF", []string{".bgz"}, ""},
	{"zstd", []string{".zst", ".zstd"}, "\x28\xb5\x2f\xfd"},
	{"bzip2", []string{".bz2"}, "BZh"}, {"xz", []string{".xz"}, "\xfd7zXZ\x00"}, {"lzma", []string{".lzma"}, ""},
	{"LZ4", []string{".lz4"}, "\x04\x22\x4d\x18"}, {"brotli", []string{".br"}, ""},
	{"snappy", []string{".snappy", ".sz"}, ""}, {"lzo", []string{".lzo"}, ""}, {"compress", []string{".z"}, ""},
	{"zip", []string{".zip"}, "PK\x03\x04"}, {"7-Zip", []string{".7z"}, ""}, {"RAR", []string{".rar"}, ""},
}

// formatNamed returns the format of a name, nil if it has no row.
func formatNamed(name string) *format {
	for i := range formats {
		if formats[i].name == name {
			return &formats[i]
		}
	}
	return nil
}

// formatOf returns the format by the ending of a name without packings, "" if no format has it.
func formatOf(ext string) *format {
	if ext == "" {
		return nil
	}
	for i := range formats {
		if slices.Contains(formats[i].endings, ext) {
			return &formats[i]
		}
	}
	return nil
}

// packingOf returns the packing whose ending a name has.
func packingOf(name string) (p *packing, ending string) {
	for i := range packings {
		for _, e := range packings[i].endings {
			if strings.HasSuffix(name, e) {
				return &packings[i], e
			}
		}
	}
	return nil, ""
}

// cure names the formats for an error about a source without one.
func cure() string {
	var names []string
	for i := range formats {
		names = append(names, formats[i].name)
	}
	slices.Sort(names)
	return "add `format: " + strings.Join(names, "`, `") + "` or `lengths`"
}
