// Package config reads the mixture file. It turns one YAML text into a validated [Config] with every default filled in.
// Its errors name the place (file:line:column), show the line and give the cure.
//
// The Go types of this package are the only description of the file. Their yaml tags name the keys, their jsonschema
// tags hold defaults, bounds and alternatives, and their comments are the documentation. The decoder obeys the tags,
// and mixture.schema.json is generated from tags and comments.
package config

import (
	"fmt"
	"reflect"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/tree"
	"millrace/app/config/value"
	"millrace/internal/bucket"
)

// Config is one mixture file: the sources of a training run, their proportions, and the shape of the batches.
type Config struct {
	// Version of this file's format.
	Version int `yaml:"version" jsonschema:"required,minimum=1,maximum=1" resume:"seed"`
	// Seed of every random order. The same seed, files and settings give the same batches, byte for byte.
	Seed uint64 `yaml:"seed" jsonschema:"default=0,maximum=18446744073709551615" resume:"seed"`
	// Tokenizer of the sources that hold text. Sources of tokens do not use it. Needed if a source holds text.
	Tokenizer *Tokenizer `yaml:"tokenizer" resume:"seed"`
	// SequenceLength is the number of tokens in one sequence (a row of a batch).
	SequenceLength uint32 `yaml:"sequence_length" jsonschema:"required,minimum=1,maximum=16777216" resume:"steps"`
	// GlobalBatchSize is the number of sequences in one optimizer step, over all ranks.
	GlobalBatchSize uint32 `yaml:"global_batch_size" jsonschema:"required,minimum=1,maximum=1048576" resume:"steps"`
	// MicroBatchSize is the number of sequences in one microbatch of one data-parallel rank. A step has
	// global_batch_size / (micro_batch_size * dp) microbatches on each rank.
	MicroBatchSize uint32 `yaml:"micro_batch_size" jsonschema:"default=1,minimum=1,maximum=1048576" resume:"place"`
	// Packing is the way in which documents become sequences. best_fit: several documents share a sequence, and a
	// document that fits into one is not cut. pad: each sequence has one document, or one piece of a long one. concat:
	// one document follows the other, cut at the end of a sequence. bucketed: like pad, but a step has documents of
	// similar length. Its rows are as short as these allow, down to a 128th of sequence_length.
	Packing millrace.Packing `yaml:"packing" jsonschema:"default=best_fit" resume:"steps"`
	// BucketRows is the number of rows of a step with packing bucketed. tokens: each sequence of the batch becomes as
	// many rows as it holds, so that steps have room for about equally many tokens. constant: every step has
	// global_batch_size rows, and their length is sequence_length, halved as often as the documents allow. Left out:
	// tokens.
	BucketRows bucket.Rule `yaml:"bucket_rows" jsonschema:"enum=tokens,enum=constant" resume:"steps"`
	// RampupBatchSize is the growth of the batch to global_batch_size at the beginning of the run.
	RampupBatchSize *Rampup `yaml:"rampup_batch_size" resume:"steps"`
	// Stages are later parts of the run, in order, with longer sequences, larger batches or another packing.
	Stages []Stage `yaml:"stages" resume:"steps"`
	// PadMultiple rounds the place of every document up to a multiple of this many tokens. Context parallelism and some
	// kernels need that. It must divide every sequence_length.
	PadMultiple uint32 `yaml:"pad_multiple" jsonschema:"default=1,minimum=1,maximum=16777216" resume:"steps"`
	// Carry is the number of documents, or pieces of long ones, that may wait for a later step. auto: as many as fill
	// the sequences best. With packing best_fit, a document waits until it fills a sequence, at most 24 steps, and less
	// than 3 in the mean. With bucketed and `bucket_rows: constant`, it waits for a step of its length. With
	// `bucket_rows: tokens`, none waits beyond its window; a number is refused unless documents wait in another stage.
	Carry value.Carry `yaml:"carry" jsonschema:"default=auto" resume:"steps"`
	// Window is the number of steps that are drawn and packed together. Long documents then come into the same steps,
	// so that ranks wait less for each other. A document moves by at most window-1 steps. Left out: 1, but with packing
	// bucketed and `bucket_rows: tokens` 64, or as many from 8 on as hold 67 million tokens.
	Window uint32 `yaml:"window" jsonschema:"minimum=1,maximum=64" resume:"steps"`
	// CapSlack is the factor by which a varlen microbatch may exceed micro_batch_size * sequence_length tokens. More
	// slack balances compute better. At least 1; more than 1 needs layout varlen.
	CapSlack value.Decimal `yaml:"cap_slack" jsonschema:"default=1,minimum=1" resume:"place"`
	// Layout is the shape of a microbatch. packed: [micro_batch_size, sequence_length]. varlen: 1-D tensors with
	// cu_seqlens (THD).
	Layout millrace.Layout `yaml:"layout" jsonschema:"default=packed,enum=packed,enum=varlen" resume:"place"`
	// Balance is the part of the trainer across which compute is evened out, because ranks wait for each other there.
	// fsdp: every microbatch of every rank. dp: the sums of the ranks. pp: the microbatches of each rank. none:
	// sequences go to ranks in turn.
	Balance millrace.Balance `yaml:"balance" jsonschema:"default=fsdp" resume:"place"`
	// Distribute limits the ranks over which the compute of a step is evened out. Left out: over all ranks.
	Distribute *Distribute `yaml:"distribute" resume:"place"`
	// SplitDocuments spreads long documents over several data-parallel ranks. Each rank gets slices, and the trainer's
	// attention must reach over these ranks. Left out: every document is whole on one rank. Needs layout varlen.
	SplitDocuments *SplitDocuments `yaml:"split_documents" resume:"place"`
	// Shuffle is the order within each source. global: any document anywhere; the files are counted first. blocks:
	// starts at once; files in random order, documents shuffled in blocks. none: the order of the files.
	Shuffle millrace.Shuffle `yaml:"shuffle" jsonschema:"default=global" resume:"seed"`
	// SeekableCopies is for files that can only be streamed, such as .gz and most .zst files. true: with `shuffle:
	// global`, index_dir gets a copy of each that can be read at random. The copies take about the bytes of the files.
	// false: a source with such a file falls back from global to blocks, with a warning. Left out: true if the file
	// says `shuffle: global`, else false.
	SeekableCopies bool `yaml:"seekable_copies" resume:"copies"`
	// LongDocuments is the order of the pieces of long documents. consecutive: they come one after the other, in
	// neighbouring steps. shuffle: pieces of the longest sequence_length are shuffled like documents; needs `shuffle:
	// global` and known lengths. Left out: shuffle for sources of tokens with `shuffle: global`, else consecutive.
	LongDocuments LongDocuments `yaml:"long_documents" jsonschema:"enum=consecutive,enum=shuffle" resume:"pieces"`
	// TokenDtype is the element type of tokens, labels and position_ids.
	TokenDtype millrace.TokenDtype `yaml:"token_dtype" jsonschema:"default=int64,enum=int64,enum=int32" resume:"place"`
	// Model is the shape of the trained transformer. The compute of a sequence is estimated from it. Give this or cost.
	Model *Model `yaml:"model" resume:"place"`
	// Cost is the compute of a sequence by measured coefficients. Give this or model.
	Cost *Cost `yaml:"cost" resume:"place"`
	// Parallelism is the split of one model over ranks. The rest is data parallelism: dp = ranks / (tp * cp * pp).
	Parallelism Parallelism `yaml:"parallelism" resume:"place"`
	// CPLocal is the number of tokens up to which a document stays whole on one context-parallel rank. These documents
	// are distributed so that the ranks have equal compute; longer ones are sliced. 0: all are sliced. More than 0
	// needs layout varlen.
	CPLocal uint32 `yaml:"cp_local" jsonschema:"default=0,maximum=16777216" resume:"place"`
	// Broadcast names the axes along which the trainer itself passes batches on. tp: only the first tensor-parallel
	// rank gets tensors. pp: only the first and the last pipeline stage get tensors. The other ranks get shapes. Left
	// out: every rank gets its whole batch.
	Broadcast []Axis `yaml:"broadcast" jsonschema:"enum=tp,enum=pp" resume:"place"`
	// MiddleStages is the content of the batches of pipeline stages between the first and the last one. whole: all
	// tensors. positions: all but tokens, labels and loss_mask. Hosts with such ranks alone fetch no tokens.
	MiddleStages string `yaml:"middle_stages" jsonschema:"default=whole,enum=whole,enum=positions" resume:"place"`
	// SharedMemory names the axes along which the ranks of a host that need the same bytes map one copy of each batch.
	// Trainers can only read it: a trainer that writes to a tensor is killed by SIGSEGV. Left out: every rank maps its
	// own copy.
	SharedMemory []Axis `yaml:"shared_memory" jsonschema:"enum=tp,enum=pp" resume:"none"`
	// Stop is the end of the run. Left out: the run goes on until the trainer stops.
	Stop *Stop `yaml:"stop"`
	// LastStep is the treatment of a last step that is not full. pad: it is filled with padding. short: microbatches
	// that are padding on every rank are left out. drop: the step is not delivered.
	LastStep millrace.LastStep `yaml:"last_step" jsonschema:"default=pad,enum=pad,enum=short,enum=drop" resume:"steps"`
	// Mixture is the share of each source.
	Mixture Mixture `yaml:"mixture" jsonschema:"required"`
	// Sources are the named data sets. The names appear in weights, logs, metrics and in every segment of a batch.
	Sources Sources `yaml:"sources" jsonschema:"required"`
	// Limits bound memory and the size of a document.
	Limits Limits `yaml:"limits"`
	// Quarantine is the tolerance for records that cannot be decoded.
	Quarantine Quarantine `yaml:"quarantine"`
	// IndexDir is the directory of the indexes and lengths of the sources, relative to this file. Several runs may
	// share it.
	IndexDir string `yaml:"index_dir" jsonschema:"default=.millrace/" resume:"none"`
	// Cache keeps documents as tokens, and parts of remote files, on a local disk. No text is then tokenised twice, and
	// no byte is fetched twice. It changes no batch. Left out: nothing is kept.
	Cache *Cache `yaml:"cache" resume:"none"`
	// Verify is the way in which changed files are noticed, during a run and since they were indexed. tokens: the
	// inode, size and times of a file are watched, and every document is compared with the checksum of its first
	// reading. files: inode, size and times are watched. off: nothing is checked.
	Verify string `yaml:"verify" jsonschema:"default=tokens,enum=tokens,enum=files,enum=off" resume:"none"`
	// Loaders is the number of loader processes: auto, a number, or a range as 1-8 in which the run chooses the number.
	Loaders value.Loaders `yaml:"loaders" jsonschema:"default=auto" resume:"none"`
	// Adaptive derives weights from the losses that trainers report with report_losses. New weights are journaled
	// before they hold, so a replay uses them and not the reports. It may differ at a resume. Goes with mixture.weights
	// or mixture.groups.
	Adaptive *Adaptive `yaml:"adaptive" resume:"adaptive"`
	// Refit fits the coefficients of cost to the times that trainers report with report_time. New coefficients are
	// journaled and change the placement of later steps, not their content.
	Refit *Refit `yaml:"refit" resume:"refit"`
	// Reliability is the number of processes that stand by for lost ones.
	Reliability Reliability `yaml:"reliability" resume:"none"`
	// Streams are further streams of batches by name, such as evaluation sets, beside the stream `train` that the other
	// keys describe. Each has its own position and its own keys; a key that it lacks is the run's. It has `stages`,
	// `rampup_batch_size`, `adaptive` and `refit` only if it says so. `limits`, `parallelism`, `loaders`,
	// `reliability`, `index_dir` and `cache` are the run's. A further stream changes no byte of another one.
	Streams Streams `yaml:"streams" json:"-" resume:"streams"`
	// Ranks is a key of a further stream: its batches are for the first so many ranks of the run, such as 1 for an
	// evaluation on rank 0 alone. All ranks by default. The others need not connect to the stream.
	Ranks uint32 `yaml:"ranks" jsonschema:"minimum=1"`

	// IsEarlier selects the defaults of earlier planners for keys that the file does not have; see Earlier.
	IsEarlier bool `yaml:"-"`
	// File is the name of the mixture file as the user gave it, for messages.
	File string `yaml:"-"`
	// Base is the absolute directory of relative paths.
	Base string `yaml:"-"`

	doc *tree.Document // the places of the keys; nil after UnmarshalResolved
}

// Tokenizer names a built-in vocabulary or a vocabulary file: exactly one of name and path.
type Tokenizer struct {
	// Name of a built-in vocabulary.
	Name string `yaml:"name" jsonschema:"enum=gpt2,enum=r50k_base,enum=cl100k_base,enum=o200k_base"`
	// Path of a model's directory or its tokenizer.json, or of a rank file, such as qwen.tiktoken or Llama 3's
	// tokenizer.model, relative to this file. Its content decides its format.
	Path string `yaml:"path"`
	// Pattern divides text into pieces before merging: r50k, p50k, cl100k, o200k, llama3, qwen2, or the text of one of
	// these regular expressions. Needed for a rank file with unknown content.
	Pattern string `yaml:"pattern"`
	// Specials are all special tokens with their ids. They replace the known ones of the vocabulary.
	Specials Specials `yaml:"specials"`
	// BOS is the special token that begins a document. Needed for add_bos if the vocabulary's own is unknown.
	BOS string `yaml:"bos"`
	// EOS is the special token that ends a document. Needed for add_eos if the vocabulary's own is unknown.
	EOS string `yaml:"eos"`
	// AddBOS puts bos before each document.
	AddBOS bool `yaml:"add_bos" jsonschema:"default=false"`
	// AddEOS puts eos after each document.
	AddEOS bool `yaml:"add_eos" jsonschema:"default=true"`
}

// Parallelism is the number of ranks that share one copy of the model, by axis. Ranks are counted along tp first, then
// cp, dp and pp.
type Parallelism struct {
	// TP is tensor parallelism: these ranks get the same batches.
	TP uint32 `yaml:"tp" jsonschema:"default=1,minimum=1,maximum=65535"`
	// CP is context parallelism. Each of these ranks gets two of 2 * cp equal chunks of every document, so that causal
	// attention costs all ranks the same. pad_multiple must be a multiple of 2 * cp.
	CP uint32 `yaml:"cp" jsonschema:"default=1,minimum=1,maximum=65535"`
	// PP is pipeline parallelism: these ranks get the same batches.
	PP uint32 `yaml:"pp" jsonschema:"default=1,minimum=1,maximum=65535"`
}

// Axis is one of the axes along which a trainer splits its ranks.
type Axis string

// The axes along which ranks need the same bytes.
const (
	AxisTP Axis = "tp"
	AxisPP Axis = "pp"
)

// Positions is the value of Config.MiddleStages with which the stages between the first and the last get no tokens.
const Positions = "positions"

// Stop ends a run: exactly one of its keys.
type Stop struct {
	// Epochs is the number of passes over every source.
	Epochs uint32 `yaml:"epochs" jsonschema:"minimum=1,maximum=1000000" resume:"end"`
	// Steps is the number of optimizer steps.
	Steps uint64 `yaml:"steps" jsonschema:"minimum=1,maximum=9007199254740991" resume:"stop"`
	// Tokens is the number of document tokens, without padding. The run ends with the first complete step that
	// reaches it.
	Tokens uint64 `yaml:"tokens" jsonschema:"minimum=1,maximum=9007199254740991" resume:"stop"`
}

// Limits bound the memory of the processes of a run. A size is a number of bytes or has a unit: 512MiB, 1GB.
type Limits struct {
	// LoaderMemory is the limit of decoded documents in all loaders and shadows together, at least 64MiB and twice
	// sample_bytes.
	LoaderMemory value.Bytes `yaml:"loader_memory" jsonschema:"default=512MiB" resume:"none"`
	// SidecarMemory is the limit of finished batches in the sidecar, for all ranks of a host, at least 64MiB.
	SidecarMemory value.Bytes `yaml:"sidecar_memory" jsonschema:"default=512MiB" resume:"none"`
	// SampleBytes is the size of the largest document; a larger one is quarantined. It decides content, so a run keeps
	// it.
	SampleBytes value.Bytes `yaml:"sample_bytes" jsonschema:"default=64MiB" resume:"seed"`
	// OpenFiles is the limit of data files that a process has open at once, over all sources. 0: as many as the
	// process's own limit (ulimit -n) allows, less 256 or half of it, and at most 4096.
	OpenFiles uint32 `yaml:"open_files" jsonschema:"default=0,maximum=1048576" resume:"none"`
	// RunwaySeconds is the training time that is planned ahead of the slowest rank, at the pace of the last steps. It
	// bounds the time until a change by `millrace mix` holds. At any pace at least 8 steps and at most 1,000 are
	// planned ahead, and fewer if their tokens exceed a quarter of loader_memory.
	RunwaySeconds uint32 `yaml:"runway_seconds" jsonschema:"default=60,maximum=86400" resume:"none"`
}

// Cache is the cache of a host on a local disk: of tokens, of parts of remote files, or of both. Several runs may share
// it.
type Cache struct {
	// Tokens is the limit of the documents kept as tokens, at least 1MiB. A token takes 2 bytes, or 4 if its document
	// has an id above 65535. Entries of shards that no run uses are removed first. Left out: none are kept.
	Tokens value.Bytes `yaml:"tokens"`
	// Files is the limit of the kept parts of remote files, at least 64MiB. Parts that no run uses are removed first.
	// Left out: none are kept.
	Files value.Bytes `yaml:"files"`
	// Dir is a directory on a local disk, relative to this file.
	Dir string `yaml:"dir" jsonschema:"required"`
}

// Quarantine is the tolerance for records that cannot be decoded.
type Quarantine struct {
	// Budget is the fraction of a source's records that may be quarantined before the run fails, from 0 to 1.
	Budget value.Decimal `yaml:"budget" jsonschema:"default=0.001,maximum=1" resume:"budget"`
}

// Adaptive sets the rule by which weights follow losses.
type Adaptive struct {
	// Policy is the rule. odm: exponential weights for sources with a high loss (Albalak et al. 2023, arXiv
	// 2312.02406). ado: weights by the speed at which a source's loss falls (Jiang et al. 2024, arXiv 2410.11820).
	Policy AdaptivePolicy `yaml:"policy" jsonschema:"required,enum=odm,enum=ado"`
	// Every is the number of steps between two sets of weights.
	Every uint64 `yaml:"every" jsonschema:"default=500,minimum=1,maximum=9007199254740991"`
	// Warmup is the number of steps before the first set.
	Warmup uint64 `yaml:"warmup" jsonschema:"default=0,maximum=9007199254740991"`
	// Floor is the least fraction of the mixture for every source with weight. Times the number of sources, it must
	// stay below 1.
	Floor value.Decimal `yaml:"floor" jsonschema:"default=0.01,maximum=1"`
	// Smoothing is the weight of the past in the averages over sets of weights, from 0 to below 1.
	Smoothing value.Decimal `yaml:"smoothing" jsonschema:"default=0.9,maximum=1"`
}

// AdaptivePolicy names a rule.
type AdaptivePolicy string

// The adaptive policies.
const (
	policyODM AdaptivePolicy = "odm"
	policyADO AdaptivePolicy = "ado"
)

// Refit sets the interval between two fits of the coefficients of cost.
type Refit struct {
	// Every is the number of steps between two fits.
	Every uint64 `yaml:"every" jsonschema:"default=500,minimum=1,maximum=9007199254740991"`
}

// Reliability sets the number of standby processes. It decides the length of a failure, never the content of batches.
type Reliability struct {
	// Shadows is the number of loader processes that stand by. Each follows some of the loaders and takes over at once
	// when one of them is lost. With 0, a lost loader is restarted and its sources wait.
	Shadows uint32 `yaml:"shadows" jsonschema:"default=1,maximum=16"`
}

// The least memory limits. A test completes a run with them on files three times as large (e2e/test_memory.py).
// docs/memory.md has the further memory of each process.
const (
	minLoaderMemory  value.Bytes = 64 << 20
	minOpenFiles                 = 16
	minSidecarMemory value.Bytes = 64 << 20
)

// minCache is the least limit of a token cache.
const minCache value.Bytes = 1 << 20

// minFileCache is the least limit of a cache of files: one file of the cache.
const minFileCache value.Bytes = 64 << 20

// Distribute limits the ranks that even out their compute.
type Distribute struct {
	// Over is the unit of group. dp: data-parallel ranks. world: the trainer's ranks; tp * cp of them are one
	// data-parallel rank.
	Over Over `yaml:"over" jsonschema:"default=dp,enum=dp,enum=world"`
	// Group is the number of neighbouring ranks, such as those of one host, that even out their compute among
	// themselves. Sequences go to the groups in turn. Left out: all ranks are one group.
	Group uint32 `yaml:"group" jsonschema:"minimum=1,maximum=1048576"`
}

// Over is the unit of a group of ranks.
type Over string

// The axes over which a step is distributed.
const (
	overDP    Over = "dp"
	overWorld Over = "world"
)

// SplitDocuments selects the documents that are split over ranks. Only documents that cost more than the mean
// microbatch are split, each over as many ranks as balance the step.
type SplitDocuments struct {
	// Above is the length from which a document is split. mean: any document that costs more than the mean microbatch.
	// A number: only such documents with more tokens.
	Above value.Above `yaml:"above" jsonschema:"default=mean"`
}

// maxSpecial is the highest id that a special token may have.
const maxSpecial = 1<<21 - 1

// Specials are the ids of special tokens by their texts. Each id has one text.
type Specials map[string]uint32

// DecodeNode reads ids by the texts of the tokens.
func (s *Specials) DecodeNode(d *decode.Decoder, path string, n *tree.Node) {
	if n.Kind != tree.Mapping {
		d.WrongType(path, n, "a mapping from tokens to ids", d.MappingCure(path))
		return
	}
	if len(n.Entries) == 0 {
		d.Fail(path, n, decode.Name(path)+" is empty", d.MappingCure(path)+", or leave the key out")
		return
	}
	*s = make(Specials, len(n.Entries))
	texts := map[uint32]string{}
	for _, e := range n.Entries {
		at := decode.Join(path, e.Key.Text)
		d.Places[at] = e
		before := len(d.Errs)
		var id uint32
		d.Decode(at, e.Value, reflect.ValueOf(&id).Elem(), decode.Rules{Max: maxSpecial})
		if e.Key.Text == "" {
			d.Fail(at, e.Key, decode.Name(path)+" has a token without text", "write the token's text in quotes")
		}
		if first, taken := texts[id]; taken && len(d.Errs) == before {
			d.Fail(
				at, e.Value, fmt.Sprintf("%s gives id %d to %q and to %q", decode.Name(path), id, first, e.Key.Text),
				"give each token its own id",
			)
		}
		texts[id] = e.Key.Text
		(*s)[e.Key.Text] = id
	}
}
