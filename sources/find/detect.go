package find

import (
	"path"
	"slices"
	"strings"
)

// The formats' words in the mixture file.
const (
	jsonlFormat    = "jsonl"
	parquetFormat  = "parquet"
	megatronFormat = "megatron"
)

// detect returns the format by a file's name: .jsonl, .json or .ndjson, plain or followed by .gz, .bgz, .zst or .zstd;
// .parquet; .bin and .idx of a Megatron dataset. The case of letters does not matter. It returns false for other names,
// side files and packings that are not read.
func detect(name string) (string, bool) {
	k := kindOf(name)
	if k.unread != "" || k.side {
		return "", false
	}
	return k.format, k.format != ""
}

// kind has the facts that follow from a file's name.
type kind struct {
	format string // "" if the name has no known format
	unread string // the name of a packing that is not read
	side   bool   // the file describes a dataset and holds no records
	weak   bool   // .json: other programs write files of this name beside their data, too
}

func kindOf(name string) kind {
	name = strings.ToLower(path.Base(name))
	bare, packings := unpacked(name)
	k := kind{format: formatOf(bare), side: isSideFile(bare), weak: path.Ext(name) == ".json"}
	if k.format == "" {
		return k
	}
	for _, p := range packings {
		if !p.read || len(packings) > 1 || k.format != jsonlFormat {
			k.unread = p.name
			break
		}
	}
	return k
}

func formatOf(bare string) string {
	switch path.Ext(bare) {
	case ".jsonl", ".json", ".ndjson":
		return jsonlFormat
	case ".parquet":
		return parquetFormat
	case ".bin", ".idx":
		return megatronFormat
	}
	return ""
}

// packing is a compression or an archive, recognised by the end of a file's name.
type packing struct {
	suffix, name string
	read         bool // the reader of JSON lines unpacks it
}

func packings() []packing {
	return []packing{
		{".gz", "gzip", true}, {".bgz", "BGZF", true}, {".zst", "zstd", true}, {".zstd", "zstd", true},
		{".bz2", "bzip2", false}, {".xz", "xz", false}, {".lzma", "lzma", false}, {".lz4", "LZ4", false},
		{".br", "brotli", false}, {".snappy", "snappy", false}, {".sz", "snappy", false}, {".lzo", "lzo", false},
		{".z", "compress", false}, {".zip", "zip", false}, {".7z", "7-Zip", false}, {".rar", "RAR", false},
		{".tar", "tar", false}, {".tgz", "tar", false},
	}
}

// unpacked returns a name without its packings, and the packings, outermost first.
func unpacked(name string) (bare string, found []packing) {
	switch path.Ext(name) {
	case ".jsonl", ".json", ".ndjson", ".parquet", ".bin", ".idx":
		return name, nil
	}
	all := packings()
	for {
		i := slices.IndexFunc(all, func(p packing) bool { return strings.HasSuffix(name, p.suffix) })
		if i < 0 {
			return name, found
		}
		name = strings.TrimSuffix(name, all[i].suffix)
		found = append(found, all[i])
	}
}

// isSideFile reports whether programs write a file of this name beside a dataset to describe it.
func isSideFile(bare string) bool {
	switch bare {
	case "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", // Hugging Face datasets
		"_success", "_metadata", "_common_metadata": // Hadoop, Spark and Arrow
		return true
	}
	ext := path.Ext(bare)
	stem := strings.TrimSuffix(bare, ext)
	return ext == ".md" || ext == ".crc" || stem == "readme" || stem == "license"
}
