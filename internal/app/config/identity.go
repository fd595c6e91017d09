package config

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/blake2b"

	"millrace"
)

// Identity is what decides which segments a run delivers, in a fixed order: a run's state belongs to one identity and is refused
// by every other. What may differ at resume is not in it: topology, memory, layout, and where files are. What files hold is not in
// it either; a source's manifest has a fingerprint of its own.
type Identity struct {
	Entries []Entry

	digest millrace.Digest // as read back; zero in one that was made here
}

// Entry is one key that decides, and its value with the default filled in.
type Entry struct {
	Name  string
	Value string
	Note  string // what a person calls the value; neither compared nor in the fingerprint
}

// Identity returns the run's identity. Writing a default out does not change it. Set Tokenizer.Fingerprint before; without it
// the tokenizer stands for itself by name.
func (c *Config) Identity() Identity {
	var id Identity
	add := func(name string, value any) {
		id.Entries = append(id.Entries, Entry{Name: name, Value: fmt.Sprint(value)})
	}
	add("version", c.Version)
	add("seed", c.Seed)
	id.Entries = append(id.Entries, c.Tokenizer.identity()...)
	add("sequence_length", c.SequenceLength)
	add("global_batch_size", c.GlobalBatchSize)
	add("packing", c.Packing)
	if c.RampupBatchSize != nil {
		add("rampup_batch_size", c.RampupBatchSize.identity())
	}
	for i := range c.Stages {
		add(fmt.Sprintf("stages[%d]", i), c.Stages[i].identity())
	}
	add("shuffle", c.Shuffle)
	add("pad_multiple", c.PadMultiple)
	if c.Carry > 0 {
		add("carry", c.Carry)
	}
	add("window", c.Window)
	add("last_step", c.LastStep)
	add("stop.epochs", c.Epochs())
	add("limits.sample_bytes", uint64(c.Limits.SampleBytes))
	add("mixture.unit", c.Mixture.Unit)
	if c.Mixture.Schedule == nil {
		for _, w := range c.Mixture.Weights.Given {
			add("mixture.weights."+w.Source, w.Value)
		}
		if d := c.Mixture.Weights.Derived; d != nil {
			add("mixture.weights", d.identity(c))
		}
		for i := range c.Mixture.Groups {
			add("mixture.groups."+c.Mixture.Groups[i].Name, c.Mixture.Groups[i].identity(c))
		}
	}
	if !c.Mixture.Floor.IsZero() {
		add("mixture.floor", c.Mixture.Floor)
	}
	if c.Mixture.Measured {
		for i := range c.Sources {
			add("mixture.sizes."+c.Sources[i].Name, c.Sources[i].Size)
		}
	}
	for i := range c.Mixture.Schedule {
		add(fmt.Sprintf("mixture.schedule[%d]", i), c.Mixture.Schedule[i].identity(c))
	}
	for i := range c.Sources {
		add("sources."+c.Sources[i].Name, c.Sources[i].identity(c))
	}
	return id
}

// Value returns the value of a key, with the default filled in; empty where there is none.
func (id Identity) Value(name string) string {
	for _, e := range id.Entries {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

func (t *Tokenizer) identity() []Entry {
	if t == nil {
		return []Entry{{Name: "tokenizer", Value: "none"}}
	}
	value, note := t.Fingerprint, t.Name
	if note == "" {
		note = t.Path
	}
	if value == "" {
		value, note = note, ""
	}
	return []Entry{
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

// identity writes what decides a source's documents in one line: `jsonl text=meta.body renormalize`.
func (s *Source) identity(c *Config) string {
	parts := []string{string(s.Format)}
	if s.Format.HoldsText() {
		parts = append(parts, "text="+s.Text)
	}
	parts = append(parts, string(s.OnExhausted))
	if n := c.Passes(s); n > 0 && c.Epochs() == 0 {
		parts = append(parts, fmt.Sprintf("max_epochs=%d", n))
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

// Fingerprint returns the digest of all names and values: equal for equal identities, also for one read back from JSON.
func (id Identity) Fingerprint() millrace.Digest {
	if !id.digest.IsZero() {
		return id.digest
	}
	h, _ := blake2b.New(len(millrace.Digest{}), nil) // fails for other sizes and long keys alone
	var size [8]byte
	for _, e := range id.Entries {
		for _, s := range [2]string{e.Name, e.Value} {
			binary.LittleEndian.PutUint64(size[:], uint64(len(s)))
			h.Write(size[:])
			h.Write([]byte(s))
		}
	}
	var d millrace.Digest
	h.Sum(d[:0])
	return d
}

// Diff names what differs between two identities, one line a key, empty where their fingerprints are equal.
func Diff(old, now Identity) []string {
	if old.Fingerprint() == now.Fingerprint() {
		return nil
	}
	old, now = alike(old, now)
	before := make(map[string]Entry, len(old.Entries))
	for _, e := range old.Entries {
		before[e.Name] = e
	}
	var lines []string
	for _, e := range now.Entries {
		was, ok := before[e.Name]
		delete(before, e.Name)
		switch {
		case !ok:
			lines = append(lines, e.Name+": added ("+e.shown()+")")
		case was.Value != e.Value && isShort(was.Value) && was.Note == "":
			lines = append(lines, e.Name+": changed")
		case was.Value != e.Value:
			lines = append(lines, e.Name+": "+was.shown()+" -> "+e.shown())
		}
	}
	for _, e := range old.Entries {
		if _, gone := before[e.Name]; gone {
			lines = append(lines, e.Name+": removed (it was "+e.shown()+")")
		}
	}
	if len(lines) == 0 { // both were shortened to what is equal by chance of short digests, or by hand
		lines = append(lines, fmt.Sprintf("fingerprint: %s -> %s", old.Fingerprint(), now.Fingerprint()))
	}
	return lines
}

func (e Entry) shown() string {
	if e.Note != "" {
		return e.Note + " (" + e.Value + ")"
	}
	return e.Value
}
