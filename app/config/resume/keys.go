// Package resume has the effect of each change of the mixture file on a run that resumes from a saved state. The tables
// of docs/resume.md are generated from its rules.
package resume

import (
	"strings"

	"millrace"
	"millrace/app/config/decode"
)

// Rule is the effect of a change of some keys.
type Rule struct {
	About   []string          // changes that no key names
	Keys    []string          // paths in the file, each with all paths below it; * is any name, [] any item of a list
	Entries []string          // identity entries that a change of the keys alters; none: the keys may differ freely
	Class   millrace.KeyClass // of the entries
	Then    string            // Markdown: the effect of a change
}

// Rules returns the rules of all keys. A key belongs to the rule that names the longest part of its path.
func Rules() []Rule { return keyRules }

var keyRules = []Rule{
	{
		About: []string{"ranks"},
		Keys: []string{
			"parallelism", "cp_local", "broadcast", "middle_stages", "micro_batch_size",
			"stages[].micro_batch_size", "balance", "layout",
			"cap_slack", "token_dtype", "model", "cost", "distribute", "split_documents",
		},
		Then: "segments are placed anew from the next step on; content is unchanged",
	},
	{
		About: []string{"the place of the files"},
		Keys:  []string{"sources.*.path", "sources.*.root", "sources.*.version", "sources.*.storage"},
		Then: "no effect on content if the files below `root` keep their names, sizes and contents; otherwise see " +
			"`sources.NAME.files`",
	},
	{
		Keys: []string{
			"loaders", "reliability", "shared_memory", "limits.loader_memory", "limits.sidecar_memory",
			"limits.open_files",
			"limits.runway_seconds", "index_dir",
			"cache", "verify", "sources.*.truncated", "sources.*.unused",
		},
		Then: "no effect on content",
	},
	{
		Keys: []string{"seekable_copies"},
		Then: "no effect on sources of which every file can be read at random. For the others, see " +
			"`sources.NAME.files`: their order is global with copies, and blocks without",
	},
	{
		Keys: []string{"streams"},
		Then: "no effect on other streams: streams may come and go. A stream of the same name goes on in its own " +
			"directory, and its own keys follow the rules of this page",
	},
	{
		Keys: []string{"stop.steps", "stop.tokens"},
		Then: "the run ends there, or at once if it is past that step or token. With the rule `unimax` and no " +
			"budget, `stop.tokens` also decides weights",
	},
	{
		Keys: []string{"quarantine.budget"},
		Then: "a new run directory counts bad records from its first step on",
	},
	{
		Keys: []string{"adaptive"},
		Then: "weights in force stay until the policy of the file sets new ones",
	},
	{
		Keys: []string{"refit"},
		Then: "costs in force stay until new ones are journaled",
	},
	{
		About: []string{"a resume at a later step of the same schedule or stages"},
		Then:  "none: schedule and stages hold as written",
	},
	{
		About:   []string{"the sizes of sources, if weights are derived from them"},
		Keys:    []string{"mixture.weights", "mixture.groups", "mixture.schedule", "mixture.floor"},
		Entries: []string{"mixture.weights", "mixture.groups", "mixture.schedule", "mixture.floor", "mixture.sizes"},
		Class:   millrace.KeyMixture,
		Then:    "in force from the next step on; each source's deficit up to that step is made up",
	},
	{
		Keys:    []string{"sources.*.min_fraction", "sources.*.max_fraction"},
		Entries: []string{"sources.NAME"},
		Class:   millrace.KeySource,
		Then:    "as for weights",
	},
	{
		Keys:    []string{"mixture.unit"},
		Entries: []string{"mixture.unit"},
		Class:   millrace.KeyUnit,
		Then:    "as for weights, and every source starts exactly on its target",
	},
	{
		About:   []string{"a source added"},
		Entries: []string{"sources.NAME"},
		Class:   millrace.KeySource,
		Then:    "starts at ordinal 0, exactly on its target; the override covers its weight too",
	},
	{
		About:   []string{"a source removed"},
		Entries: []string{"sources.NAME"},
		Class:   millrace.KeySource,
		Then: "leaves the state; its deficit goes to the unfinished other sources in equal parts; its tokens stay " +
			"in the run's count. Refused while segments of it " +
			"wait to be packed (`carry`, `window`): keep it at weight 0 until they are delivered. The override " +
			"covers its weight too",
	},
	{
		About:   []string{"a source renamed"},
		Entries: []string{"sources.NAME"},
		Class:   millrace.KeySource,
		Then:    "one source removed and one added: give both names",
	},
	{
		About:   []string{"a source's files came or went"},
		Entries: []string{"sources.NAME.files=append", "sources.NAME.files=mask"},
		Class:   millrace.KeySource,
		Then: "no document is read twice or never: see " +
			"[files that come and go](#files-that-come-and-go)",
	},
	{
		About:   []string{"a source's files: their names, sizes or contents, or `seekable_copies`"},
		Entries: []string{"sources.NAME.files"},
		Class:   millrace.KeySource,
		Then: "continues at its ordinal, in the new order. The rest of a document that was cut is left out. Segments " +
			"of the source that wait to be packed (`carry`) are left out too. A source that had ended may continue",
	},
	{
		Keys: []string{"sources.*.format", "sources.*.text", "sources.*.tokens", "sources.*.mask",
			"sources.*.labels", "sources.*.starts",
			"sources.*.prompt", "sources.*.completion", "sources.*.chosen", "sources.*.rejected",
			"sources.*.messages", "sources.*.template", "sources.*.role",
			"sources.*.content", "sources.*.roles", "sources.*.tools", "sources.*.train_on", "sources.*.too_long",
			"sources.*.record", "sources.*.missing", "sources.*.fields[]", "sources.*.dtype", "sources.*.eos",
			"sources.*.split", "sources.*.config",
			"sources.*.filter", "sources.*.on_exhausted",
			"sources.*.max_epochs"},
		Entries: []string{"sources.NAME"},
		Class:   millrace.KeySource,
		Then:    "as for files",
	},
	{
		Keys:    []string{"version", "seed", "shuffle", "tokenizer", "limits.sample_bytes"},
		Entries: []string{"version", "seed", "shuffle", "tokenizer", "limits.sample_bytes"},
		Class:   millrace.KeyDocuments,
		Then: "as for the files of every source. From then on, ordinals name other documents: some documents of this " +
			"pass come twice and some not at all. " +
			"`shuffle` needs `sources` too, because files are read in another order, and `long_documents` if sources " +
			"of tokens were read in pieces",
	},
	{
		Keys:    []string{"long_documents", "sources.*.long_documents"},
		Entries: []string{"long_documents", "sources.NAME"},
		Class:   millrace.KeySource,
		Then: "as for files: from then on, an ordinal is a piece and no longer a document, or the reverse, or a " +
			"piece has another length. Give both names",
	},
	{
		Keys:    []string{"stop.epochs"},
		Entries: []string{"stop.epochs"},
		Class:   millrace.KeyEnd,
		Then: "sources that had ended may continue; those beyond the new end leave. `on_exhausted` may change " +
			"with it: then give `sources.NAME` too",
	},
	{
		Keys: []string{
			"sequence_length", "global_batch_size", "rampup_batch_size", "stages", "packing", "bucket_rows",
			"pad_multiple", "carry", "window", "last_step",
		},
		Entries: []string{
			"sequence_length", "global_batch_size", "rampup_batch_size", "stages", "packing", "bucket_rows",
			"pad_multiple", "carry", "window", "last_step",
		},
		Class: millrace.KeySteps,
		Then: "for later steps; a document that was cut continues at its offset. If the longest `sequence_length` of " +
			"all stages changes, pieces get another length: give `long_documents` and their sources too",
	},
}

// Classify returns the class of an entry of a run's identity. A name covers all entries below it.
func Classify(entry string) millrace.KeyClass {
	for i := range keyRules {
		for _, e := range keyRules[i].Entries {
			if e = strings.TrimSuffix(e, ".NAME"); decode.Within(entry, e) || decode.Within(e, entry) {
				return keyRules[i].Class
			}
		}
	}
	return millrace.KeySteps
}
