package importer

import (
	"bytes"
	"fmt"
	"strings"
)

// Values that a mixture file needs and foreign files seldom have.
const (
	anySequence = "4096"
	anyBatch    = "256"
)

// encode writes the mixture file.
func (m *mixture) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# From %s, a file of %s, by millrace import. `millrace check` tests it.\n", oneLine(m.from),
		m.kind)
	b.WriteString("version: 1\n")
	for _, need := range []setting{{"sequence_length", anySequence}, {"global_batch_size", anyBatch}} {
		if v := m.given(need.key); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", need.key, v)
			continue
		}
		fmt.Fprintf(&b, "%s: %s   # an example; the file does not say it\n", need.key, need.value)
	}
	b.WriteString("micro_batch_size: 1\n")
	for _, s := range m.top {
		if s.key != "sequence_length" && s.key != "global_batch_size" {
			fmt.Fprintf(&b, "%s: %s\n", s.key, s.value)
		}
	}
	if m.given("tokenizer") == "" && m.holdsText() {
		b.WriteString("tokenizer: {name: gpt2}   # an example; name the model's tokenizer\n")
	}
	b.WriteString("sources:\n")
	for _, s := range m.sources {
		s.encode(&b)
	}
	m.encodeWeights(&b)
	if len(m.notes) > 0 {
		b.WriteString("\n# These parts of the file have no equivalent here, or need a decision:\n")
		for _, n := range m.notes {
			fmt.Fprintf(&b, "#   %s\n", oneLine(n))
		}
	}
	return b.Bytes()
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func (m *mixture) given(key string) string {
	for _, s := range m.top {
		if s.key == key {
			return s.value
		}
	}
	return ""
}

// holdsText reports whether a source needs a tokenizer.
func (m *mixture) holdsText() bool {
	for _, s := range m.sources {
		format := ""
		for _, x := range s.settings {
			if x.key == "format" {
				format = x.value
			}
		}
		switch format {
		case "megatron", "olmo", "datatrove", "tokens":
		default:
			return true
		}
	}
	return false
}

func (s *source) encode(b *bytes.Buffer) {
	fmt.Fprintf(b, "  %s:\n", quote(s.name))
	for _, x := range s.settings {
		fmt.Fprintf(b, "    %s: %s\n", x.key, x.value)
	}
	for _, n := range s.notes {
		fmt.Fprintf(b, "    # no equivalent: %s\n", oneLine(n))
	}
}

// encodeWeights writes the schedule, the weights, or the rule that follows from the sizes of the sources.
func (m *mixture) encodeWeights(b *bytes.Buffer) {
	b.WriteString("mixture:\n")
	if m.unit != "" {
		fmt.Fprintf(b, "  unit: %s\n", m.unit)
	}
	if len(m.schedule) > 0 {
		b.WriteString("  schedule:\n")
		for _, k := range m.schedule {
			fmt.Fprintf(b, "    - from_step: %s   # %s\n      weights:\n", k.from, oneLine(k.name))
			for _, s := range m.sources {
				fmt.Fprintf(b, "        %s: %s\n", quote(s.name), k.weight(s.name))
			}
		}
		return
	}
	if !m.isWeighted() {
		b.WriteString("  weights: {from: size}\n")
		return
	}
	b.WriteString("  weights:\n")
	for _, s := range m.sources {
		fmt.Fprintf(b, "    %s: %s\n", quote(s.name), s.weight)
	}
}

// isWeighted reports whether every source has a weight. If only some have one, the others get 0 and a note.
func (m *mixture) isWeighted() bool {
	with := 0
	for _, s := range m.sources {
		if s.weight != "" {
			with++
		}
	}
	if with == 0 {
		return false
	}
	for _, s := range m.sources {
		if s.weight == "" {
			s.weight = "0"
			m.note("%s has no weight in the file; it has 0 here", s.name)
		}
	}
	return true
}

func (k *milestone) weight(name string) string {
	for _, w := range k.weights {
		if w.key == name {
			return w.value
		}
	}
	return "0"
}
