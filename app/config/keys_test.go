package config

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/identity"
	"millrace/app/config/resume"
	size "millrace/app/config/value"
)

// edits change each key of the schema. The text before `=>` is in force before the change, the text after it from then
// on. [change] edits the base.
var edits = map[string]string{
	"adaptive.every":     "adaptive: {policy: odm} => adaptive: {policy: odm, every: 7}",
	"adaptive.floor":     "adaptive: {policy: odm} => adaptive: {policy: odm, floor: 0.1}",
	"adaptive.policy":    "adaptive: {policy: odm} => adaptive: {policy: ado}",
	"adaptive.smoothing": "adaptive: {policy: odm} => adaptive: {policy: odm, smoothing: 0.1}",
	"adaptive.warmup":    "adaptive: {policy: odm} => adaptive: {policy: odm, warmup: 7}",
	"balance":            "=> balance: none",
	"broadcast[]":        "broadcast: [tp] => broadcast: [pp]",
	"shared_memory[]":    "shared_memory: [tp] => shared_memory: [pp]",
	"bucket_rows":        "packing: bucketed => packing: bucketed; bucket_rows: constant",
	"cap_slack":          "layout: varlen => layout: varlen; cap_slack: 1.5",
	"cache.dir":          "cache: {tokens: 1GiB, dir: /x} => cache: {tokens: 1GiB, dir: /y}",
	"cache.files":        "=> cache: {files: 1GiB, dir: /x}",
	"cache.tokens":       "=> cache: {tokens: 1GiB, dir: /x}",
	"carry":              "=> carry: 64",
	"cost.backbone":      "=> cost: {backbone: tokens, encoder: patches}",
	"cost.encoder": "cost: {backbone: tokens, encoder: patches} => cost: {backbone: tokens, encoder: 2 * " +
		"patches}",
	"cost.linear":       "cost: {linear: 2, quadratic: 1} => cost: {linear: 3, quadratic: 1}",
	"cost.quadratic":    "cost: {linear: 2, quadratic: 1} => cost: {linear: 2, quadratic: 3}",
	"cp_local":          "layout: varlen => layout: varlen; cp_local: 100",
	"distribute.group":  "distribute: {group: 2} => distribute: {group: 4}",
	"distribute.over":   "distribute: {group: 2} => distribute: {group: 2, over: world}",
	"global_batch_size": "=> global_batch_size: 1024",
	"index_dir":         "=> index_dir: /x",
	"verify":            "=> verify: off",
	"last_step":         "=> last_step: drop",
	"long_documents": "=> long_documents: shuffle; sources: {web: {path: web/*.jsonl}, " +
		"code: {path: code/*.parquet, long_documents: consecutive}}",
	"layout": "=> layout: varlen",

	"limits.open_files":   "=> limits: {open_files: 100}",
	"limits.sample_bytes": "=> limits: {sample_bytes: 1MiB}",
	"loaders":             "=> loaders: 3",
	"micro_batch_size":    "=> micro_batch_size: 8",

	"middle_stages": "=> middle_stages: positions",

	"mixture.floor": "=> mixture: {weights: {web: 0.6, code: 0.4}, floor: 0.1}",
	"mixture.unit":  "=> mixture: {weights: {web: 0.6, code: 0.4}, unit: samples}",

	"mixture.weights.*": "=> mixture: {weights: {web: 0.5, code: 0.4}}",
	"mixture.weights.budget_samples": "mixture: {unit: samples, weights: {from: unimax, max_epochs: 2, " +
		"budget_samples: 9}} => mixture: {unit: samples, weights: {from: unimax, max_epochs: 2, budget_samples: 8}}",
	"mixture.weights.budget_tokens": "mixture: {weights: {from: unimax, max_epochs: 2, budget_tokens: 9}} => " +
		"mixture: {weights: {from: unimax, max_epochs: 2, budget_tokens: 8}}",
	"mixture.weights.from": "mixture: {weights: {from: uniform}} => mixture: {weights: {from: size}}",
	"mixture.weights.max_epochs": "mixture: {weights: {from: unimax, max_epochs: 2, budget_tokens: 9}} => " +
		"mixture: {weights: {from: unimax, max_epochs: 3, budget_tokens: 9}}",
	"mixture.weights.sources[]": "mixture: {groups: {a: {weight: 1, weights: {from: size, sources: [web, " +
		"code]}}}} => mixture: {groups: {a: {weight: 1, weights: {from: size, sources: [web]}}, b: {weight: 1, " +
		"weights: {code: 1}}}}",
	"mixture.weights.temperature": "mixture: {weights: {from: temperature, temperature: 2}} => mixture: " +
		"{weights: {from: temperature, temperature: 3}}",

	"mixture.groups.*.weight": "mixture: {groups: {a: {weight: 1, weights: {web: 1}}, b: {weight: 1, weights: " +
		"{code: 1}}}} => mixture: {groups: {a: {weight: 1, weights: {web: 1}}, b: {weight: 2, weights: {code: 1}}}}",
	"mixture.groups.*.weights.*": "mixture: {groups: {a: {weight: 1, weights: {web: 1, code: 1}}}} => mixture: " +
		"{groups: {a: {weight: 1, weights: {web: 1, code: 2}}}}",

	"mixture.schedule[].from_step": "mixture: {schedule: [{from_step: 0, weights: {web: 1, code: 1}}, {from_step: " +
		"5, weights: {web: 1, code: 0}}]} => mixture: {schedule: [{from_step: 0, weights: {web: 1, code: 1}}, " +
		"{from_step: 6, weights: {web: 1, code: 0}}]}",
	"mixture.schedule[].from_tokens": "mixture: {schedule: [{from_tokens: 0, weights: {web: 1, code: 1}}, " +
		"{from_tokens: 5, weights: {web: 1, code: 0}}]} => mixture: {schedule: [{from_tokens: 0, weights: {web: 1, " +
		"code: 1}}, {from_tokens: 6, weights: {web: 1, code: 0}}]}",
	"mixture.schedule[].over_steps": "mixture: {schedule: [{from_step: 0, weights: {web: 1, code: 1}}, {from_step: " +
		"5, ramp: linear, over_steps: 5, weights: {web: 1, code: 0}}]} => mixture: {schedule: [{from_step: 0, " +
		"weights: {web: 1, code: 1}}, {from_step: 5, ramp: linear, over_steps: 6, weights: {web: 1, code: 0}}]}",
	"mixture.schedule[].over_tokens": "mixture: {schedule: [{from_tokens: 0, weights: {web: 1, code: 1}}, " +
		"{from_tokens: 5, ramp: linear, over_tokens: 5, weights: {web: 1, code: 0}}]} => mixture: {schedule: " +
		"[{from_tokens: 0, weights: {web: 1, code: 1}}, {from_tokens: 5, ramp: linear, over_tokens: 6, weights: " +
		"{web: 1, code: 0}}]}",
	"mixture.schedule[].ramp": "mixture: {schedule: [{from_step: 0, weights: {web: 1, code: 1}}, {from_step: " +
		"5, ramp: linear, over_steps: 5, weights: {web: 1, code: 0}}]} => mixture: {schedule: [{from_step: 0, " +
		"weights: {web: 1, code: 1}}, {from_step: 5, ramp: cosine, over_steps: 5, weights: {web: 1, code: 0}}]}",
	"mixture.schedule[].weights.*": "mixture: {schedule: [{from_step: 0, weights: {web: 1, code: 1}}]} => " +
		"mixture: {schedule: [{from_step: 0, weights: {web: 2, code: 1}}]}",

	"model.layers": "model: {layers: 2, hidden: 64, heads: 4, ffn: 256, vocab: 99} => model: {layers: 3, " +
		"hidden: 64, heads: 4, ffn: 256, vocab: 99}",
	"packing":           "=> packing: pad",
	"pad_multiple":      "=> pad_multiple: 8",
	"parallelism.cp":    "pad_multiple: 4 => pad_multiple: 4; parallelism: {cp: 2}",
	"quarantine.budget": "=> quarantine: {budget: 1}",
	"refit.every":       "refit: {every: 5} => refit: {every: 6}",

	"rampup_batch_size.increment": "rampup_batch_size: {start: 8, increment: 8, samples: 4000} => " +
		"rampup_batch_size: {start: 8, increment: 4, samples: 4000}",
	"rampup_batch_size.samples": "rampup_batch_size: {start: 8, increment: 8, samples: 4000} => " +
		"rampup_batch_size: {start: 8, increment: 8, samples: 5000}",
	"rampup_batch_size.start": "rampup_batch_size: {start: 8, increment: 8, samples: 4000} => " +
		"rampup_batch_size: {start: 16, increment: 8, samples: 4000}",

	"sequence_length": "=> sequence_length: 1024",
	"shuffle":         "=> shuffle: none",

	"sources.*.dtype": "sources: {web: {path: web/*, format: tokens, dtype: uint16}, code: {path: code/*.parquet}} " +
		"=> sources: {web: {path: web/*, format: tokens, dtype: uint32}, code: {path: code/*.parquet}}",
	"sources.*.config": "sources: {web: {path: web/, format: parquet, config: en}, code: {path: code/*.parquet}} " +
		"=> sources: {web: {path: web/, format: parquet, config: de}, code: {path: code/*.parquet}}",
	"sources.*.truncated": "sources: {web: {path: web/, format: webdataset}, code: {path: code/*.parquet}} " +
		"=> sources: {web: {path: web/, format: webdataset, truncated: accept}, code: {path: code/*.parquet}}",
	"sources.*.split": "sources: {web: {path: web/, format: webdataset}, code: {path: code/*.parquet}} " +
		"=> sources: {web: {path: web/, format: webdataset, split: val}, code: {path: code/*.parquet}}",
	"sources.*.eos": "sources: {web: {path: web/*, format: tokens, eos: 0}, code: {path: code/*.parquet}} " +
		"=> sources: {web: {path: web/*, format: tokens, eos: 2}, code: {path: code/*.parquet}}",
	"sources.*.filter": "=> sources: {web: {path: web/*.jsonl, filter: tokens > 5}, code: {path: " +
		"code/*.parquet}}",
	"sources.*.format": "sources: {web: {path: web/*, format: jsonl}, code: {path: code/*.parquet}} => " +
		"sources: {web: {path: web/*, format: parquet}, code: {path: code/*.parquet}}",
	"sources.*.long_documents": "=> sources: {web: {path: web/*.jsonl, long_documents: shuffle}, code: {path: " +
		"code/*.parquet}}",
	"sources.*.max_epochs": "=> sources: {web: {path: web/*.jsonl, max_epochs: 2}, code: {path: code/*.parquet}}",
	"sources.*.max_fraction": "=> sources: {web: {path: web/*.jsonl, max_fraction: 0.5}, code: {path: " +
		"code/*.parquet}}",
	"sources.*.min_fraction": "=> sources: {web: {path: web/*.jsonl, min_fraction: 0.5}, code: {path: " +
		"code/*.parquet}}",
	"sources.*.on_exhausted": "=> sources: {web: {path: web/*.jsonl, on_exhausted: stop}, code: {path: " +
		"code/*.parquet}}",
	"sources.*.path": "=> sources: {web: {path: x/*.jsonl}, code: {path: code/*.parquet}}",
	"sources.*.record": "sources: {web: {path: web/*, format: tfrecord}, code: {path: code/*.parquet}} " +
		"=> sources: {web: {path: web/*, format: tfrecord, record: text}, code: {path: code/*.parquet}}",
	"sources.*.root":    "=> sources: {web: {path: web/*.jsonl, root: .}, code: {path: code/*.parquet}}",
	"sources.*.version": "=> sources: {web: {path: web/*.jsonl}, code: {path: code, format: parquet, version: 3}}",
	"sources.*.storage.anonymous": "=> sources: {web: {path: s3://b/web/*.jsonl, storage: {anonymous: true}}, " +
		"code: {path: code/*.parquet}}",
	"sources.*.storage.endpoint": "=> sources: {web: {path: s3://b/web/*.jsonl, storage: {endpoint: http://h:1}}, " +
		"code: {path: code/*.parquet}}",
	"sources.*.storage.region": "=> sources: {web: {path: s3://b/web/*.jsonl, storage: {region: eu}}, code: {path: " +
		"code/*.parquet}}",
	"sources.*.mask": "sources: {web: {path: web/*.jsonl, tokens: ids}, code: {path: code/*.parquet}} => " +
		"sources: {web: {path: web/*.jsonl, tokens: ids, mask: m}, code: {path: code/*.parquet}}",
	"sources.*.labels": "sources: {web: {path: web/*.jsonl, tokens: ids}, code: {path: code/*.parquet}} => " +
		"sources: {web: {path: web/*.jsonl, tokens: ids, labels: l}, code: {path: code/*.parquet}}",
	"sources.*.starts": "sources: {web: {path: web/*.jsonl, tokens: ids}, code: {path: code/*.parquet}} => " +
		"sources: {web: {path: web/*.jsonl, tokens: ids, starts: s}, code: {path: code/*.parquet}}",
	"sources.*.tokens": "=> sources: {web: {path: web/*.jsonl, tokens: ids}, code: {path: code/*.parquet}}",
	"sources.*.prompt": "sources: {web: {path: web/*.jsonl, prompt: p, completion: c}, code: {path: " +
		"code/*.parquet}} " +
		"=> sources: {web: {path: web/*.jsonl, prompt: q, completion: c}, code: {path: code/*.parquet}}",
	"sources.*.completion": "sources: {web: {path: web/*.jsonl, prompt: p, completion: c}, code: {path: " +
		"code/*.parquet}} " +
		"=> sources: {web: {path: web/*.jsonl, prompt: p, completion: d}, code: {path: code/*.parquet}}",
	"sources.*.chosen": "sources: {web: {path: web/*.jsonl, chosen: c, rejected: r}, code: {path: " +
		"code/*.parquet}} " +
		"=> sources: {web: {path: web/*.jsonl, chosen: d, rejected: r}, code: {path: code/*.parquet}}",
	"sources.*.rejected": "sources: {web: {path: web/*.jsonl, chosen: c, rejected: r}, code: {path: " +
		"code/*.parquet}} " +
		"=> sources: {web: {path: web/*.jsonl, chosen: c, rejected: s}, code: {path: code/*.parquet}}",
	"sources.*.messages": "sources: {web: {path: web/*.jsonl, messages: m, template: chatml}, code: {path: " +
		"code/*.parquet}} " +
		"=> sources: {web: {path: web/*.jsonl, messages: n, template: chatml}, code: {path: code/*.parquet}}",
	"sources.*.role": "sources: {web: {path: web/*.jsonl, messages: m, template: chatml}, code: {path: " +
		"code/*.parquet}} " +
		"=> sources: {web: {path: web/*.jsonl, messages: m, template: chatml, role: from}, code: {path: " +
		"code/*.parquet}}",
	"sources.*.content": "sources: {web: {path: web/*.jsonl, messages: m, template: chatml}, code: {path: " +
		"code/*.parquet}} " +
		"=> sources: {web: {path: web/*.jsonl, messages: m, template: chatml, content: value}, code: {path: " +
		"code/*.parquet}}",
	"sources.*.roles": "sources: {web: {path: web/*.jsonl, messages: m, template: chatml}, code: {path: " +
		"code/*.parquet}} " +
		"=> sources: {web: {path: web/*.jsonl, messages: m, template: chatml, roles: {gpt: assistant}}, " +
		"code: {path: code/*.parquet}}",
	"sources.*.tools": "sources: {web: {path: web/*.jsonl, messages: m, template: chatml, unused: [t]}, code: {path: " +
		"code/*.parquet}} " +
		"=> sources: {web: {path: web/*.jsonl, messages: m, template: chatml, tools: t, unused: [t]}, code: {path: " +
		"code/*.parquet}}",
	"sources.*.train_on": "sources: {web: {path: web/*.jsonl, messages: m, template: chatml}, code: {path: " +
		"code/*.parquet}} " +
		"=> sources: {web: {path: web/*.jsonl, messages: m, template: chatml, train_on: all}, code: {path: " +
		"code/*.parquet}}",
	"sources.*.too_long": "sources: {web: {path: web/*.jsonl, messages: m, template: chatml}, code: {path: " +
		"code/*.parquet}} " +
		"=> sources: {web: {path: web/*.jsonl, messages: m, template: chatml, too_long: drop}, code: {path: " +
		"code/*.parquet}}",
	"sources.*.roles.*": "sources: {web: {path: web/*.jsonl, messages: m, template: chatml, roles: {gpt: tool}}, " +
		"code: {path: code/*.parquet}} => sources: {web: {path: web/*.jsonl, messages: m, template: chatml, " +
		"roles: {gpt: assistant}}, code: {path: code/*.parquet}}",
	"sources.*.template.path": "sources: {web: {path: web/*.jsonl, messages: m, template: chatml}, code: {path: " +
		"code/*.parquet}} => sources: {web: {path: web/*.jsonl, messages: m, template: {path: testdata/t.jinja}}, " +
		"code: {path: code/*.parquet}}",
	"sources.*.template.name": "sources: {web: {path: web/*.jsonl, messages: m, template: {path: testdata/named}}, " +
		"code: {path: code/*.parquet}} => sources: {web: {path: web/*.jsonl, messages: m, template: {path: " +
		"testdata/named, name: tool_use}}, code: {path: code/*.parquet}}",
	"sources.*.template.variables": "sources: {web: {path: web/*.jsonl, messages: m, template: {path: " +
		"testdata/t.jinja}}, code: {path: code/*.parquet}} => sources: {web: {path: web/*.jsonl, messages: m, " +
		"template: {path: testdata/t.jinja, variables: {enable_thinking: false}}}, code: {path: code/*.parquet}}",
	"sources.*.fields[]": "=> sources: {web: {path: web/*.jsonl, fields: [url]}, code: {path: code/*.parquet}}",
	"sources.*.unused[]": "=> sources: {web: {path: web/*.jsonl, unused: [label]}, code: {path: code/*.parquet}}",
	"sources.*.missing":  "=> sources: {web: {path: web/*.jsonl, missing: skip}, code: {path: code/*.parquet}}",
	"sources.*.text":     "=> sources: {web: {path: web/*.jsonl, text: body}, code: {path: code/*.parquet}}",

	"split_documents.above": "layout: varlen; split_documents: {} => layout: varlen; split_documents: {above: 4096}",

	"stages[].filters.*": "stages: [{from_step: 5}] => stages: [{from_step: 5, filters: {web: tokens > 5}}]",
	"stages[].from_step": "stages: [{from_step: 5, packing: pad}] => stages: [{from_step: 6, packing: pad}]",
	"stages[].from_tokens": "stages: [{from_tokens: 5, packing: pad}] => stages: [{from_tokens: 6, packing: " +
		"pad}]",
	"stages[].global_batch_size": "stages: [{from_step: 5}] => stages: [{from_step: 5, global_batch_size: 1024}]",
	"stages[].micro_batch_size": "stages: [{from_step: 5, packing: pad}] => stages: [{from_step: 5, packing: pad, " +
		"micro_batch_size: 2}]",
	"stages[].packing":         "stages: [{from_step: 5}] => stages: [{from_step: 5, packing: pad}]",
	"stages[].sequence_length": "stages: [{from_step: 5}] => stages: [{from_step: 5, sequence_length: 4096}]",

	"stages[].rampup_batch_size.increment": "stages: [{from_step: 5, rampup_batch_size: {start: 8, increment: 8, " +
		"samples: 4000}}] => stages: [{from_step: 5, rampup_batch_size: {start: 8, increment: 4, samples: 4000}}]",
	"stages[].rampup_batch_size.samples": "stages: [{from_step: 5, rampup_batch_size: {start: 8, increment: 8, " +
		"samples: 4000}}] => stages: [{from_step: 5, rampup_batch_size: {start: 8, increment: 8, samples: 5000}}]",
	"stages[].rampup_batch_size.start": "stages: [{from_step: 5, rampup_batch_size: {start: 8, increment: 8, " +
		"samples: 4000}}] => stages: [{from_step: 5, rampup_batch_size: {start: 16, increment: 8, samples: 4000}}]",

	"streams.*.seed": "=> streams: {eval: {seed: 7}}",

	"stop.epochs": "stop: {epochs: 1} => stop: {epochs: 2}",
	"stop.steps":  "stop: {steps: 1} => stop: {steps: 2}",
	"stop.tokens": "stop: {tokens: 1} => stop: {tokens: 2}",
	"token_dtype": "=> token_dtype: int32",

	"tokenizer.add_bos": "=> tokenizer: {name: gpt2, add_bos: true}",
	"tokenizer.add_eos": "=> tokenizer: {name: gpt2, add_eos: false}",
	"tokenizer.name":    "=> tokenizer: {name: cl100k_base}",
	"tokenizer.path":    "=> tokenizer: {path: x.tiktoken}",

	"window": "=> window: 4",
}

// asOther are keys that the same code reads as another key. The edit of that key also tests them.
var asOther = map[string]string{
	"model.":                      "model.layers",
	"mixture.groups.*.weights.":   "mixture.groups.*.weights.*",
	"mixture.schedule[].groups.":  "mixture.groups.*.weights.*",
	"mixture.schedule[].weights.": "mixture.schedule[].weights.*",
	"tokenizer.bos":               "tokenizer.name", // part of the vocabulary's fingerprint
	"tokenizer.eos":               "tokenizer.name",
	"tokenizer.pattern":           "tokenizer.name",
	"sources.*.path[]":            "sources.*.path",
	"tokenizer.specials.*":        "tokenizer.name",
	"streams.":                    "streams.*.seed",
}

// TestEveryKeyHasARule: each key of the schema has a rule, and a change of the key has the effects of its rule.
func TestEveryKeyHasARule(t *testing.T) {
	for _, key := range schemaKeys(t) {
		r := ruleOf(key)
		if r == nil {
			t.Errorf("%s: no rule says what a change at resume means", key)
			continue
		}
		edit, ok := edits[key]
		for prefix, other := range asOther {
			if !ok && strings.HasPrefix(key, prefix) {
				edit, ok = edits[other], true
			}
		}
		if key == "version" {
			continue // there is only one
		}
		if !ok {
			edit, ok = plainEdit(key)
		}
		if !ok {
			t.Errorf("%s: no edit to try: add one to edits", key)
			continue
		}
		before, after, _ := strings.Cut(edit, "=>")
		old, now := parseEdit(t, before), parseEdit(t, after)
		changes := identity.Diff(throughJSON(t, old.Identity(Facts{})), now.Identity(Facts{}))
		if len(changes) == 0 != (len(r.Entries) == 0) {
			t.Errorf("%s: the rule names entries %q, and the changes are %v", key, r.Entries, changes)
		}
		for _, c := range changes {
			name, _, _ := strings.Cut(c, ": ")
			if got := resume.Classify(name); got != r.Class {
				t.Errorf("%s: the rule has class %d, and the entry %s has %d", key, r.Class, name, got)
			}
			covered := false
			for _, e := range r.Entries {
				covered = covered || decode.Within(name, strings.Replace(e, "NAME", "web", 1))
			}
			if !covered {
				t.Errorf("%s: the rule names entries %q, and %s changed", key, r.Entries, name)
			}
		}
	}
}

// ruleOf returns the rule of a key, written as a path of the schema: sources.*.path, stages[].packing.
func ruleOf(key string) (best *resume.Rule) {
	longest := -1
	all := resume.Rules()
	for i := range all {
		for _, k := range keysOf(all[i].Name) {
			if decode.Within(key, k) && len(k) > longest {
				best, longest = &all[i], len(k)
			}
		}
	}
	return best
}

// keysOf returns the paths of the keys whose tag names a rule, in the order of the structs.
func keysOf(rule string) (keys []string) {
	if rule == "" {
		return nil
	}
	var walk func(path string, of reflect.Type, around []reflect.Type)
	walk = func(path string, of reflect.Type, around []reflect.Type) {
		if slices.Contains(around, of) { // groups hold groups
			return
		}
		for i := range of.NumField() {
			f := of.Field(i)
			key := f.Tag.Get("yaml")
			if key == "" || key == "-" {
				continue
			}
			at, inner := decode.Join(path, key), f.Type
			if f.Tag.Get("resume") == rule {
				keys = append(keys, at)
			}
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				if inner.Kind() == reflect.Slice {
					at += "[]"
				}
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				at = strings.Replace(at, "sources[]", "sources.*", 1)
				walk(at, inner, append(slices.Clone(around), of))
			}
		}
	}
	walk("", reflect.TypeFor[Config](), nil)
	return keys
}

// TestEveryRuleHasAKey: no rule is of a key that the schema does not have.
func TestEveryRuleHasAKey(t *testing.T) {
	keys := schemaKeys(t)
	for _, r := range resume.Rules() {
		if r.Name != "" && len(keysOf(r.Name)) == 0 {
			t.Errorf("no key has the rule %s", r.Name)
		}
		for _, k := range keysOf(r.Name) {
			found := false
			for _, key := range keys {
				found = found || decode.Within(key, k)
			}
			if !found {
				t.Errorf("no key of the schema is %s", k)
			}
		}
	}
}

// plainEdit returns an edit of a key at the top level, or of a mapping there, that needs no other key: another value of
// its type.
func plainEdit(key string) (edit string, ok bool) {
	of, value := reflect.TypeFor[Config](), ""
	for _, part := range strings.Split(key, ".") {
		f, found := decode.FieldOf(of, part)
		if !found {
			return "", false
		}
		if of = f.Type; of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		_, initial, _ := strings.Cut(f.Tag.Get("jsonschema"), "default=")
		initial, _, _ = strings.Cut(initial, ",")
		switch of.Kind() {
		case reflect.Bool:
			value = strconv.FormatBool(initial != "true")
		case reflect.Uint32, reflect.Uint64:
			n, _ := strconv.Atoi(initial) // 0 for a size with a unit
			value = strconv.Itoa(n + 1)
			if of == reflect.TypeFor[size.Bytes]() {
				value = "1GiB"
			}
		}
	}
	if value == "" || strings.Contains(key, "*") {
		return "", false
	}
	if home, name, ok := strings.Cut(key, "."); ok {
		return "=> " + home + ": {" + name + ": " + value + "}", true
	}
	return "=> " + key + ": " + value, true
}

func parseEdit(t *testing.T, edit string) *Config {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("`%s` is refused; if it follows from the type of the key, add a valid edit to `edits`", edit)
		}
	}()
	return parse(t, change(strings.ReplaceAll(strings.TrimSpace(edit), "; ", "\n")+"\n"))
}

// TestClassOfFoldedEntries checks that a name for several entries has the class of these entries.
func TestClassOfFoldedEntries(t *testing.T) {
	for entry, want := range map[string]millrace.KeyClass{
		"mixture": millrace.KeyMixture, "mixture.sizes": millrace.KeyMixture, "mixture.sizes.web": millrace.KeyMixture,
		"mixture.weights": millrace.KeyMixture, "sources": millrace.KeySource, "stages": millrace.KeySteps,
		"tokenizer.add_eos": millrace.KeyDocuments, "limits.sample_bytes": millrace.KeyDocuments,
	} {
		if got := resume.Classify(entry); got != want {
			t.Errorf("%s is of class %d, want %d", entry, got, want)
		}
	}
}

// TestResumePage compares the tables of docs/resume.md with the rules. -rewrite writes them.
func TestResumePage(t *testing.T) {
	const page = "../../docs/resume.md"
	text := string(read(t, page))
	want := replaceTable(t, replaceTable(t, text, "free", freeTable()), "overridden", overriddenTable())
	if flag.Lookup("rewrite").Value.String() == "true" { // datadriven's
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != want {
		t.Error("docs/resume.md does not have the tables of the rules: run `go test ./app/config -run " +
			"TestResumePage -args -rewrite`")
	}
}

func replaceTable(t *testing.T, page, name, table string) string {
	t.Helper()
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(page, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("docs/resume.md has no place for the table %q", name)
	}
	return before + begin + "\n" + table + "\n" + end + after
}

// freeTable lists the keys that may differ freely.
func freeTable() string {
	var b strings.Builder
	b.WriteString("| Change | Effect |\n| --- | --- |\n")
	for _, r := range resume.Rules() {
		if r.Entries == nil {
			b.WriteString("| " + changes(&r) + " | " + r.Then + " |\n")
		}
	}
	return b.String()
}

// overriddenTable lists the keys that need an override, with the entry that the override names.
func overriddenTable() string {
	var b strings.Builder
	b.WriteString("| Change | Name of the override | Effect |\n| --- | --- | --- |\n")
	for _, r := range resume.Rules() {
		if r.Entries != nil {
			names := inCode(r.Entries)
			if keys := keysOf(r.Name); len(keys) > 1 && slices.Equal(slices.Sorted(slices.Values(r.Entries)),
				slices.Sorted(slices.Values(keys))) {
				names = "the key"
			}
			b.WriteString("| " + changes(&r) + " | " + names + " | " + r.Then + " |\n")
		}
	}
	return b.String()
}

// changes names the keys and changes of a rule.
func changes(r *resume.Rule) string {
	parts := append([]string{}, r.About...)
	if keys := keysOf(r.Name); len(keys) > 0 {
		parts = append(parts, inCode(keys))
	}
	return strings.Join(parts, ", ")
}

func inCode(names []string) string {
	return "`" + strings.ReplaceAll(strings.Join(names, "`, `"), "*", "NAME") + "`"
}

// schemaKeys returns the leaves of mixture.schema.json as paths: sources.*.path, stages[].packing.
func schemaKeys(t *testing.T) (keys []string) {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal(read(t, "../../mixture.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, n map[string]any) bool
	walk = func(path string, n map[string]any) bool {
		if ref, ok := n["$ref"].(string); ok {
			if strings.Count(path, "groups") > 1 {
				return true // a group of a group is a group
			}
			if strings.HasPrefix(ref, "#/properties/") {
				return false // a key of a stream is the key of the run
			}
			n = schema["$defs"].(map[string]any)[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any)
		}
		inner := false
		properties, _ := n["properties"].(map[string]any)
		for k, p := range properties {
			at := decode.Join(path, k)
			inner = true
			if !walk(at, p.(map[string]any)) {
				keys = append(keys, at)
			}
		}
		for field, mark := range map[string]string{"additionalProperties": ".*", "items": "[]"} {
			if sub, ok := n[field].(map[string]any); ok {
				inner = true
				if !walk(path+mark, sub) {
					keys = append(keys, path+mark)
				}
			}
		}
		alternatives, _ := n["oneOf"].([]any)
		for _, a := range alternatives {
			inner = walk(path, a.(map[string]any)) || inner
		}
		return inner
	}
	walk("", schema)
	if len(keys) < 120 {
		t.Fatalf("only %d keys were found", len(keys))
	}
	return keys
}
