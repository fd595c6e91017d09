package setup

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"millrace"
	"millrace/app/config"
	"millrace/sources"
	"millrace/sources/format/all"
	"millrace/sources/format/parts/fields"
	"millrace/sources/format/tokenfiles"
	"millrace/sources/read/filter"
	"millrace/text/chat"
	"millrace/text/tokenize"
)

// Tokenizer opens the run's tokenizer. It returns nil if the mixture file has none.
func Tokenizer(c *config.Config) (*tokenize.Encoding, error) {
	t := c.Tokenizer
	if t == nil {
		return nil, nil
	}
	spec := tokenize.Spec{Name: t.Name, Pattern: t.Pattern, Specials: t.Specials, BOS: t.BOS, EOS: t.EOS,
		NeedBOS: t.AddBOS, NeedEOS: t.AddEOS}
	if t.Path != "" {
		spec.Path = c.Abs(t.Path)
	}
	e, err := tokenize.Open(spec)
	var wrong *tokenize.Error
	switch {
	case errors.As(err, &wrong):
		return nil, c.FailureAt("tokenizer."+wrong.Key, wrong.Reason, wrong.Cause, wrong.Cure)
	case err != nil:
		return nil, c.FailureAt("tokenizer", err.Error(), err, "")
	}
	return e, nil
}

// Vocabulary returns the fingerprint of a tokenizer's vocabulary for the identity of a run; empty without a tokenizer.
func Vocabulary(e *tokenize.Encoding) string {
	if e == nil {
		return ""
	}
	return fmt.Sprintf("%x", e.Fingerprint())
}

// SourceSpec returns the settings with which a loader opens a source. The sources of a process share the encoding and
// the memory of random reads; nil keeps none.
func SourceSpec(c *config.Config, s *config.Source, e *tokenize.Encoding, b *ReadBuffers) (sources.Spec, error) {
	format, err := format(s, b, Files(s, b))
	if err != nil {
		return sources.Spec{}, c.ErrorAt("sources."+s.Name+".format", err.Error(), "")
	}
	spec := sources.Spec{
		Name:     s.Name,
		Format:   format,
		Base:     c.Base,
		Patterns: s.Path,
		Config:   s.Config,
		Split:    s.Split,
		Version:  s.Version,
		Limits: sources.Limits{
			SampleBytes: int64(c.Limits.SampleBytes),
		},
		Shuffle:  c.Shuffle,
		Copies:   c.SeekableCopies,
		Seed:     c.Seed,
		Epochs:   c.Passes(s),
		IndexDir: c.IndexPath(),
		Verify:   sources.Verify(c.Verify),
	}
	if spec.Filters, err = filters(c, s); err != nil {
		return sources.Spec{}, c.ErrorAt("sources."+s.Name, err.Error(), "")
	}
	spec.PieceTokens, _ = c.PieceTokens(s)
	spec.Uncut = c.Uncut()
	if s.Root != "" {
		spec.Root = c.Abs(s.Root)
	}
	// Formats of tokens ignore the field. It stays in the fingerprint of their sources, which saved states have.
	spec.Field.Text = s.Text
	if s.Format.HoldsText() {
		spec.Passed = s.Fields
	}
	spec.SkipMissing = s.Format.HoldsText() && s.Missing == config.SkipMissing
	if s.HoldsText() {
		spec.AddBOS, spec.AddEOS = c.Tokenizer.AddBOS, c.Tokenizer.AddEOS
		if e != nil { // a nil *Encoding is not a nil Tokenizer
			spec.Tokenizer = e
		}
	}
	if s.HoldsText() && e != nil && s.Messages+s.Prompt+s.Chosen != "" {
		err = setChat(&spec, c, s, e)
	} else {
		err = setMaker(&spec, s)
	}
	if err == nil {
		spec.Unnamed = unnamed(&spec, s)
	}
	return spec, err
}

// setMaker sets the maker of the source's documents, if they are not of one text field.
func setMaker(spec *sources.Spec, s *config.Source) error {
	switch {
	case s.Tokens != "":
		spec.Field.Text = ""
		spec.Maker = fields.NewIDsMaker(
			fields.IDs{Tokens: s.Tokens, DType: s.DType, Mask: s.Mask, Labels: s.Labels, Starts: s.Starts})
	case fields.IsTemplate(spec.Field.Text):
		template, err := fields.ParseTemplate(spec.Field.Text)
		if err != nil {
			return err
		}
		spec.Field.Text = ""
		if spec.Tokenizer != nil {
			encoder := sources.NewEncoder(spec.Tokenizer, spec.AddBOS, spec.AddEOS)
			spec.Maker = fields.NewTemplateMaker(template, encoder, spec.SkipMissing)
		}
	}
	return nil
}

// setChat sets the maker of the documents of conversations or pairs.
func setChat(spec *sources.Spec, c *config.Config, s *config.Source, e *tokenize.Encoding) (err error) {
	spec.Field.Text = ""
	long := chat.TooLong{
		Tokens: int(c.SequenceLength), Truncate: s.TooLong == "truncate", Drop: s.TooLong == "drop",
	}
	talk := talk(s, e)
	talk.TooLong = long
	rendered := talk
	if !s.IsRendered() {
		rendered = nil
	}
	switch {
	case s.HasPairs():
		long.Tokens = int(c.PairTokens())
		talk.Messages = s.Chosen
		spec.Maker, err = chat.NewPreferenceMaker(e, chat.Preference{
			Prompt: s.Prompt, Chosen: s.Chosen, Rejected: s.Rejected, BOS: spec.AddBOS, EOS: spec.AddEOS, TooLong: long,
			Talk: rendered,
		})
	case s.Prompt != "":
		spec.Maker, err = chat.NewPairMaker(e, chat.Pair{
			Prompt: s.Prompt, Completion: s.Completion, BOS: spec.AddBOS, EOS: spec.AddEOS, TooLong: long,
			Talk: rendered,
		})
	default:
		spec.Maker, err = chat.NewConversationMaker(e, *talk)
	}
	if err != nil {
		return c.ErrorAt("sources."+s.Name, err.Error(), "name another `template`, or write `train_on: all`")
	}
	return nil
}

// talk returns the rendering of a source's messages.
func talk(s *config.Source, e *tokenize.Encoding) *chat.Conversation {
	talk := &chat.Conversation{
		Messages: s.Messages, Tools: s.Tools, Role: s.Role, Content: s.Content, Roles: s.Roles, Train: s.TrainOn,
		Template: s.Template.Choice, Variables: string(s.Template.Variables),
	}
	if id, ok := e.BOS(); ok {
		talk.BOS = e.Specials()[id]
	}
	if id, ok := e.EOS(); ok {
		talk.EOS = e.Specials()[id]
	}
	return talk
}

// filters returns all filters of a source: its own first, then the stages' filters by their numbers.
func filters(c *config.Config, s *config.Source) (*filter.Set, error) {
	sets, _ := c.StageFilterSets()
	all := make([]*filter.Filter, 1+len(sets))
	for i := range all {
		text := s.Filter
		if i > 0 {
			text = sets[i-1].Of(s.Name)
		}
		if text == "" {
			continue
		}
		var err error
		if all[i], err = filter.Compile(text); err != nil {
			return nil, fmt.Errorf("filter `%s`: %w", text, err)
		}
	}
	return filter.NewSet(all...)
}

// filterTexts returns the texts of a source's filters, for people.
func filterTexts(c *config.Config, s *config.Source) string {
	var texts []string
	if s.Filter != "" {
		texts = append(texts, s.Filter)
	}
	sets, _ := c.StageFilterSets()
	for _, set := range sets {
		if text := set.Of(s.Name); text != "" {
			texts = append(texts, text+" (of a stage)")
		}
	}
	return strings.Join(texts, "; ")
}

// Format returns the reader of a source's format, for a look at its files.
func Format(s *config.Source, files sources.FS) (sources.Format, error) { return format(s, nil, files) }

func format(s *config.Source, b *ReadBuffers, files sources.FS) (sources.Format, error) {
	settings := all.Settings{Files: files, Record: s.Record, IDs: tokenfiles.Options{DType: s.DType},
		Truncated: s.Truncated == "accept"}
	if s.EOS != nil {
		settings.IDs.EOS, settings.IDs.HasEOS = uint32(*s.EOS), true
	}
	if b != nil {
		settings.Windows, settings.Pages = b.windows, b.pages
	}
	return all.New(s.Format, settings)
}

// uncounted is the least number of records that the quarantine budget assumes for a source without a count.
const uncounted = 10_000

// Allowed returns the number of a source's records that may be quarantined: the budget's fraction, rounded up.
func Allowed(c *config.Config) func(counted bool, records uint64) uint64 {
	num, den := c.Quarantine.Budget.Fraction()
	return func(counted bool, records uint64) uint64 {
		if !counted {
			records = max(records, uncounted)
		}
		hi, lo := bits.Mul64(records, num)
		q, rest := bits.Div64(hi%den, lo, den)
		if rest > 0 {
			q++
		}
		return q
	}
}

// Counted reports whether the manifest has the number of records of every shard. The quarantine budget is then a
// fraction of their sum.
func Counted(m *millrace.Manifest) bool {
	return !slices.ContainsFunc(m.Shards, func(s millrace.Shard) bool { return !s.Counted })
}

// Names returns the names of the sources by their numbers.
func Names(ms []*millrace.Manifest) []string {
	out := make([]string, len(ms))
	for i := range ms {
		out[i] = ms[i].Source
	}
	return out
}
