package importer

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

func isEnergon(top value) bool {
	return strings.HasPrefix(top.peek("__class__").text(), "Metadataset") ||
		top.peek("splits", "train", "blend").isSet() ||
		top.peek("splits", "train", "blend_epochized").isSet()
}

// readEnergon reads a metadataset. Weights of nested blends multiply.
func readEnergon(m *mixture, top value) error {
	m.unit = "samples"
	top.take("__class__")
	top.take("__module__")
	splits := top.take("splits")
	train := splits.take("train")
	if !train.isMap() {
		return fmt.Errorf("it has no splits.train")
	}
	if train.peek("path").isSet() {
		m.energonEntry(train, 1, "splits.train.")
	} else {
		m.energonBlend(train, 1, "splits.train.")
	}
	for _, left := range splits.left("splits.") {
		m.note("%s: a stream of `streams:` can read it, with `split:` of its sources", left)
	}
	return nil
}

// energonBlend reads the entries of a blend.
func (m *mixture) energonBlend(v value, share float64, at string) {
	for _, key := range []string{"blend", "blend_epochized"} {
		list := v.take(key).list()
		sum := 0.0
		for _, entry := range list {
			sum += weightOf(entry)
		}
		for i, entry := range list {
			w := weightOf(entry)
			entry.take("weight")
			part := 0.0 // entries with repetitions have the weight of their size
			if key == "blend" && sum > 0 {
				part = share * w / sum
			}
			m.energonEntry(entry, part, fmt.Sprintf("%s%s[%d].", at, key, i))
		}
	}
	if v.peek("join").isSet() {
		m.note("%sjoin: %s", at, v.take("join").short())
	}
	m.rest(at, v)
}

func weightOf(v value) float64 {
	w, err := strconv.ParseFloat(v.peek("weight").text(), 64)
	if err != nil {
		return 1
	}
	return w
}

func (m *mixture) energonEntry(v value, share float64, at string) {
	if !v.peek("path").isSet() {
		m.energonBlend(v, share, at)
		return
	}
	p := v.take("path").text()
	s := m.add(path.Base(strings.TrimSuffix(p, "/")))
	s.set("path", m.path(p))
	if strings.HasSuffix(p, ".yaml") || strings.HasSuffix(p, ".yml") {
		s.notes = append(s.notes, "this path is a metadataset of its own: import it, and put its sources here")
	} else if !strings.HasSuffix(p, ".jsonl") {
		s.settings = append([]setting{{"format", "webdataset"}}, s.settings...)
	}
	if split := v.peek("split_part").text(); slices.Contains([]string{"train", "val", "test"}, split) {
		v.take("split_part")
		s.set("split", split)
	}
	if n := v.peek("repetitions").text(); n != "" && !strings.Contains(n, ".") {
		v.take("repetitions")
		s.set("max_epochs", n)
		s.set("on_exhausted", "renormalize")
	}
	if share > 0 {
		s.weight = strconv.FormatFloat(share, 'g', 6, 64)
	}
	s.notes = append(s.notes, v.left("")...)
}

func streamsOf(top value) (streams value, of string) {
	switch {
	case top.isList():
		return top, ""
	case top.peek("streams").isSet():
		return top.peek("streams"), "streams"
	case top.peek("dataset", "streams").isSet():
		return top.peek("dataset", "streams"), "dataset"
	}
	return top.peek("train_loader", "dataset", "streams"), "train_loader"
}

func isStreaming(top value) bool {
	streams, _ := streamsOf(top)
	for _, p := range streams.pairs() {
		return p.value.peek("local").isSet() || p.value.peek("remote").isSet()
	}
	return hasItem(streams, "local") || hasItem(streams, "remote")
}

// readStreaming reads a list of streams, or a mapping of names to streams.
func readStreaming(m *mixture, top value) error {
	m.unit = "samples"
	streams, of := streamsOf(top)
	switch of {
	case "streams":
		top.take(of)
	case "dataset", "train_loader":
		set := top.take(of)
		inside, at := set, of+"."
		if of == "train_loader" {
			inside, at = set.take("dataset"), of+".dataset."
			m.rest(of+".", set)
		}
		inside.take("streams")
		m.set("seed", inside.take("shuffle_seed"))
		m.set("sequence_length", inside.take("max_seq_len"))
		m.rest(at, inside)
	}
	for i, x := range streams.list() {
		m.stream(x, "stream-"+strconv.Itoa(i))
	}
	for _, p := range streams.pairs() {
		m.stream(p.value, p.key)
	}
	return nil
}

func (m *mixture) stream(x value, name string) {
	at := x.take("remote").text()
	if at == "" {
		at = x.take("local").text()
	}
	split := x.take("split").text()
	if base := path.Base(at); strings.HasPrefix(name, "stream-") && base != "." {
		name = base
	}
	s := m.add(name)
	s.set("format", "mds")
	if strings.Contains(at, "://") {
		s.set("path", quote(strings.TrimSuffix(at, "/")+strings.TrimSuffix("/"+split, "/")))
	} else {
		s.set("path", m.path(path.Join(at, split)))
	}
	if s.weight = x.take("proportion").text(); s.weight == "" {
		s.weight = x.take("choose").text()
	}
	s.notes = append(s.notes, x.left("")...)
}

func isAxolotl(top value) bool {
	return hasItem(top.peek("datasets"), "path")
}

// readAxolotl reads the data sets of an axolotl configuration. They are concatenated, so their sizes are the weights.
func readAxolotl(m *mixture, top value) error {
	m.set("sequence_length", top.take("sequence_len"))
	m.set("seed", top.take("seed"))
	if model := top.take("base_model").text(); model != "" {
		m.top = append(m.top, setting{"tokenizer", "{path: " + quote(model) + "}"})
		m.note("base_model: %s: the tokenizer's path here must be the model's directory", model)
	}
	for _, x := range top.take("datasets").list() {
		p := x.take("path").text()
		s := m.add(strings.TrimSuffix(path.Base(p), path.Ext(p)))
		files := x.take("data_files").texts()
		switch {
		case p == "json" || p == "parquet" || p == "text" || p == "arrow":
			s.set("path", m.paths(files))
		case strings.HasPrefix(p, "."), strings.HasPrefix(p, "/"), path.Ext(p) == ".jsonl", strings.Contains(p, "://"):
			s.set("path", m.path(p))
		default:
			s.hub(p)
		}
		chatKeys(s, x, x.take("type"))
		s.notes = append(s.notes, x.left("")...)
	}
	return nil
}

// chatKeys sets the fields of axolotl's types of prompts.
func chatKeys(s *source, x, kind value) {
	switch kind.text() {
	case "completion":
		field := x.take("field").text()
		if field == "" {
			field = "text"
		}
		s.set("text", quote(field))
	case "chat_template":
		field := x.take("field_messages").text()
		if field == "" {
			field = "messages"
		}
		s.set("messages", quote(field))
		s.set("template", "tokenizer")
		names := x.take("message_property_mappings")
		s.set("role", names.take("role").text())
		s.set("content", names.take("content").text())
	case "alpaca":
		s.set("prompt", "instruction")
		s.set("completion", "output")
		s.notes = append(s.notes, "type: alpaca has a prompt around the instruction and an optional field input")
	default:
		s.notes = append(s.notes, "type: "+kind.short())
	}
}

func isLLaMAFactory(top value) bool {
	for _, p := range top.pairs() {
		x := p.value
		return x.peek("file_name").isSet() || x.peek("hf_hub_url").isSet() || x.peek("script_url").isSet()
	}
	return false
}

// readLLaMAFactory reads a dataset_info.json.
func readLLaMAFactory(m *mixture, top value) error {
	for _, p := range top.pairs() {
		x := top.take(p.key)
		s := m.add(p.key)
		switch file := x.take("file_name").text(); {
		case file != "":
			s.set("path", m.path(file))
		default:
			s.hub(x.take("hf_hub_url").text())
		}
		columns, tags := x.take("columns"), x.take("tags")
		isChat, isRanking := x.take("formatting").text() == "sharegpt", x.take("ranking").text() == "true"
		field := orElse(columns.take("messages").text(), "conversations")
		switch {
		case isRanking && !isChat:
			field = llamaPrompt(s, columns)
			fallthrough
		case isRanking:
			s.set("prompt", field)
			s.set("chosen", orElse(columns.take("chosen").text(), "chosen"))
			s.set("rejected", orElse(columns.take("rejected").text(), "rejected"))
		case isChat:
			s.set("messages", field)
			s.set("tools", columns.take("tools").text())
		default:
			s.set("prompt", llamaPrompt(s, columns))
			s.set("completion", orElse(columns.take("response").text(), "output"))
		}
		if isChat || isRanking {
			s.set("template", "chatml")
			s.notes = append(s.notes, "the file names no template; chatml is an example")
		}
		if isChat {
			llamaTags(s, tags)
		}
		s.notes = append(s.notes, columns.left("columns.")...)
		s.notes = append(s.notes, tags.left("tags.")...)
		s.notes = append(s.notes, x.left("")...)
	}
	return nil
}

// llamaPrompt returns the prompt: a field, or a template with a second field. A ranking takes no template.
func llamaPrompt(s *source, columns value) string {
	prompt := columns.take("prompt").text()
	if prompt == "" {
		prompt = "instruction"
	}
	if query := columns.peek("query").text(); query != "" && !columns.peek("chosen").isSet() {
		columns.take("query")
		s.notes = append(s.notes, "a record without "+query+" has no line for it there; here the line is empty")
		return fmt.Sprintf("%q", "{"+prompt+"}\n{"+query+"}")
	}
	return quote(prompt)
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return quote(s)
}

// llamaTags sets the names inside a message. Without tags they are those of ShareGPT.
func llamaTags(s *source, tags value) {
	s.set("role", orElse(tags.take("role_tag").text(), "from"))
	s.set("content", orElse(tags.take("content_tag").text(), "value"))
	roles := []string{}
	for _, r := range []struct{ tag, name, role string }{
		{"user_tag", "human", "user"}, {"assistant_tag", "gpt", "assistant"}, {"system_tag", "system", "system"},
	} {
		if given := orElse(tags.take(r.tag).text(), r.name); given != r.role {
			roles = append(roles, given+": "+r.role)
		}
	}
	if len(roles) > 0 {
		s.set("roles", "{"+strings.Join(roles, ", ")+"}")
	}
}
