package find

import "strings"

// The formats' words in the mixture file.
const (
	jsonlFormat    = "jsonl"
	parquetFormat  = "parquet"
	megatronFormat = "megatron"
)

// Detect tells the format of a file by its name: .jsonl, .json or .ndjson, plain or with .gz, .bgz or .zst behind it;
// .parquet; .bin and .idx of a Megatron dataset. The case of letters does not matter. False where the name does not tell.
func Detect(name string) (string, bool) {
	name = strings.ToLower(name)
	switch {
	case strings.HasSuffix(name, ".parquet"):
		return parquetFormat, true
	case strings.HasSuffix(name, ".bin"), strings.HasSuffix(name, ".idx"):
		return megatronFormat, true
	}
	for _, packed := range []string{".gz", ".bgz", ".zst", ".zstd"} {
		if rest, ok := strings.CutSuffix(name, packed); ok {
			name = rest
			break
		}
	}
	for _, suffix := range []string{".jsonl", ".json", ".ndjson"} {
		if strings.HasSuffix(name, suffix) {
			return jsonlFormat, true
		}
	}
	return "", false
}

// holds tells whether a file found in a directory belongs to a source of the given format; with no format any known one does.
func holds(format, name string) bool {
	found, ok := Detect(name)
	return ok && (format == "" || format == found)
}
