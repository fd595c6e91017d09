package config

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"millrace"
	"millrace/app/config/decode"
	"millrace/app/config/identity"
	"millrace/app/config/resume"
	"millrace/internal/bucket"
)

// Facts are the facts about a run's data that its identity holds beside the mixture file. The zero Facts are those of a
// file whose data was not inspected.
type Facts struct {
	// Vocabulary is a fingerprint of the tokenizer's vocabulary. Without it, the name of the tokenizer counts.
	Vocabulary string
	// Sizes are the sizes of one pass of each source, in the unit of the mixture. nil: they were not measured. A
	// mixture that derives weights from sizes (Mixture.Derives) needs them.
	Sizes []uint64
}

// Identity returns the identity of a run of this mixture file over data of which the facts are known. A default that is
// written out does not change it. The tag `resume` of a key names the rule that decides whether the key has an entry.
func (c *Config) Identity(of Facts) identity.Identity {
	var id identity.Identity
	placed := placedKeys()
	for _, k := range placed {
		id.Entries = append(id.Entries, k.write(c, of)...)
	}
	id.Entries = append(id.Entries, newEntries(placed, "", reflect.ValueOf(c).Elem(), "")...)
	return id
}

// placedKey is a key whose entries have a fixed place in the identity.
type placedKey struct {
	key   string
	write func(c *Config, of Facts) []identity.Entry
}

// placedKeys returns the keys whose entries have a fixed place, because the fingerprints of saved states have it, or a
// text of their own. Every other key follows in newEntries.
func placedKeys() []placedKey {
	return []placedKey{
		plain("version", func(c *Config) any { return c.Version }),
		plain("seed", func(c *Config) any { return c.Seed }),
		{"tokenizer", func(c *Config, of Facts) []identity.Entry { return c.Tokenizer.identity(of.Vocabulary) }},
		plain("sequence_length", func(c *Config) any { return c.SequenceLength }),
		plain("global_batch_size", func(c *Config) any { return c.GlobalBatchSize }),
		plain("packing", func(c *Config) any { return c.Packing }),
		{"bucket_rows", func(c *Config, _ Facts) []identity.Entry { return c.bucketRowsIdentity() }},
		{"rampup_batch_size", func(c *Config, _ Facts) []identity.Entry {
			if c.RampupBatchSize == nil {
				return nil
			}
			return one("rampup_batch_size", c.RampupBatchSize.identity())
		}},
		{"stages", func(c *Config, _ Facts) (out []identity.Entry) {
			for i := range c.Stages {
				out = append(out, one(fmt.Sprintf("stages[%d]", i), c.Stages[i].identity())...)
			}
			return out
		}},
		plain("shuffle", func(c *Config) any { return c.Shuffle }),
		{"long_documents", func(c *Config, _ Facts) []identity.Entry {
			if n := c.pieceTokens(); n > 0 {
				return one("long_documents", fmt.Sprintf("shuffle pieces of %d", n))
			}
			return nil
		}},
		plain("pad_multiple", func(c *Config) any { return c.PadMultiple }),
		{"carry", func(c *Config, _ Facts) []identity.Entry {
			return []identity.Entry{{
				Name: "carry", Value: c.Carry.String(), IsNew: c.Carry.IsAuto || c.Carry.Count == 0,
			}}
		}},
		plain("window", func(c *Config) any {
			if c.isBucketed() && c.TokenRows() && c.Window == 0 {
				return "auto"
			}
			return max(c.Window, 1)
		}),
		plain("last_step", func(c *Config) any { return c.LastStep }),
		plain("stop.epochs", func(c *Config) any { return c.Epochs() }),
		plain("limits.sample_bytes", func(c *Config) any { return uint64(c.Limits.SampleBytes) }),
		plain("mixture.unit", func(c *Config) any { return c.Mixture.Unit }),
		{"mixture", func(c *Config, of Facts) []identity.Entry { return c.mixtureIdentity(of.Sizes) }},
		{"sources", func(c *Config, _ Facts) (out []identity.Entry) {
			for i := range c.Sources {
				out = append(out, one("sources."+c.Sources[i].Name, c.Sources[i].identity(c))...)
			}
			return out
		}},
	}
}

// one returns the entry of a value.
func one(name string, value any) []identity.Entry {
	return []identity.Entry{{Name: name, Value: fmt.Sprint(value)}}
}

// plain returns a key whose entry is its value.
func plain(key string, value func(c *Config) any) placedKey {
	return placedKey{key, func(c *Config, _ Facts) []identity.Entry { return one(key, value(c)) }}
}

// newEntries returns the entries of the keys of a mapping that have no fixed place, in the order of its struct. rule is
// that of the mapping. Identities of earlier programs lack such an entry, and agree with the key's default.
func newEntries(placed []placedKey, path string, mapping reflect.Value, rule string) (out []identity.Entry) {
	for i := range mapping.NumField() {
		f, v := mapping.Type().Field(i), mapping.Field(i)
		key := f.Tag.Get("yaml")
		at := decode.Join(path, key)
		if key == "" || key == "-" || slices.ContainsFunc(placed, func(k placedKey) bool { return k.key == at }) {
			continue
		}
		named := cmp.Or(f.Tag.Get("resume"), rule)
		if v.Kind() == reflect.Pointer {
			if v = v.Elem(); !v.IsValid() {
				continue
			}
		}
		_, isLiteral := v.Addr().Interface().(decode.Literal)
		if v.Kind() == reflect.Struct && !isLiteral {
			out = append(out, newEntries(placed, at, v, named)...)
			continue
		}
		if resume.HasEntries(named) {
			value := fmt.Sprint(v.Interface())
			out = append(out, identity.Entry{
				Name: at, Value: value, IsNew: v.IsZero() || value == decode.DefaultOf(f),
			})
		}
	}
	return out
}

// bucketRowsIdentity returns the entry of the rows of bucketed steps, if there are any.
func (c *Config) bucketRowsIdentity() []identity.Entry {
	switch {
	case !c.isBucketed():
		return nil
	case c.TokenRows():
		return one("bucket_rows", bucket.Tokens)
	}
	return []identity.Entry{{Name: "bucket_rows", Value: string(bucket.Constant), IsNew: true}}
}

// mixtureIdentity returns the entries of the mixture but its unit.
func (c *Config) mixtureIdentity(sizes []uint64) (out []identity.Entry) {
	add := func(name string, value any) { out = append(out, one("mixture."+name, value)...) }
	if c.Mixture.Schedule == nil {
		for _, w := range c.Mixture.Weights.Given {
			add("weights."+w.Source, w.Value)
		}
		if d := c.Mixture.Weights.Derived; d != nil {
			add("weights", d.identity(c))
		}
		for i := range c.Mixture.Groups {
			add("groups."+c.Mixture.Groups[i].Name, c.Mixture.Groups[i].identity(c))
		}
	}
	if !c.Mixture.Floor.IsZero() {
		add("floor", c.Mixture.Floor)
	}
	for i, size := range sizes {
		add("sizes."+c.Sources[i].Name, size)
	}
	for i := range c.Mixture.Schedule {
		add(fmt.Sprintf("schedule[%d]", i), c.Mixture.Schedule[i].identity(c))
	}
	return out
}

// isBucketed reports whether a stage has packing bucketed.
func (c *Config) isBucketed() bool {
	return slices.ContainsFunc(c.AllStages(), func(s Stage) bool { return s.Packing == millrace.Bucketed })
}

// pieceTokens returns the tokens of a piece if the ordinals of any source are pieces.
func (c *Config) pieceTokens() (tokens uint32) {
	for i := range c.Sources {
		one, _ := c.PieceTokens(&c.Sources[i])
		tokens = max(tokens, one)
	}
	return tokens
}

func (t *Tokenizer) identity(vocabulary string) []identity.Entry {
	if t == nil {
		return []identity.Entry{{Name: "tokenizer", Value: "none"}}
	}
	value, note := vocabulary, t.Name
	if note == "" {
		note = t.Path
	}
	if value == "" {
		value, note = note, ""
	}
	return []identity.Entry{
		{Name: "tokenizer", Value: value, Note: note},
		{Name: "tokenizer.add_bos", Value: strconv.FormatBool(t.AddBOS)},
		{Name: "tokenizer.add_eos", Value: strconv.FormatBool(t.AddEOS)},
	}
}

// identity writes a milestone in one line: `step 500 linear over 200: code 0.4, web 0.6`.
func (k *Milestone) identity(c *Config) string {
	var b strings.Builder
	at, tokens := k.From()
	unit := "step"
	if tokens {
		unit = "tokens"
	}
	fmt.Fprintf(&b, "%s %d", unit, at)
	if k.Ramp != RampNone {
		fmt.Fprintf(&b, " %s over %d", k.Ramp, k.Over())
	}
	if text := k.Weights.identity(c); text != "" {
		b.WriteString(": " + text)
	}
	for i := range k.Groups {
		fmt.Fprintf(&b, "; %s %s", k.Groups[i].Name, k.Groups[i].identity(c))
	}
	return b.String()
}

// identity writes weights in one line: `code 0.4, web 0.6`, or the rule.
func (w Weights) identity(c *Config) string {
	if w.Derived != nil {
		return w.Derived.identity(c)
	}
	parts := make([]string, len(w.Given))
	for i, x := range w.Given {
		parts[i] = x.Source + " " + x.Value.String()
	}
	return strings.Join(parts, ", ")
}

// identity writes a rule in one line: `unimax of books, web max_epochs 4 budget 1000000`.
func (d *Derived) identity(c *Config) string {
	text := string(d.From)
	if d.Sources != nil {
		text += " of " + strings.Join(d.Sources, ", ")
	}
	switch d.From {
	case RuleTemperature:
		text += " " + d.Temperature.String()
	case RuleUniMax:
		text += fmt.Sprintf(" max_epochs %d budget %d", d.MaxEpochs, c.Budget(d))
	}
	return text
}

// identity writes a group in one line: `0.7 (books 1, web 3)`.
func (g *Group) identity(c *Config) string {
	parts := []string{}
	if text := g.Weights.identity(c); text != "" {
		parts = append(parts, text)
	}
	for i := range g.Groups {
		parts = append(parts, g.Groups[i].Name+" "+g.Groups[i].identity(c))
	}
	return g.Weight.String() + " (" + strings.Join(parts, ", ") + ")"
}

// identity writes the settings that decide a source's documents in one line: `jsonl text=meta.body renormalize`.
func (s *Source) identity(c *Config) string {
	parts := []string{string(s.Format)}
	switch {
	case s.HasPairs():
		parts = append(parts, "chosen="+s.Chosen, "rejected="+s.Rejected, "prompt="+s.Prompt, s.conversation(),
			fmt.Sprintf("too_long=%s:%d", s.TooLong, c.PairTokens()))
	case s.Prompt != "":
		parts = append(parts, "prompt="+s.Prompt, "completion="+s.Completion, s.tooLong(c))
		if s.IsRendered() {
			parts = append(parts, s.conversation())
		}
	case s.Messages != "":
		parts = append(parts, s.conversation(), s.tooLong(c))
	case s.HoldsText():
		parts = append(parts, "text="+s.Text)
	case s.Tokens != "":
		parts = append(parts, "tokens="+s.Tokens)
	}
	if s.Mask != "" {
		parts = append(parts, "mask="+s.Mask)
	}
	if s.Labels != "" {
		parts = append(parts, "labels="+s.Labels)
	}
	if s.Starts != "" {
		parts = append(parts, "starts="+s.Starts)
	}
	if s.Record != "" && s.Record != "file" { // a file is the default of text
		parts = append(parts, "record="+s.Record)
	}
	if s.Config != "" {
		parts = append(parts, "config="+s.Config)
	}
	if s.Split != "" && s.Split != "train" { // train is the default
		parts = append(parts, "split="+s.Split)
	}
	if s.DType != "" {
		parts = append(parts, "dtype="+s.DType)
	}
	if s.EOS != nil {
		parts = append(parts, fmt.Sprintf("eos=%d", *s.EOS))
	}
	if s.Missing == SkipMissing {
		parts = append(parts, "missing=skip")
	}
	if len(s.Fields) > 0 {
		parts = append(parts, "fields="+strings.Join(s.Fields, ","))
	}
	parts = append(parts, string(s.OnExhausted))
	if n := c.Passes(s); n > 0 && c.Epochs() == 0 {
		parts = append(parts, fmt.Sprintf("max_epochs=%d", n))
	}
	if tokens, _ := c.PieceTokens(s); tokens > 0 {
		parts = append(parts, fmt.Sprintf("pieces=%d", tokens))
	}
	if s.Filter != "" {
		parts = append(parts, "filter="+s.Filter)
	}
	if s.MinFraction.Text != "" {
		parts = append(parts, "min_fraction="+s.MinFraction.String())
	}
	if s.MaxFraction.Text != "" {
		parts = append(parts, "max_fraction="+s.MaxFraction.String())
	}
	return strings.Join(parts, " ")
}

// conversation writes the settings of conversations.
func (s *Source) conversation() string {
	roles := make([]string, 0, len(s.Roles))
	for from, to := range s.Roles {
		roles = append(roles, from+":"+to)
	}
	slices.Sort(roles)
	sum := sha256.Sum256([]byte(s.Template.Choice.Plain))
	text := fmt.Sprintf("messages=%s template=%x role=%s content=%s roles=%s tools=%s train_on=%s", s.Messages, sum[:8],
		s.Role, s.Content, strings.Join(roles, ","), s.Tools, s.TrainOn)
	if with := s.Template.Choice.WithTools; with != "" {
		sum = sha256.Sum256([]byte(with))
		text += fmt.Sprintf(" tool_use=%x", sum[:8])
	}
	if s.Template.Variables != "" {
		text += " variables=" + string(s.Template.Variables)
	}
	return text
}

// tooLong writes the treatment of documents that are too long. Only if it is split, their length is of no concern.
func (s *Source) tooLong(c *Config) string {
	if s.TooLong != "split" {
		return fmt.Sprintf("too_long=%s:%d", s.TooLong, c.SequenceLength)
	}
	return "too_long=split"
}
