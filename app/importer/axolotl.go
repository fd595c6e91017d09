package importer

import (
	"path"
	"slices"
	"strings"
)

func isAxolotl(top value) bool {
	return hasItem(top.peek("datasets"), "path") || hasItem(top.peek("pretraining_dataset"), "path")
}

// readAxolotl reads the data sets of an axolotl configuration. They are concatenated, so their sizes are the weights.
func readAxolotl(m *mixture, top value) error {
	m.set("sequence_length", top.take("sequence_len"))
	m.set("seed", top.take("seed"))
	if n := top.take("num_epochs").text(); isWhole(n) {
		m.top = append(m.top, setting{"stop", "{epochs: " + n + "}"})
	} else if n != "" {
		m.note("num_epochs: %s is no whole number", n)
	}
	if model := top.take("base_model").text(); model != "" {
		m.top = append(m.top, setting{"tokenizer", "{path: " + quote(model) + "}"})
		m.note("base_model: %s: the tokenizer's path here must be the model's directory", model)
	}
	if top.take("sample_packing").text() != "true" {
		m.note("sample_packing is off, as by default: write `packing: pad` for one document a row")
	}
	trainOn := ""
	if top.take("train_on_inputs").text() == "true" {
		trainOn = "all"
	}
	template := m.axolotlTemplate(top)
	for _, x := range top.take("datasets").list() {
		s := m.axolotlSource(x)
		m.axolotlKeys(s, x, template, trainOn)
		s.notes = append(s.notes, x.left("")...)
	}
	for _, x := range top.take("pretraining_dataset").list() {
		s := m.axolotlSource(x)
		x.take("type")
		s.set("text", quote(orDefault(x.take("text_column").text(), "text")))
		s.notes = append(s.notes, x.left("")...)
	}
	return nil
}

// dataEndings are the endings of the names of data files.
func dataEndings() []string {
	return []string{".json", ".jsonl", ".parquet", ".arrow", ".csv", ".tsv", ".txt", ".gz", ".zst", ".bz2", ".xz"}
}

// axolotlSource adds the source of a data set: a local path if there is one, as for axolotl, else a path of the hub.
func (m *mixture) axolotlSource(x value) *source {
	p := x.take("path").text()
	s := m.add(strings.TrimSuffix(path.Base(p), path.Ext(p)))
	files := x.take("data_files").texts()
	config, split := x.take("name").text(), x.take("split").text()
	kind := x.take("ds_type").text()
	isLoader := slices.Contains([]string{"json", "parquet", "text", "arrow", "csv"}, p)
	isLocal := strings.HasPrefix(p, ".") || strings.HasPrefix(p, "/") || strings.HasPrefix(p, "~") ||
		strings.Contains(p, "://") || slices.Contains(dataEndings(), path.Ext(p)) || strings.Count(p, "/") > 1 ||
		m.isThere(p)
	switch {
	case isLoader:
		kind = p
		s.set("path", m.paths(files))
	case isLocal && len(files) > 0:
		s.set("path", m.paths(files))
	case isLocal:
		s.set("path", m.path(p))
	default:
		if revision := x.take("revision").text(); revision != "" {
			p += "@" + revision
		}
		s.hub(p, config, orDefault(split, "train"))
		if len(files) > 0 {
			s.notes = append(s.notes, "data_files: ["+strings.Join(files, ", ")+"]: write them behind the path")
		}
		return s
	}
	if kind != "" && kind != "json" { // a file of JSON shows by itself whether it has lines
		s.settings = append([]setting{{"format", kind}}, s.settings...)
	}
	if kind == "text" {
		s.notes = append(s.notes, "axolotl takes each line of a text file as a document")
	}
	if split == "train" && path.Ext(p) != "" {
		split = "" // a file has no other
	}
	s.part(config, split)
	return s
}

// isThere reports whether a path of the file exists on the disk.
func (m *mixture) isThere(p string) bool {
	return m.exists != nil && (m.exists(path.Join(m.dir, p)) || m.exists(p))
}

// axolotlTemplate returns the chat template of a data set or of the whole file; empty if it names none.
func (m *mixture) axolotlTemplate(x value) string {
	name, jinja := x.take("chat_template").text(), x.take("chat_template_jinja").text()
	switch {
	case strings.HasSuffix(jinja, ".jinja"):
		return "{path: " + m.path(jinja) + "}"
	case jinja != "":
		m.note("chat_template_jinja: write this template into a file, and name it as `template: {path: FILE}`")
		return "tokenizer"
	case name == "chatml":
		return name
	case name == "" || name == "tokenizer_default":
		return ""
	case strings.HasPrefix(name, "tokenizer_default_fallback_"):
		return "tokenizer"
	}
	m.note("chat_template: %s is a template of axolotl: write it into a file, and name it as `template: {path: FILE}`",
		name)
	return "tokenizer"
}

// alpacaPrompt is axolotl's prompt of a record with an input.
const alpacaPrompt = `"Below is an instruction that describes a task, paired with an input that provides further ` +
	`context. Write a response that appropriately completes the request.\n\n### Instruction:\n{instruction}\n\n` +
	`### Input:\n{input}\n\n### Response:\n"`

// axolotlKeys sets the fields of axolotl's types of prompts, with its defaults.
func (m *mixture) axolotlKeys(s *source, x value, template, trainOn string) {
	kind := x.take("type")
	name, _, _ := strings.Cut(kind.text(), ".")
	if own := m.axolotlTemplate(x); own != "" {
		template = own
	}
	switch {
	case kind.isMap():
		s.axolotlPrompt(kind)
	case name == "completion":
		s.set("text", quote(orDefault(x.take("field").text(), "text")))
	case name == "chat_template":
		s.axolotlChat(x, orDefault(template, "tokenizer"), "messages", "role", "content")
		s.set("train_on", trainOn)
	case strings.HasPrefix(name, "sharegpt"):
		s.axolotlChat(x, orDefault(template, "chatml"), "conversations", "from", "value")
		s.set("train_on", trainOn)
	case name == "alpaca":
		s.set("prompt", alpacaPrompt)
		s.set("completion", "output")
		s.notes = append(s.notes, "type: alpaca has another prompt for records whose input is empty or absent")
	case !kind.isSet():
		s.set("tokens", "input_ids")
		s.set("labels", "labels")
	default:
		s.notes = append(s.notes, "type: "+kind.short()+": no key is set for it, so the field `text` would be read")
	}
	if trainOn != "" && name != "completion" && name != "chat_template" {
		s.notes = append(s.notes, "train_on_inputs: true: prompts are not trained on here")
	}
}

// axolotlPrompt sets a pair whose prompt the file describes.
func (s *source) axolotlPrompt(kind value) {
	field := func(key, other string) string { return orDefault(kind.take(key).text(), other) }
	instruction, input := field("field_instruction", "instruction"), field("field_input", "input")
	format := field("format", "{instruction} {input} ")
	format = strings.NewReplacer("{instruction}", "{"+instruction+"}", "{input}", "{"+input+"}").Replace(format)
	system := field("system_prompt", "")
	if strings.ContainsAny(system, "{}") {
		system = strings.NewReplacer("{", "{{", "}", "}}").Replace(system)
	}
	s.set("prompt", doubleQuote(system+format))
	s.set("completion", quote(field("field_output", "output")))
	s.notes = append(s.notes, "axolotl has another prompt, no_input_format, for records whose "+input+
		" is empty or absent")
	s.notes = append(s.notes, kind.left("type.")...)
}

// axolotlChat sets a conversation. Its names of fields and roles are axolotl's, if the data set gives no others.
func (s *source) axolotlChat(x value, template, messages, role, content string) {
	s.set("messages", quote(orDefault(x.take("field_messages").text(), messages)))
	s.set("template", template)
	names := x.take("message_property_mappings")
	old := [2]string{x.take("message_field_role").text(), x.take("message_field_content").text()}
	s.set("role", quote(orDefault(names.take("role").text(), orDefault(old[0], role))))
	s.set("content", quote(orDefault(names.take("content").text(), orDefault(old[1], content))))
	s.notes = append(s.notes, names.left("message_property_mappings.")...)
	roles := []string{"human: user", "gpt: assistant"}
	if given := x.take("roles"); given.isMap() {
		roles = nil
		for _, p := range given.pairs() {
			for _, from := range p.value.texts() {
				if from != p.key {
					roles = append(roles, quote(from)+": "+quote(p.key))
				}
			}
		}
	}
	if len(roles) > 0 {
		s.set("roles", "{"+strings.Join(roles, ", ")+"}")
	}
	if tools := x.take("field_tools").text(); tools != "" {
		s.set("tools", quote(tools))
	} else {
		s.notes = append(s.notes, "axolotl reads a field `tools` if the records have it: then write `tools: tools`")
	}
	trained := x.peek("roles_to_train").texts()
	if len(trained) == 1 && slices.Contains([]string{"assistant", "gpt"}, trained[0]) {
		x.take("roles_to_train")
	}
	if x.peek("train_on_eos").text() == "turn" {
		x.take("train_on_eos")
	}
}
