package config

import (
	"fmt"
	"millrace/internal/app/config/tree"
	"reflect"
	"slices"
	"strings"
)

// notYet are values that have a meaning, but not in this version.
var notYet = map[string][]string{
	"format": {"webdataset", "wds", "tar", "csv", "tsv", "txt", "text", "json", "arrow", "feather", "ipc", "avro", "orc", "mds", "litdata", "hf",
		"huggingface", "tfrecord", "recordio", "arrayrecord", "lance", "energon", "npy", "hdf5", "nemo"},
}

// examples are what a key may look like, for cures.
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
	"cap_slack":         "1.1",
	"budget":            "0.001",
	"loaders":           "auto",
	"loader_memory":     "512MiB",
	"sidecar_memory":    "512MiB",
	"sample_bytes":      "64MiB",
}

func mappingCure(path string) string {
	if e, ok := examples[leaf(path)]; ok {
		return "write " + tree.Quote(leaf(path)+": "+e)
	}
	return "write it as `{key: value}` or as indented lines below"
}

// leaf returns the last key of a path.
func leaf(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// example returns what a value of the key may look like.
func example(path string, r rules) string {
	if e, ok := examples[leaf(path)]; ok {
		return tree.Quote(leaf(path) + ": " + e)
	}
	if r.initial != "" {
		return tree.Quote(leaf(path) + ": " + r.initial)
	}
	return "one plain value"
}

func missing(path, key string) string {
	if path == "" {
		return "the key " + tree.Quote(key) + " is missing"
	}
	return name(path) + " lacks the key " + tree.Quote(key)
}

func requiredCure(path, key string) string {
	if e, ok := examples[key]; ok && key != "sources" {
		return "add " + tree.Quote(key+": "+e)
	}
	if key == "sources" {
		return "add `sources:` with at least one source, as " + tree.Quote("web: {path: web/*.jsonl}")
	}
	return "add " + tree.Quote(key+": ") + " with a value"
}

// unknownValue says that a text is none of the alternatives, or that it is to come.
func unknownValue(path, given string, enum []string) (problem, cure string) {
	if slices.Contains(notYet[leaf(path)], given) {
		return "does not know " + tree.Quote(given) + " yet", "not yet: " + given + "; this version has " + alternatives(enum)
	}
	cure = "write " + alternatives(enum)
	if path == "tokenizer.name" {
		if strings.Contains(given, "/") {
			return "cannot be " + tree.Quote(given) + ": a Hugging Face model is not read by its name", hubCure
		}
		cure += "; for another vocabulary write `path:` with its rank file (docs/tokenizers.md)"
	}
	if near := nearest(given, enum); near != "" {
		cure = "did you mean " + tree.Quote(near) + "? It is one of " + alternatives(enum)
	}
	if given == "" {
		return "is empty", cure
	}
	return "cannot be " + tree.Quote(given), cure
}

// hubCure says how a tokenizer of the Hugging Face hub is used.
const hubCure = "download the model's rank file (original/tokenizer.model of Llama 3 and 4, qwen.tiktoken of Qwen) and write `path:` with its place; " +
	"for GPT-2 write `name: gpt2`"

func alternatives(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

// unknownKey reports a key that a mapping does not have, with the nearest that it has or the place where the key belongs.
func (d *decoder) unknownKey(path string, key *tree.Node, t reflect.Type) {
	at := join(path, key.Text)
	if path == "" && key.Text == "streams" {
		d.fail(at, key, "`streams` is reserved", "not yet: further named streams (evaluation sets); this version has the training stream alone")
		return
	}
	where := ""
	if path != "" {
		where = " in " + name(path)
	}
	known := keysOf(t)
	d.fail(at, key, "unknown key "+tree.Quote(key.Text)+where, keyCure(key.Text, known))
}

func keyCure(given string, known []string) string {
	if near := nearest(given, known); near != "" {
		return "did you mean " + tree.Quote(near) + "?"
	}
	if home := homes(given); home != "" {
		return tree.Quote(given) + " belongs in " + home
	}
	return "known here: " + strings.Join(known, ", ")
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		if k := keyName(t.Field(i)); k != "" {
			keys = append(keys, k)
		}
	}
	return keys
}

// homes returns the mapping that has a key, for one that was written somewhere else.
func homes(key string) string {
	if _, ok := fieldOf(reflect.TypeFor[Config](), key); ok {
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
		{"`parallelism`", reflect.TypeFor[Parallelism]()},
		{"`quarantine`", reflect.TypeFor[Quarantine]()},
		{"`model`", reflect.TypeFor[Model]()},
		{"`cost`", reflect.TypeFor[Cost]()},
	} {
		if _, ok := fieldOf(part.t, key); ok {
			return part.home
		}
	}
	return ""
}

// nearest returns the candidate that is at most a third of its length away from what was given, "" if none is.
func nearest(given string, candidates []string) string {
	if len(given) > 2*maxName {
		return ""
	}
	best, bestCost := "", 1<<30
	for _, c := range candidates {
		cost := distance(strings.ToLower(given), c)
		if cost <= max(len(c)/3, 1) && cost < bestCost && cost < len(c) {
			best, bestCost = c, cost
		}
	}
	return best
}

// distance is the optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, now := rows[(i+2)%3], rows[i%3], rows[(i+1)%3]
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
	}
	return rows[(len(a)+1)%3][len(b)]
}

// decodeSource reads one source. A bare path is not enough of a mapping, but shows what was meant.
func (d *decoder) decodeSource(path string, n *tree.Node, s *Source) {
	if n.Kind == tree.Scalar && n.Class != tree.Null && n.Text != "" {
		d.wrongType(path, n, "a mapping", fmt.Sprintf("write `{path: %s}`", n.Text))
		return
	}
	d.decode(path, n, reflect.ValueOf(s).Elem(), rules{})
}
