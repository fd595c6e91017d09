package importer

import (
	"path"
	"strings"
)

func isLLaMAFactory(top value) bool {
	for _, p := range top.pairs() {
		x := p.value
		for _, key := range []string{"file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url",
			"cloud_file_name"} {
			if x.peek(key).isSet() {
				return true
			}
		}
	}
	return false
}

// llama is a data set of LLaMA-Factory. Without `columns`, its columns have default names. With `columns`, those that
// are not named do not exist.
type llama struct {
	*source
	columns, tags value
}

func (l *llama) column(key, usual string) string {
	if !l.columns.isMap() {
		return usual
	}
	return l.columns.take(key).text()
}

// readLLaMAFactory reads a dataset_info.json.
func readLLaMAFactory(m *mixture, top value) error {
	for _, p := range top.pairs() {
		x := top.take(p.key)
		l := &llama{m.add(p.key), x.take("columns"), x.take("tags")}
		l.place(m, x)
		format, isRanking := x.take("formatting").text(), x.take("ranking").text() == "true"
		l.keys(format == "sharegpt" || format == "openai", isRanking)
		l.notes = append(l.notes, l.columns.left("columns.")...)
		l.notes = append(l.notes, l.tags.left("tags.")...)
		l.notes = append(l.notes, x.left("")...)
	}
	return nil
}

// place sets the path of the files.
func (l *llama) place(m *mixture, x value) {
	config, split := x.take("subset").text(), x.take("split").text()
	file, hub, folder := x.take("file_name").text(), x.take("hf_hub_url").text(), x.take("folder").text()
	other := ""
	for _, key := range []string{"script_url", "ms_hub_url", "om_hub_url"} {
		if v := x.peek(key).text(); v != "" && other == "" {
			other = v
			if hub == "" && file == "" {
				x.take(key)
				l.notes = append(l.notes, key+": "+v+" is not read: write its records into files, and "+
					"name them as `path`")
			}
		}
	}
	switch cloud := x.take("cloud_file_name").text(); {
	case hub != "":
		l.hub(path.Join(hub, folder), config, orDefault(split, "train"))
		return
	case cloud != "":
		l.set("path", m.path(cloud))
	case file != "":
		l.set("path", m.path(path.Join(file, folder)))
	default: // its records are to be written into files
		l.set("format", "jsonl")
		l.set("path", m.path(path.Join(other, "*.jsonl")))
	}
	if split == "train" {
		split = ""
	}
	l.part(config, split)
}

// keys sets the fields of the records.
func (l *llama) keys(isChat, isRanking bool) {
	field := quote(orDefault(l.column("messages", ""), "conversations"))
	kto := l.column("kto_tag", "")
	switch {
	case isRanking:
		if !isChat {
			field = quote(l.promptOfRanking())
		}
		l.set("prompt", field)
		l.set("chosen", quote(orDefault(l.column("chosen", ""), "chosen")))
		l.set("rejected", quote(orDefault(l.column("rejected", ""), "rejected")))
	case isChat:
		l.set("messages", field)
		if tools := l.columns.take("tools").text(); tools != "" {
			l.set("tools", quote(tools))
			l.notes = append(l.notes,
				"chatml reads no tools: name a template that does, or leave them out with `unused`")
		}
	default:
		l.pair()
	}
	if isChat || isRanking {
		l.set("template", "chatml")
		l.notes = append(l.notes, "the file names no template; chatml is an example")
	}
	if isChat {
		l.setTags()
	}
	if kto != "" {
		l.set("filter", doubleQuote(kto+" == true"))
		l.notes = append(l.notes, "columns.kto_tag: "+kto+": records with false are bad answers, and are left out")
	}
}

// pair sets a prompt with its answer, or a text if there are no answers.
func (l *llama) pair() {
	prompt := orDefault(l.column("prompt", "instruction"), "instruction")
	query, response := l.column("query", "input"), l.column("response", "output")
	if response == "" && query == "" {
		l.set("text", quote(prompt))
		return
	}
	if query == "" {
		l.set("prompt", quote(prompt))
	} else {
		l.set("prompt", doubleQuote("{"+prompt+"}\n{"+query+"}"))
		l.notes = append(l.notes, "a record without "+query+" has no line for it there; here the line is empty, and a "+
			"record in which it is absent or null is bad")
	}
	l.set("completion", quote(orDefault(response, "output")))
	l.notes = append(l.notes, "LLaMA-Factory renders prompt and answer with a chat template; here they are plain text")
}

// promptOfRanking returns the prompt of preference pairs, which is one field.
func (l *llama) promptOfRanking() string {
	prompt := orDefault(l.column("prompt", "instruction"), "instruction")
	if query := l.column("query", "input"); query != "" {
		l.notes = append(l.notes, "columns.query: "+query+": LLaMA-Factory puts it behind the prompt; a preference "+
			"pair has one field for its prompt, so write both into it")
	}
	return prompt
}

// setTags sets the names inside a message. Without tags they are those of ShareGPT.
func (l *llama) setTags() {
	l.set("role", quote(orDefault(l.tags.take("role_tag").text(), "from")))
	l.set("content", quote(orDefault(l.tags.take("content_tag").text(), "value")))
	roles := []string{}
	for _, r := range []struct{ tag, name, role string }{
		{"user_tag", "human", "user"}, {"assistant_tag", "gpt", "assistant"},
		{"observation_tag", "observation", "tool"}, {"function_tag", "function_call", "assistant"},
		{"system_tag", "system", "system"},
	} {
		given := l.tags.take(r.tag).text()
		if given == "" && l.tags.isMap() && r.tag != "user_tag" && r.tag != "assistant_tag" {
			continue // with tags, those that are not named do not exist
		}
		if given = orDefault(given, r.name); given != r.role {
			roles = append(roles, quote(given)+": "+r.role)
		}
	}
	if len(roles) > 0 {
		l.set("roles", "{"+strings.Join(roles, ", ")+"}")
	}
}
