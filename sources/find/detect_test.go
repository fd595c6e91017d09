package find

import "testing"

func TestDetect(t *testing.T) {
	for name, want := range map[string]string{
		"a.jsonl": "jsonl", "a.JSON.GZ": "jsonl", "x/a.ndjson.zst": "jsonl", "a.jsonl.bgz": "jsonl",
		"a.parquet": "parquet",
		"a.idx":     "megatron", "a.bin": "megatron", "a.txt": "text", "a.gz": "", "jsonl": "", "a.parquet.gz": "",
		"a.json": "jsonl", "a.jsonl.xz": "jsonl", "a.jsonl.br": "",
		"a.jsonl.gz.zst": "", "dataset_info.json": "", "a.tar.gz": "webdataset", "a.tgz": "webdataset", "a.tar.br": "",
	} {
		if got, ok := detect(name); got != want || ok != (want != "") {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
