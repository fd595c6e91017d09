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
	n := v.peek("repetitions").text()
	if share == 0 {
		n = orDefault(n, "1") // of an epoch of a blend_epochized
	}
	if n != "" && !strings.Contains(n, ".") {
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
		if inside.take("shuffle").text() != "true" {
			m.top = append(m.top, setting{"shuffle", "none"}) // Streaming's default
		}
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
