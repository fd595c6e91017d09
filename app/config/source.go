package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/tree"
	"millrace/app/config/value"
	"millrace/sources/find"
	"millrace/sources/format/registry"
	"millrace/text/chat"
)

// Mixture is the share of each source: weights or groups for the whole run, or a schedule.
type Mixture struct {
	// Unit is the unit of the weights. tokens: document tokens. samples: documents.
	Unit millrace.Unit `yaml:"unit" jsonschema:"default=tokens,enum=tokens,enum=samples" resume:"unit"`
	// Weights of every source, or a rule that derives them from the sources' sizes. Weights are relative and need not
	// add up to 1; 0 is allowed. Give this, groups or schedule.
	Weights Weights `yaml:"weights" resume:"weights"`
	// Groups of sources, by name. Each has a weight among the groups, and its members divide it. Give this, weights or
	// schedule.
	Groups Groups `yaml:"groups" resume:"weights"`
	// Schedule of weights that change during the run, in order. Give this, weights or groups.
	Schedule []Milestone `yaml:"schedule" resume:"weights"`
	// Floor is the least fraction of the mixture for every source with weight, at every step. A source's min_fraction
	// takes precedence.
	Floor value.Decimal `yaml:"floor" jsonschema:"maximum=1" resume:"weights"`
}

// Milestone is one point of a schedule. Its weights hold from its step or token on.
type Milestone struct {
	// FromStep is the step, from 0, at which the milestone begins. A schedule counts in steps or in tokens, not in
	// both.
	FromStep *uint64 `yaml:"from_step" jsonschema:"maximum=9007199254740991"`
	// FromTokens is the number of document tokens placed before the step at which the milestone begins.
	FromTokens *uint64 `yaml:"from_tokens" jsonschema:"maximum=9007199254740991"`
	// Weights of every source from here on. Give this or groups.
	Weights Weights `yaml:"weights"`
	// Groups of sources from here on, by name. Give this or weights.
	Groups Groups `yaml:"groups"`
	// Ramp is the way from the weights of the milestone before to these. none: at once. linear: in a straight line.
	// cosine: slowly at both ends, as (1 - cos(pi * way)) / 2.
	Ramp Ramp `yaml:"ramp" jsonschema:"default=none,enum=none,enum=linear,enum=cosine"`
	// OverSteps is the length of the ramp in steps.
	OverSteps uint64 `yaml:"over_steps" jsonschema:"minimum=1,maximum=9007199254740991"`
	// OverTokens is the length of the ramp in tokens.
	OverTokens uint64 `yaml:"over_tokens" jsonschema:"minimum=1,maximum=9007199254740991"`
}

// From returns the beginning of the milestone, and whether it counts tokens instead of steps.
func (k *Milestone) From() (at uint64, tokens bool) {
	if k.FromTokens != nil {
		return *k.FromTokens, true
	}
	if k.FromStep != nil {
		return *k.FromStep, false
	}
	return 0, false
}

// Over returns the length of the ramp in the unit of From, 0 without a ramp.
func (k *Milestone) Over() uint64 { return k.OverSteps + k.OverTokens }

// Ramp is the way from one set of weights to the next.
type Ramp string

// The ramps.
const (
	RampNone   Ramp = "none"
	RampLinear Ramp = "linear"
	RampCosine Ramp = "cosine"
)

// Milestones returns the schedule; plain weights are a schedule of one milestone at step 0.
func (m *Mixture) Milestones() []Milestone {
	if m.Schedule != nil {
		return m.Schedule
	}
	var zero uint64
	return []Milestone{{FromStep: &zero, Weights: m.Weights, Groups: m.Groups, Ramp: RampNone}}
}

// Sources are the sources sorted by name: the order in which plans number them.
type Sources []Source

// Names returns the sources' names in order.
func (s Sources) Names() []string {
	names := make([]string, len(s))
	for i := range s {
		names[i] = s[i].Name
	}
	return names
}

// HaveUntrained reports whether some tokens of the documents may be left out of the loss.
func (s Sources) HaveUntrained() bool {
	return slices.ContainsFunc(s, func(x Source) bool { return x.HasUntrained() })
}

// HasUntrained reports whether some tokens of the source's documents may be left out of the loss.
func (s *Source) HasUntrained() bool {
	return s.Messages != "" || s.Prompt != "" || s.HasPairs() || s.Mask+s.Labels != "" || s.Starts != ""
}

// HaveFields reports whether fields of some records go with their documents to the trainer.
func (s Sources) HaveFields() bool {
	return slices.ContainsFunc(s, func(x Source) bool { return len(x.Fields) > 0 })
}

// Source is one named data set.
type Source struct {
	// Name of the source: its key in the file.
	Name string `yaml:"-"`
	// Format of the files, as docs/formats.md describes it. It may be left out if the files show it.
	Format registry.Name `yaml:"format" resume:"source"`
	// Path of the files: a glob, a brace list, a directory, a prefix (megatron), or a list of these; relative to this
	// file. It may be a URL: s3://, gs://, az://, http://, https:// or hf://datasets/ORG/NAME@REVISION.
	Path Patterns `yaml:"path" jsonschema:"required" resume:"files"`
	// Root is the directory that sample ids are relative to. Left out: the part of path before its first wildcard.
	Root string `yaml:"root" resume:"files"`
	// Config is the configuration of a data set whose directory is the path, as its README.md names it. Left out: the
	// default one, or the only one.
	Config string `yaml:"config" resume:"source"`
	// Split is the split of a data set whose directory is the path. Left out: the only one, and train of an Energon
	// dataset.
	Split string `yaml:"split" resume:"source"`
	// Version is the version of the Delta table whose directory is the path. Left out: the newest one.
	Version *uint64 `yaml:"version" jsonschema:"maximum=9007199254740991" resume:"files"`
	// Storage is the place of the store, if the path is a URL. Left out: the provider's own service, with the
	// credentials of the environment.
	Storage *Storage `yaml:"storage" resume:"files"`
	// Text is the field or column that holds the text, nested as meta.body. Or it is a template of several, with the
	// fields in braces, as "{title}\n\n{body}"; `{{` and `}}` stand for braces. Sources of tokens have none.
	Text string `yaml:"text" jsonschema:"default=text" resume:"source"`
	// DType is the type of the ids in a file of plain ids that has no header, or in a column `tokens` of bytes (mds).
	DType string `yaml:"dtype" jsonschema:"enum=uint16,enum=uint32,enum=int32,enum=int64" resume:"source"`
	// EOS is the id that ends documents, for files of plain ids (olmo, datatrove, tokens). Left out: the file beside
	// the ids says where documents end.
	EOS *uint64 `yaml:"eos" jsonschema:"maximum=2147483647" resume:"source"`
	// Tokens is the field or column with the ids of a document's tokens, in place of text. They are taken as they are,
	// and the source needs no tokenizer.
	Tokens string `yaml:"tokens" resume:"source"`
	// Mask is the field or column with a number for each of these tokens: 1, or 0 for a token that is not trained on.
	// Left out: all are trained on.
	Mask string `yaml:"mask" resume:"source"`
	// Labels is the field or column with the label of each of these tokens, as Hugging Face data sets have it: the
	// token itself, or -100 for a token that is not trained on. It stands in place of mask.
	Labels string `yaml:"labels" resume:"source"`
	// Starts is the field or column with the places among these tokens at which the sequences of a packed document
	// begin, as seq_start_id of Megatron-Bridge. Each is a segment of a batch. Left out: a document is one sequence.
	Starts string `yaml:"starts" resume:"source"`
	// Prompt is the field with the prompt of a pair, in place of text. The loss is on the completion alone. With
	// completion it may be a template of several fields, as text. With template, both have messages or texts.
	Prompt string `yaml:"prompt" resume:"source"`
	// Completion is the field with the completion of a pair, or a template of several fields.
	Completion string `yaml:"completion" resume:"source"`
	// Chosen is the field with the chosen answer of a preference pair, in place of text. With a template it has a text,
	// a message or a list of messages, else a text. prompt names their prompt; without it, the prompt is the beginning
	// that both answers share.
	Chosen string `yaml:"chosen" resume:"source"`
	// Rejected is the field with the rejected answer of a preference pair.
	Rejected string `yaml:"rejected" resume:"source"`
	// Messages is the field with the list of a conversation's messages, in place of text.
	Messages string `yaml:"messages" resume:"source"`
	// Template renders conversations. tokenizer: the chat template beside the tokenizer's file. chatml: ChatML. Or a
	// mapping with the path of a Jinja file, the name of one of the model's templates, and values of its variables.
	Template Template `yaml:"template" resume:"source"`
	// Role is the key of a message's role.
	Role string `yaml:"role" jsonschema:"default=role" resume:"source"`
	// Content is the key of a message's content.
	Content string `yaml:"content" jsonschema:"default=content" resume:"source"`
	// Roles are the template's roles by the roles of the records, as {human: user, gpt: assistant}.
	Roles Roles `yaml:"roles" resume:"source"`
	// Tools is the field with the tools of a conversation. Left out: there are none.
	Tools string `yaml:"tools" resume:"source"`
	// TrainOn is the part of a conversation that is trained on. assistant: the assistant's turns. last_assistant: the
	// last one. all: every token. Left out with prompt and completion: all of the completion.
	TrainOn chat.Train `yaml:"train_on" jsonschema:"default=assistant" resume:"source"`
	// TooLong is the treatment of a conversation or a pair longer than sequence_length. split: it is cut into pieces,
	// as a text is. truncate: its beginning is kept. drop: it is left out. Preference pairs are never split: they are
	// truncated if the key is left out.
	TooLong string `yaml:"too_long" jsonschema:"default=split,enum=split,enum=truncate,enum=drop" resume:"source"`
	// Record says which part of a file is a record, for formats without fields of their own. arrayrecord and tfrecord:
	// text, or example for a tf.train.Example, whose features are fields; left out: example for tfrecord. text: file,
	// line or paragraph; left out: file.
	Record string `yaml:"record" jsonschema:"enum=text,enum=example,enum=file,enum=line,enum=paragraph" resume:"source"`
	// Truncated is accept if tar archives without an end mark are read. Left out: such an archive is an error, because
	// it may be cut off.
	Truncated string `yaml:"truncated" jsonschema:"enum=accept" resume:"none"`
	// Missing says where a record goes whose document needs a field that is null or absent. quarantine: it counts
	// against the quarantine budget. skip: it is left out, and so is a record with an empty field.
	Missing Missing `yaml:"missing" jsonschema:"default=quarantine,enum=quarantine,enum=skip" resume:"source"`
	// Fields are the fields of a record that go with its documents to the trainer, as batch.segments[i].fields. They
	// take 4096 bytes a record at most, as JSON; a record with more is quarantined.
	Fields []string `yaml:"fields" resume:"source"`
	// Unused are the fields that are left out on purpose, although they may say how documents are to be trained on, as
	// `label` of KTO data. Left out: such a field is an error unless another key names it.
	Unused []string `yaml:"unused" resume:"none"`
	// Filter is an expression over the fields of a record, and over the tokens and bytes of its document. A document is
	// left out if the expression is false. Example: `quality > 0.5 && language == "en"`.
	Filter string `yaml:"filter" resume:"source"`
	// OnExhausted is the reaction to the end of the source's last pass. repeat: it starts again. renormalize:
	// it leaves and the others share its weight. stop: the run ends. error: the run fails. Default: repeat; under
	// stop.epochs or with max_epochs, renormalize.
	OnExhausted millrace.OnExhausted `yaml:"on_exhausted" resume:"source"`
	// LongDocuments is the order of the pieces of this source's long documents. Left out: `long_documents` of the file.
	LongDocuments LongDocuments `yaml:"long_documents" jsonschema:"enum=consecutive,enum=shuffle" resume:"pieces"`
	// MaxEpochs is the number of passes over the source; a source that repeats leaves after so many. Left out: without
	// bound, or stop.epochs.
	MaxEpochs uint32 `yaml:"max_epochs" jsonschema:"minimum=1,maximum=1000000" resume:"source"`
	// MaxFraction is the largest fraction of the mixture for the source, also when other sources have left. The others
	// divide the rest. Left out: no bound.
	MaxFraction value.Decimal `yaml:"max_fraction" jsonschema:"maximum=1" resume:"bounds"`
	// MinFraction is the least fraction of the mixture for the source while it has weight. Left out: mixture.floor.
	MinFraction value.Decimal `yaml:"min_fraction" jsonschema:"maximum=1" resume:"bounds"`
}

// Storage is the place of a store of files. It never holds credentials: those come from the environment.
type Storage struct {
	// Endpoint is the URL of the service, as https://minio.example:9000. Left out: the provider's own.
	Endpoint string `yaml:"endpoint"`
	// Region of the buckets, for s3. Left out: as AWS_REGION or the profile says.
	Region string `yaml:"region"`
	// Anonymous reads without credentials.
	Anonymous bool `yaml:"anonymous" jsonschema:"default=false"`
}

// IsRemote reports whether a path of the source is a URL.
func (s *Source) IsRemote() bool { return slices.ContainsFunc(s.Path, find.IsURL) }

// HoldsText reports whether the source's documents are made of text, which needs a tokenizer.
func (s *Source) HoldsText() bool { return s.Format.HoldsText() && s.Tokens == "" }

// HasPairs reports whether the documents are preference pairs.
func (s *Source) HasPairs() bool { return s.Chosen != "" }

// Missing is the treatment of records without a field that their document needs.
type Missing string

// SkipMissing leaves such records out. The other value, quarantine, counts them as damage.
const SkipMissing Missing = "skip"

// Roles are the template's roles by the roles of records.
type Roles map[string]string

// DecodeNode reads roles by roles.
func (r *Roles) DecodeNode(d *decode.Decoder, path string, n *tree.Node) {
	if n.Kind != tree.Mapping || len(n.Entries) == 0 {
		d.WrongType(path, n, "a mapping from roles to roles", d.MappingCure(path))
		return
	}
	*r = Roles{}
	for _, e := range n.Entries {
		at := decode.Join(path, e.Key.Text)
		d.Places[at] = e
		if e.Value.Kind != tree.Scalar || e.Value.Text == "" {
			d.WrongType(at, e.Value, "a role", "write `user`, `assistant`, `system` or `tool`")
			continue
		}
		(*r)[e.Key.Text] = e.Value.Text
	}
}

// LongDocuments is the order of the pieces of documents that are longer than a piece.
type LongDocuments string

// ShuffledPieces permutes the pieces of all documents together. The other value, consecutive, keeps a document's pieces
// in a row.
const ShuffledPieces LongDocuments = "shuffle"

// Patterns are path patterns: one string or a list of them in the file.
type Patterns []string

// DecodeNode reads one pattern or a list of them.
func (p *Patterns) DecodeNode(d *decode.Decoder, path string, n *tree.Node) {
	items := n.Items
	if n.Kind == tree.Scalar {
		items = []*tree.Node{n}
	}
	if n.Kind == tree.Mapping {
		d.WrongType(path, n, "a path or a list of paths", "write one pattern, or `[a/*.jsonl, b/*.jsonl]`")
		return
	}
	if len(items) == 0 {
		d.Fail(path, n, decode.Name(path)+" is an empty list", "write at least one file, directory or pattern")
	}
	for i, item := range items {
		at := path
		if n.Kind == tree.Sequence {
			at = fmt.Sprintf("%s[%d]", path, i)
			d.Places[at] = tree.Entry{Key: item, Value: item}
		}
		switch {
		case item.Kind != tree.Scalar:
			d.WrongType(at, item, "a path", "write one pattern an entry")
		case item.Class == tree.Number || item.Class == tree.Boolean || item.Class == tree.Null:
			d.Fail(
				at, item, decode.Name(at)+" must be a path, not "+tree.Quote(item.Text),
				"put the path in quotes",
			)
		case item.Text == "":
			d.Fail(at, item, decode.Name(at)+" is empty", "write a file, a directory or a pattern")
		default:
			*p = append(*p, item.Text)
		}
	}
}

// maxSources and maxName bound the sizes of plans and states.
const (
	maxSources = 16384
	maxName    = 128 // bytes
)

// DecodeNode reads sources by name.
func (s *Sources) DecodeNode(d *decode.Decoder, path string, n *tree.Node) {
	if n.Kind != tree.Mapping {
		d.WrongType(path, n, "a mapping from names to sources", "write it as `web: {path: web/*.jsonl}`")
		return
	}
	if len(n.Entries) == 0 {
		d.Fail(path, n, "there is no source", "write at least one, as `web: {path: web/*.jsonl}`")
	}
	if len(n.Entries) > maxSources {
		d.Fail(
			path, n.Entries[maxSources].Key, "too many sources",
			fmt.Sprintf("at most %d; several files can be one source", maxSources),
		)
	}
	*s = make(Sources, len(n.Entries))
	for i, e := range n.Entries {
		at := decode.Join(path, e.Key.Text)
		d.Places[at] = e
		if why := badName(e.Key.Text); why != "" {
			d.Fail(at, e.Key, "the name of this source "+why, "use letters, digits, - and _")
		}
		(*s)[i].Name = e.Key.Text
		decodeSource(d, at, e.Value, &(*s)[i])
	}
	slices.SortFunc(*s, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
}

// isUnfit reports whether a character would break digests, file names, metrics or logs that hold a name.
func isUnfit(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune("`\"'\\#,=[]{}", r) }

// badName returns the mistake in the name of a source or group, or nothing.
func badName(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > maxName:
		return fmt.Sprintf("is longer than %d bytes", maxName)
	case strings.ContainsFunc(s, isUnfit):
		return "has a character that names cannot have: " + tree.Quote(s)
	case strings.TrimSpace(s) != s:
		return "begins or ends with a space"
	}
	return ""
}

// decodeSource reads one source. The error for a bare path shows the mapping around it.
func decodeSource(d *decode.Decoder, path string, n *tree.Node, s *Source) {
	if n.Kind == tree.Scalar && n.Class != tree.Null && n.Text != "" {
		d.WrongType(path, n, "a mapping", fmt.Sprintf("write `{path: %s}`", n.Text))
		return
	}
	d.Decode(path, n, reflect.ValueOf(s).Elem(), decode.Rules{})
}
