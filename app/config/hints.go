package config

import (
	"reflect"
	"strings"

	"millrace/app/config/decode"
	"millrace/app/config/tree"
	"millrace/sources/format/registry"
)

// examples of the keys' values, for the advice in errors.
var examples = map[string]string{
	"version":           "1",
	"sources":           "{web: {path: web/*.jsonl}}",
	"mixture":           "{weights: {web: 1}}",
	"weights":           "{web: 0.6, code: 0.4}",
	"groups":            "{text: {weight: 0.7, weights: {web: 3, books: 1}}, code: {weight: 0.3, weights: {code: 1}}}",
	"weight":            "0.7",
	"floor":             "0.01",
	"filter":            "quality > 0.5",
	"temperature":       "3",
	"max_fraction":      "0.5",
	"min_fraction":      "0.05",
	"schedule":          "[{from_step: 0, weights: {web: 1}}]",
	"sequence_length":   "2048",
	"global_batch_size": "512",
	"rampup_batch_size": "{start: 32, increment: 32, samples: 100000}",
	"stages":            "[{from_step: 1000, sequence_length: 8192}]",
	"path":              "data/*.jsonl.zst",
	"tokenizer":         "{name: gpt2}",
	"pattern":           "cl100k",
	"specials":          `{"<|endoftext|>": 100257}`,
	"variables":         "{enable_thinking: false}",
	"roles":             "{human: user, gpt: assistant}",
	"bos":               `"<|begin_of_text|>"`,
	"eos":               `"<|endoftext|>"`,
	"stop":              "{epochs: 1}",
	"limits":            "{loader_memory: 512MiB}",
	"quarantine":        "{budget: 0.001}",
	"parallelism":       "{tp: 1, cp: 1, pp: 1}",
	"cost":              "{linear: 61000, quadratic: 1}",
	"model":             "{layers: 32, hidden: 4096, heads: 32, kv_heads: 8, head_dim: 128, ffn: 14336, vocab: 128256}",
	"backbone":          "61000*tokens + tokens^2",
	"encoder":           "{layers: 32, hidden: 1280, heads: 16, ffn: 5120}",
	"mla":               "{q: 192, v: 128, q_rank: 1536, kv_rank: 512}",
	"distribute":        "{group: 8}",
	"split_documents":   "{above: mean}",
	"text":              "meta.body",
	"index_dir":         ".millrace/",
	"cache":             "{tokens: 200GiB, dir: /local/cache}",
	"dir":               "/local/cache",
	"cap_slack":         "1.1",
	"budget":            "0.001",
	"loaders":           "auto",
	"loader_memory":     "512MiB",
	"sidecar_memory":    "512MiB",
	"sample_bytes":      "64MiB",
	"open_files":        "512",
	"storage":           "{endpoint: https://minio.example:9000, region: us-east-1}",
	"streams":           "{eval: {mixture: {weights: {heldout: 1}}, sources: {heldout: {path: heldout/*.jsonl}}}}",
	"ranks":             "1",
	"runway_seconds":    "60",
}

// hubCure is the advice for a tokenizer of the Hugging Face hub.
const hubCure = "download the model's tokenizer.json or its rank file " +
	"(original/tokenizer.model of Llama 3 and 4, qwen.tiktoken of Qwen) and write `path:` with its place; " +
	"for GPT-2 write `name: gpt2`"

// hints are the advice of the decoder about the keys of a mixture file.
func hints() decode.Hints {
	unread := map[string][]string{"format": registry.Unread()}
	return decode.Hints{Examples: examples, NotYet: unread, Value: unknownValue, Home: home}
}

func unknownValue(path, given string) (problem, cure string) {
	if decode.Leaf(path) == "format" {
		if advice := registry.Advice(given); advice != "" {
			return "cannot be " + tree.Quote(given) + ": it names no one format", advice
		}
	}
	switch {
	case path != "tokenizer.name":
		return "", ""
	case strings.Contains(given, "/"):
		return "cannot be " + tree.Quote(given) + ": a Hugging Face model is not read by its name", hubCure
	}
	return "", "for another vocabulary write `path:` with its tokenizer.json or rank file (docs/tokenizers.md)"
}

// home returns the mapping to which a key belongs.
func home(key string) string {
	if _, ok := decode.FieldOf(reflect.TypeFor[Config](), key); ok {
		return "the top level of the file"
	}
	for _, part := range []struct {
		home string
		t    reflect.Type
	}{
		{"a source: `sources: {web: {…}}`", reflect.TypeFor[Source]()},
		{"`mixture`", reflect.TypeFor[Mixture]()},
		{"an entry of `mixture.schedule`", reflect.TypeFor[Milestone]()},
		{"`tokenizer`", reflect.TypeFor[Tokenizer]()},
		{"`stop`", reflect.TypeFor[Stop]()},
		{"`limits`", reflect.TypeFor[Limits]()},
		{"`cache`", reflect.TypeFor[Cache]()},
		{"`parallelism`", reflect.TypeFor[Parallelism]()},
		{"`quarantine`", reflect.TypeFor[Quarantine]()},
		{"`model`", reflect.TypeFor[Model]()},
		{"`cost`", reflect.TypeFor[Cost]()},
	} {
		if _, ok := decode.FieldOf(part.t, key); ok {
			return part.home
		}
	}
	return ""
}
