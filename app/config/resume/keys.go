// Package resume has the effect of each change of the mixture file on a run that resumes from a saved state. The tables
// of docs/resume.md are generated from its rules.
package resume

import (
	"slices"
	"strings"

	"millrace"
	"millrace/app/config/decode"
)

// Rule is the effect of a change of some keys.
type Rule struct {
	About   []string          // changes that no key names
	Name    string            // in the tag `resume` of the keys; a key without one has that of the mapping around it
	Entries []string          // identity entries that a change of the keys alters; none: the keys may differ freely
	Class   millrace.KeyClass // of the entries
	Then    string            // Markdown: the effect of a change
}

// Rules returns the rules of all keys. The struct tags of package config name the rule of each key.
func Rules() []Rule { return keyRules }

// HasEntries reports whether the keys with a rule of that name have entries in the identity.
func HasEntries(rule string) bool {
	return rule != "" && slices.ContainsFunc(keyRules, func(r Rule) bool { return r.Name == rule && r.Entries != nil })
}

var keyRules = []Rule{
	{
		Name:  "place",
		About: []string{"ranks"},
		Then:  "the run places segments anew from the next step on; content is unchanged",
	},
	{
		Name:  "files",
		About: []string{"the place of the files"},
		Then: "no effect on content if the files below `root` keep their names, sizes and contents; otherwise see " +
			"`sources.NAME.files`",
	},
	{
		Name: "none",
		Then: "no effect on content",
	},
	{
		Name: "copies",
		Then: "no effect on sources of which every file can be read at random. For the others, see " +
			"`sources.NAME.files`: their order is global with copies, and blocks without them",
	},
	{
		Name: "streams",
		Then: "no effect on other streams: streams may come and go. A stream of the same name continues in its own " +
			"directory, and its own keys follow the rules of this page",
	},
	{
		Name: "stop",
		Then: "the run ends at that step or token, or at once if it is past it. With the rule `unimax` and no " +
			"budget, `stop.tokens` also decides weights",
	},
	{
		Name: "budget",
		Then: "a new run directory counts bad records from its first step on",
	},
	{
		Name: "adaptive",
		Then: "weights in force stay until the file's policy sets new ones",
	},
	{
		Name: "refit",
		Then: "costs in force stay until the run journals new ones",
	},
	{
		About: []string{"a resume at a later step of the same schedule or stages"},
		Then:  "no effect: schedule and stages apply as written",
	},
	{
		Name:    "weights",
		About:   []string{"the sizes of sources, if weights are derived from them"},
		Entries: []string{"mixture.weights", "mixture.groups", "mixture.schedule", "mixture.floor", "mixture.sizes"},
		Class:   millrace.KeyMixture,
		Then:    "new weights apply from the next step on; the run makes up each source's deficit up to that step",
	},
	{
		Name:    "bounds",
		Entries: []string{"sources.NAME"},
		Class:   millrace.KeySource,
		Then:    "as for weights",
	},
	{
		Name:    "unit",
		Entries: []string{"mixture.unit"},
		Class:   millrace.KeyUnit,
		Then:    "as for weights; also, every source starts exactly on its target",
	},
	{
		About:   []string{"a source added"},
		Entries: []string{"sources.NAME"},
		Class:   millrace.KeySource,
		Then:    "the source starts at ordinal 0, exactly on its target; the override covers its weight too",
	},
	{
		About:   []string{"a source removed"},
		Entries: []string{"sources.NAME"},
		Class:   millrace.KeySource,
		Then: "the source leaves the state. Its deficit goes to the unfinished other sources in equal parts. Its " +
			"tokens stay in the run's count. The run refuses the change while segments of the source wait to be " +
			"packed (`carry`, `window`): keep it at weight 0 until they are delivered. The override covers its " +
			"weight too",
	},
	{
		About:   []string{"a source renamed"},
		Entries: []string{"sources.NAME"},
		Class:   millrace.KeySource,
		Then:    "as one source removed and one added: give both names",
	},
	{
		About:   []string{"a source's files came or went"},
		Entries: []string{"sources.NAME.files=append", "sources.NAME.files=mask"},
		Class:   millrace.KeySource,
		Then: "the source reads no document twice or never: see " +
			"[files that come and go](#files-that-come-and-go)",
	},
	{
		About:   []string{"a source's files: their names, sizes or contents, or `seekable_copies`"},
		Entries: []string{"sources.NAME.files"},
		Class:   millrace.KeySource,
		Then: "the source continues at its ordinal, in the new order. The run leaves out the rest of a document that " +
			"was cut, and segments of the source that wait to be packed (`carry`). A source that had ended may " +
			"continue",
	},
	{
		Name:    "source",
		Entries: []string{"sources.NAME"},
		Class:   millrace.KeySource,
		Then:    "as for files",
	},
	{
		Name:    "seed",
		Entries: []string{"version", "seed", "shuffle", "tokenizer", "limits.sample_bytes"},
		Class:   millrace.KeyDocuments,
		Then: "as for the files of every source. Ordinals then name other documents: the run reads some documents of " +
			"this pass twice and some never. `shuffle` needs `sources` too, because it changes the order of files, " +
			"and `long_documents` if the run read sources of tokens in pieces",
	},
	{
		Name:    "pieces",
		Entries: []string{"long_documents", "sources.NAME"},
		Class:   millrace.KeySource,
		Then: "as for files. An ordinal becomes a piece in place of a document, or the reverse, or a piece gets " +
			"another length. Give both names",
	},
	{
		Name:    "end",
		Entries: []string{"stop.epochs"},
		Class:   millrace.KeyEnd,
		Then: "sources that had ended may continue; those beyond the new end leave. If `on_exhausted` changes with " +
			"it, give `sources.NAME` too",
	},
	{
		Name: "steps",
		Entries: []string{
			"sequence_length", "global_batch_size", "rampup_batch_size", "stages", "packing", "bucket_rows",
			"pad_multiple", "carry", "window", "last_step",
		},
		Class: millrace.KeySteps,
		Then: "later steps have the new value; a document that was cut continues at its offset. If the longest " +
			"`sequence_length` of all stages changes, pieces get another length: give `long_documents` and the " +
			"sources with pieces too",
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
