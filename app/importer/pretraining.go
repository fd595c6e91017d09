package importer

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// isMegatron: a blend is text, a list, or a mapping of splits to lists.
func isMegatron(top value) bool {
	return top.text() != "" || top.isList() && !top.list()[0].isMap() || top.peek("train").isList()
}

// readMegatron reads the value of --data-path, the file of --data-args-path, or that of --per-split-data-args-path:
// prefixes, or weights and prefixes in turn.
func readMegatron(m *mixture, top value) error {
	words := strings.Fields(top.text())
	if top.isList() {
		words = top.texts()
	}
	if top.isMap() {
		words = top.take("train").texts()
	}
	if len(words) > 0 && (words[0] == "--data-path" || words[0] == "--train-data-path") {
		words = words[1:]
	}
	weighted := len(words) > 1 && isNumber(words[0])
	for i := 0; i < len(words); i++ {
		weight := ""
		if weighted {
			if !isNumber(words[i]) || i+1 == len(words) {
				return fmt.Errorf("%q stands where a weight should be: weights and prefixes come in turn", words[i])
			}
			weight = words[i]
			i++
		}
		if isNumber(words[i]) {
			return fmt.Errorf("%q stands where a prefix should be", words[i])
		}
		s := m.add(strings.TrimSuffix(path.Base(words[i]), "_text_document"))
		s.set("format", "megatron")
		s.set("path", m.path(strings.TrimSuffix(words[i], ".bin")))
		s.weight = weight
	}
	return nil
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

func isOLMo(top value) bool { return hasItem(olmoSources(top), "target_ratio") }

// hasItem reports whether the first item of a list is a mapping with a key.
func hasItem(list value, key string) bool {
	return list.isList() && len(list.list()) > 0 && list.list()[0].peek(key).isSet()
}

func olmoSources(top value) value {
	if top.isList() {
		return top
	}
	if s := top.peek("source_list", "sources"); s.isSet() {
		return s
	}
	if s := top.peek("source_mixture_config", "source_list", "sources"); s.isSet() {
		return s
	}
	return top.peek("sources")
}

// readOLMo reads a source mixture of OLMo-core.
func readOLMo(m *mixture, top value) error {
	m.unit = "tokens"
	for _, key := range []string{"sources", "source_list", "source_mixture_config"} {
		top.take(key)
	}
	if tokens := top.take("requested_tokens").text(); tokens != "" {
		m.top = append(m.top, setting{"stop", "{tokens: " + tokens + "}"})
	}
	m.top = appendSet(m.top, "seed", top.take("seed"))
	for _, x := range olmoSources(top).list() {
		s := m.add(x.take("source_name").text())
		s.set("format", "olmo")
		s.set("path", m.paths(x.take("paths").texts()))
		s.weight = x.take("target_ratio").text()
		// By default, OLMo-core repeats no token.
		ratio := orDefault(x.peek("max_repetition_ratio").text(), "1")
		if n, err := strconv.ParseFloat(ratio, 64); err == nil && n == float64(int(n)) {
			x.take("max_repetition_ratio")
			s.set("max_epochs", strconv.Itoa(int(n)))
			s.set("on_exhausted", "renormalize")
		}
		s.notes = append(s.notes, x.left("")...)
	}
	m.note("OLMo-core ends documents at its tokenizer's EOS if it knows it: set `eos` and `dtype` of each source for " +
		"the same documents")
	if top.peek("global_batch_size").isSet() {
		m.note("global_batch_size: %s counts tokens; here it counts sequences", top.take("global_batch_size").text())
	}
	return nil
}

func appendSet(to []setting, key string, v value) []setting {
	if v.text() != "" {
		to = append(to, setting{key, v.text()})
	}
	return to
}

func isNanotron(top value) bool { return top.peek("data_stages").isList() }

// readNanotron reads the stages of nanotron's data section. Its folders are of datatrove.
func readNanotron(m *mixture, top value) error {
	tokens := top.take("tokens")
	m.set("sequence_length", tokens.take("sequence_length"))
	if tokens.isMap() {
		m.rest("tokens.", tokens)
	}
	byFolder := map[string]*source{}
	for i, stage := range top.take("data_stages").list() {
		data := stage.take("data")
		set := data.take("dataset")
		folders := set.take("dataset_folder")
		var weights []setting
		add := func(folder, weight string) {
			s := byFolder[folder]
			if s == nil {
				s = m.add(path.Base(folder))
				s.set("format", "datatrove")
				s.set("path", m.path(folder))
				byFolder[folder] = s
			}
			weights = append(weights, setting{s.name, weight})
		}
		given := set.take("dataset_weights").texts()
		for n, folder := range folders.list() {
			weight := "1"
			if n < len(given) {
				weight = given[n]
			}
			add(folder.text(), weight)
		}
		for _, p := range folders.pairs() {
			add(p.key, p.value.text())
		}
		start, err := strconv.Atoi(stage.take("start_training_step").text())
		if err != nil || start < 1 {
			return fmt.Errorf("stage %d has no start_training_step from 1 on", i)
		}
		at := fmt.Sprintf("data_stages[%d].", i)
		name := stage.take("name").text()
		m.schedule = append(m.schedule, milestone{name: name, from: strconv.Itoa(start - 1), weights: weights})
		if i == 0 {
			m.set("seed", data.take("seed"))
		}
		m.rest(at+"data.dataset.", set)
		m.rest(at+"data.", data)
		m.rest(at, stage)
	}
	return nil
}

func isLevanter(top value) bool {
	return top.peek("data", "configs").isMap() || top.peek("configs").isMap()
}

// readLevanter reads Levanter's data section.
func readLevanter(m *mixture, top value) error {
	data := top
	if top.peek("data").isMap() {
		data = top.take("data")
		defer func() { m.rest("data.", data) }()
	}
	if id := data.take("tokenizer").text(); id != "" {
		m.top = append(m.top, setting{"tokenizer", "{path: " + quote(id) + "}"})
		m.note("tokenizer: %s names a model of the hub; the path here must be the model's directory", id)
	}
	weights := data.take("train_weights")
	for _, p := range data.take("configs").pairs() {
		s, set := m.add(p.key), p.value
		switch urls := set.take("train_urls").texts(); {
		case len(urls) > 0:
			s.set("path", m.paths(urls))
		case set.peek("id").text() != "":
			s.hub(set.take("id").text(), set.take("name").text(), "train")
		default:
			return fmt.Errorf("data.configs.%s has neither train_urls nor id", p.key)
		}
		format := set.take("format")
		s.set("text", format.take("text_key").text())
		s.set("text", set.take("text_key").text())
		if messages := format.take("messages_field").text(); messages != "" || format.peek("type").text() == "chat" {
			s.set("messages", quote(orDefault(messages, "messages")))
		}
		for _, left := range format.left("format.") {
			if left != "format.type: text" && left != "format.type: chat" {
				s.notes = append(s.notes, left)
			}
		}
		s.notes = append(s.notes, set.left("")...)
		s.weight = weights.take(p.key).text()
	}
	m.rest("train_weights.", weights)
	return m.levanterStages(weights)
}

// levanterStages reads weights that change: a list of pairs of a start and weights.
func (m *mixture) levanterStages(weights value) error {
	for i, stage := range weights.list() {
		items := stage.list()
		if len(items) != 2 || !items[1].isMap() {
			return errors.New("train_weights is neither a mapping nor a list of pairs of a start and a mapping")
		}
		k := milestone{name: "stage " + strconv.Itoa(i), from: items[0].text()}
		for _, p := range items[1].pairs() {
			k.weights = append(k.weights, setting{p.key, p.value.text()})
		}
		m.schedule = append(m.schedule, k)
	}
	if len(m.schedule) > 0 {
		m.note("the starts of train_weights may count sequences in the file; here they are steps")
	}
	return nil
}
