package dryrun

import (
	"slices"

	"millrace"
	"millrace/app/setup"
)

// Report is the answer of `millrace check`. Scripts rely on its JSON names: they are never removed. Fractions are for
// people.
type Report struct {
	Mixture     string           `json:"mixture"`
	OK          bool             `json:"ok"`
	Problems    []Complaint      `json:"problems"`
	Ranks       int              `json:"ranks"`
	Sources     []SourceReport   `json:"sources"`
	Run         RunReport        `json:"run"`
	FirstSteps  []StepReport     `json:"first_steps"`
	Prices      *Prices          `json:"prices"`   // of other choices; null if unknown
	Longest     *LongestReport   `json:"longest"`  // the longest document's part of a step; null if no length is known
	CPSizes     []int            `json:"cp_sizes"` // context parallelism that pad_multiple admits
	Memory      MemoryReport     `json:"memory"`
	Quarantined Quarantined      `json:"quarantined"`
	Payload     bool             `json:"payload"` // false if the mixture can only be planned
	Tokenizer   *TokenizerReport `json:"tokenizer,omitempty"`
	// Shared are warnings of sources that read the same files, those of further streams among them.
	Shared []string `json:"shared"`
	// Streams are the reports of the further streams, by name.
	Streams map[string]*Report `json:"streams,omitempty"`

	uses []setup.Use // of files, by the sources of this stream
}

// Share sets Shared, from this report and those of its further streams.
func (r *Report) Share() {
	uses := r.usesOf(string(millrace.Train))
	for name, s := range r.Streams {
		s.Shared = []string{}
		uses = append(uses, s.usesOf(name)...)
	}
	r.Shared = append([]string{}, setup.Shared(uses)...)
}

func (r *Report) usesOf(stream string) []setup.Use {
	uses := slices.Clone(r.uses)
	for i := range uses {
		uses[i].Stream = stream
	}
	return uses
}

// TokenizerReport is the tokenizer of the sources that hold text.
type TokenizerReport struct {
	Name       string  `json:"name"`       // of the known vocabulary, else of the file
	Pattern    string  `json:"pattern"`    // that divides text
	Vocabulary int     `json:"vocabulary"` // ids, special tokens included
	BOS        *string `json:"bos"`        // null if there is none
	BOSID      *uint32 `json:"bos_id"`
	EOS        *string `json:"eos"`
	EOSID      *uint32 `json:"eos_id"`
}

// Complaint is one reason why the mixture cannot be run.
type Complaint struct {
	Source string `json:"source,omitempty"`
	Reason string `json:"reason"` // with the place in the mixture file, or the data file, and the cure
}

// Quarantined counts the records that a run would quarantine.
type Quarantined struct {
	Count  uint64                `json:"count"`
	Recent []millrace.Quarantine `json:"recent"`
}

// SourceReport describes a source. A count that is not exact is an estimate from the records read so far.
type SourceReport struct {
	Name         string `json:"name"`
	Format       string `json:"format"`
	Files        int    `json:"files"`
	FilesRead    int    `json:"files_read"` // to their end
	Bytes        int64  `json:"bytes"`
	Records      uint64 `json:"records"`
	RecordsExact bool   `json:"records_exact"`
	Tokens       uint64 `json:"tokens"` // of one pass
	TokensExact  bool   `json:"tokens_exact"`
	// Trained counts the labels of these tokens that are in the loss; null: all tokens are trained on. It is as exact
	// as Tokens.
	Trained *uint64 `json:"trained_tokens"`

	Refused     uint64   `json:"refused"`  // of the records, by the source's filter; exact if Tokens is
	Missing     uint64   `json:"missing"`  // of the records, left out by missing: skip; exact if Tokens is
	TooLong     uint64   `json:"too_long"` // of the records, longer than the source allows; exact if Tokens is
	Shuffle     string   `json:"shuffle"`
	Why         string   `json:"why,omitempty"` // reason for another order than the file asks for
	Epochs      uint32   `json:"epochs"`        // allowed; 0: endless
	OnExhausted string   `json:"on_exhausted"`
	Target      float64  `json:"target"` // share at step 0
	Share       float64  `json:"share"`  // realised; expected if the run is not exact
	Passes      *float64 `json:"passes"` // of the whole run; null for an endless one
	DryStep     *uint64  `json:"dry_step"`
	StaleStep   *uint64  `json:"stale_step"` // in which its fifth pass begins; null if the run ends before
	Bad         uint64   `json:"bad"`        // records that cannot be decoded, of those read
	Allowed     uint64   `json:"allowed"`    // by the quarantine budget

	Reading *Reading `json:"reading"` // ways to read it; null for formats of tokens

	Storage *StorageReport `json:"storage"` // bytes to be fetched; null if its files are local

	Skipped []SkippedFile `json:"skipped"` // files that its path leads to and that are not read
}

// StorageReport predicts the bytes that loaders fetch from a source's store, in the order and with the caches of the
// mixture file. Shadows and repeated requests are not counted.
type StorageReport struct {
	Needed int64  `json:"needed_bytes"` // of its files: the columns, members and records that a pass takes
	Exact  bool   `json:"needed_exact"` // all files were read, else it is an estimate
	Pass   int64  `json:"pass_bytes"`   // fetched for the first pass
	Run    *int64 `json:"run_bytes"`    // fetched by the whole run; null for an endless one
}

// Reading compares the ways to read a source of text. All numbers are estimates.
type Reading struct {
	Choices     []ReadCost `json:"choices"`     // the first is the mixture file's own
	Recommended string     `json:"recommended"` // one of the choices
	CacheBytes  uint64     `json:"cache_bytes"` // of all documents in a token cache
}

// ReadCost is the cost of one way to read a source.
type ReadCost struct {
	Choice    string  `json:"choice"`
	BytesRead float64 `json:"bytes_read"` // bytes unpacked for each byte of a document that is used
	CPU       float64 `json:"cpu"`        // seconds for a million tokens, from the files to the batches
}

// SkippedFile is a file of a source's directories or wildcards that is not read.
type SkippedFile struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// RunReport says when and why the run ends.
type RunReport struct {
	Endless      bool    `json:"endless"`
	Exact        bool    `json:"exact"` // planned to its end, else estimated
	Steps        *uint64 `json:"steps"` // null for an endless run
	Tokens       *uint64 `json:"tokens"`
	Reason       string  `json:"reason,omitempty"`
	Microbatches uint32  `json:"microbatches"`           // a step and rank of the first stage, once its batch is whole
	Loaders      int     `json:"loaders"`                // processes, on a host like this one, at the start
	Shadows      int     `json:"shadows"`                // loader processes that stand by
	MostLoaders  int     `json:"most_loaders,omitempty"` // of a range; 0: the number is fixed
	// Stripes are the parts of each source that loaders read apart, if sources have profiles.
	Stripes map[string]int `json:"stripes,omitempty"`
	Stages  []StageReport  `json:"stages,omitempty"` // if there are several, or a ramp
}

// StageReport is a part of a run with its own batches.
type StageReport struct {
	FromStep       *uint64     `json:"from_step"`   // as the mixture file has it
	FromTokens     *uint64     `json:"from_tokens"` // likewise
	Begins         *uint64     `json:"begins"`      // step; null if the run ends before
	SequenceLength uint32      `json:"sequence_length"`
	GlobalBatch    uint32      `json:"global_batch_size"`
	MicroBatch     uint32      `json:"micro_batch_size"`
	Microbatches   uint32      `json:"microbatches"` // a step and rank, once the batch is whole
	Packing        string      `json:"packing"`
	Sizes          []BatchSize `json:"ramp"` // batch sizes of the ramp, each with its first step
}

// BatchSize is a global batch size from a step on.
type BatchSize struct {
	Step      uint64 `json:"step"`
	Sequences uint32 `json:"global_batch_size"`
}

// StepReport is one step that was planned and built.
type StepReport struct {
	Step    uint64  `json:"step"`
	Tokens  uint64  `json:"tokens"`
	Fill    float64 `json:"fill"`    // document tokens of all places
	Balance float64 `json:"balance"` // max/mean cost of the microbatches that ranks do at once; 1 is even
	Ranks   float64 `json:"ranks"`   // max/mean cost of the ranks' sums
	Context float64 `json:"context"` // max/mean cost of the context-parallel ranks that share a microbatch
	Content string  `json:"content_digest"`

	Explain *Explained `json:"explain"`
}

// MemoryReport compares the memory of a run with the limits, in bytes.
type MemoryReport struct {
	LoaderLimit   int64 `json:"loader_limit"`  // of all loaders and shadows; each has an equal part
	StepPayload   int64 `json:"step_payload"`  // a step's tokens in the loaders
	PayloadSteps  int64 `json:"payload_steps"` // steps whose tokens fit into the loaders' parts
	SidecarLimit  int64 `json:"sidecar_limit"`
	SidecarNeeded int64 `json:"sidecar_needed"`
	Frame         int64 `json:"frame"` // one microbatch
}
