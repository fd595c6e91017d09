package find

import (
	"strings"

	"millrace/sources/format/registry"
)

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
	names := registry.Name("").Words()
	last := len(names) - 1
	return "add `format: " + strings.Join(names[:last], "`, `") + "` or `" + names[last] + "`"
}
