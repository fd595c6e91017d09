package config

import (
	"strings"

	"millrace"
)

// rule says what a change of some keys of the mixture file means for a run that resumes from a saved state. The tables
// of docs/resume.md are made of the rules.
type rule struct {
	about   []string          // what else the rule covers, beside keys
	keys    []string          // paths in the file, each with all below it; * is any name, [] any item of a list
	entries []string          // identity entries that a change of the keys alters; none: the keys may differ freely
	class   millrace.KeyClass // of the entries
	then    string            // Markdown: what a change means
}

// keyRules cover every key of the mixture file. A key belongs to the rule that names the longest part of its path.
var keyRules = []rule{
	{
		about: []string{"ranks"},
		keys: []string{"parallelism", "cp_local", "broadcast", "micro_batch_size", "stages[].micro_batch_size", "balance", "layout",
			"cap_slack", "token_dtype", "model", "cost", "distribute", "split_documents"},
		then: "segments are placed anew from the next step on",
	},
	{
		about: []string{"the place of the files"},
		keys:  []string{"sources.*.path", "sources.*.root"},
		then:  "no effect on content while the files below `root` keep their names, sizes and contents; else see `sources.NAME.files`",
	},
	{
		keys: []string{"loaders", "reliability", "limits.loader_memory", "limits.sidecar_memory", "index_dir", "verify"},
		then: "no effect on content",
	},
	{
		keys: []string{"stop.steps", "stop.tokens"},
		then: "the run ends there, or at once if it is past that place. With the rule `unimax` and no budget, `stop.tokens` decides weights too",
	},
	{
		keys: []string{"quarantine.budget"},
		then: "a new run directory counts bad records from its first step on",
	},
	{
		keys: []string{"adaptive"},
		then: "weights in force stay until the policy of the file makes others",
	},
	{
		keys: []string{"refit"},
		then: "costs in force stay until others are journaled",
	},
	{
		about: []string{"a later step of a schedule, or of stages, with which the run began"},
		then:  "no change: they are in force as written",
	},
	{
		about:   []string{"the sizes of sources, if weights are derived from them"},
		keys:    []string{"mixture.weights", "mixture.groups", "mixture.schedule", "mixture.floor"},
		entries: []string{"mixture.weights", "mixture.groups", "mixture.schedule", "mixture.floor", "mixture.sizes"},
		class:   millrace.KeyMixture,
		then:    "in force from the next step on; what a source was owed until then is made good",
	},
	{
		keys:    []string{"sources.*.min_fraction", "sources.*.max_fraction"},
		entries: []string{"sources.NAME"},
		class:   millrace.KeySource,
		then:    "as for weights",
	},
	{
		keys:    []string{"mixture.unit"},
		entries: []string{"mixture.unit"},
		class:   millrace.KeyUnit,
		then:    "as for weights, and every source starts exactly on its target",
	},
	{
		about:   []string{"a source added"},
		entries: []string{"sources.NAME"},
		class:   millrace.KeySource,
		then:    "starts at ordinal 0, exactly on its target; the name stands for its weight too",
	},
	{
		about:   []string{"a source removed"},
		entries: []string{"sources.NAME"},
		class:   millrace.KeySource,
		then: "forgotten; its debt or surplus goes to the unfinished others in equal parts; its tokens stay counted in the run's. Refused while segments of it wait " +
			"to be packed (`carry`, `window`): keep it at weight 0 until they are delivered; the name stands for its weight too",
	},
	{
		about:   []string{"a source renamed"},
		entries: []string{"sources.NAME"},
		class:   millrace.KeySource,
		then:    "one source removed and one added: both names",
	},
	{
		about:   []string{"a source's files: their names, sizes or contents"},
		entries: []string{"sources.NAME.files"},
		class:   millrace.KeySource,
		then: "goes on at its ordinal, in the new order; a document that was cut is not finished; a source that had ended is " +
			"asked again",
	},
	{
		keys: []string{"sources.*.format", "sources.*.text", "sources.*.filter", "sources.*.on_exhausted",
			"sources.*.max_epochs"},
		entries: []string{"sources.NAME"},
		class:   millrace.KeySource,
		then:    "as for files",
	},
	{
		keys:    []string{"version", "seed", "shuffle", "tokenizer", "limits.sample_bytes"},
		entries: []string{"version", "seed", "shuffle", "tokenizer", "limits.sample_bytes"},
		class:   millrace.KeyDocuments,
		then: "as for the files of every source. Ordinals are other documents now: some of this pass come twice and some not at all. " +
			"`shuffle` needs `sources` too: files are read in another way",
	},
	{
		keys:    []string{"stop.epochs"},
		entries: []string{"stop.epochs"},
		class:   millrace.KeyEnd,
		then:    "sources that had ended are asked again; those beyond the new end leave. `on_exhausted` may change with it: `sources.NAME`",
	},
	{
		keys: []string{"sequence_length", "global_batch_size", "rampup_batch_size", "stages", "packing", "pad_multiple",
			"carry", "window", "last_step"},
		entries: []string{"sequence_length", "global_batch_size", "rampup_batch_size", "stages", "packing", "pad_multiple",
			"carry", "window", "last_step"},
		class: millrace.KeySteps,
		then:  "for the steps to come; a document that was cut goes on at its offset",
	},
}

// ruleOf returns the rule of a key, written as a path of the schema: sources.*.path, stages[].packing.
func ruleOf(key string) (best *rule) {
	longest := -1
	for i := range keyRules {
		for _, k := range keyRules[i].keys {
			if within(key, k) && len(k) > longest {
				best, longest = &keyRules[i], len(k)
			}
		}
	}
	return best
}

// Classify returns the class of an entry of a run's identity. A name stands for all entries below it.
func Classify(entry string) millrace.KeyClass {
	for i := range keyRules {
		for _, e := range keyRules[i].entries {
			if e = strings.TrimSuffix(e, ".NAME"); within(entry, e) || within(e, entry) {
				return keyRules[i].class
			}
		}
	}
	return millrace.KeySteps
}
