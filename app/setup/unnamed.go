package setup

import (
	"fmt"
	"slices"
	"strings"

	"millrace/app/config"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
)

// The usual names of fields that say how the documents beside them are to be trained on, the most telling first.

// UsualMasks are the names of masks of tokens.
func UsualMasks() []string {
	return []string{"loss_mask", "completion_mask", "assistant_masks", "assistant_mask", "mask"}
}

// UsualPads are the names of masks that are 0 for pads.
func UsualPads() []string { return []string{"attention_mask"} }

// UsualVerdicts are the names of booleans that say whether an answer is good, as in data for KTO.
func UsualVerdicts() []string { return []string{"label", "kto_tag", "desirable", "is_desirable"} }

// UsualTools are the names of lists of tools.
func UsualTools() []string { return []string{"tools", "functions"} }

// UsualMedia are the names of images, videos and sound.
func UsualMedia() []string {
	return []string{"image", "images", "img", "picture", "jpg", "jpeg", "png", "webp", "video", "videos", "audio",
		"audios", "pixel_values"}
}

// The names of fields that say where the sequences of packed ids are.
const (
	UsualStarts    = "seq_start_id" // where they begin, in packed files of Megatron-Bridge
	UsualPositions = "position_ids"
	UsualLengths   = "seq_lengths"
	UsualBounds    = "cu_seqlens"
)

// unnamed returns the fields that a source does not name and that would change which tokens are trained on. A field
// that any key of the source names is not among them.
func unnamed(spec *sources.Spec, s *config.Source) []sources.Unnamed {
	if spec.Maker == nil {
		return nil
	}
	var all []sources.Unnamed
	named := slices.Concat(spec.Maker.Fields(), spec.Filters.Fields(), spec.Passed, s.Unused)
	for _, beside := range besides(spec.Maker.Fields()[0]) {
		for _, u := range slices.Concat(besideIDs(s, beside), besideTalks(s, beside), besidePairs(spec, s, beside)) {
			if !slices.Contains(named, u.Path) {
				all = append(all, u)
			}
		}
	}
	return append(all, unreadTools(s)...)
}

// unreadTools returns the field of tools that a source names and its chat template does not read. A template that the
// source chooses by its name is taken as it is.
func unreadTools(s *config.Source) []sources.Unnamed {
	if s.Tools == "" || s.Template.Name != "" || slices.Contains(s.Unused, s.Tools) {
		return nil
	}
	if reads, err := s.Template.Choice.ReadsTools(); err != nil || reads {
		return nil
	}
	return []sources.Unnamed{{Path: s.Tools, Key: "tools", Tells: isFilled,
		Why:  "the chat template reads no tools, and calls of tools would be trained on without them",
		Cure: "name another `template`"}}
}

// besides returns the functions that return the path of a field by its name: beside a field, and at the top.
func besides(field string) []func(name string) string {
	all := []func(string) string{func(name string) string { return name }}
	if i := strings.LastIndexByte(field, '.'); i >= 0 {
		all = append(all, func(name string) string { return field[:i+1] + name })
	}
	return all
}

// besideIDs returns the fields beside token ids.
func besideIDs(s *config.Source, beside func(string) string) (all []sources.Unnamed) {
	if s.Tokens == "" {
		return nil
	}
	add := func(name string, tells func([]int64) bool, why, cure string) {
		all = append(all, sources.Unnamed{Path: beside(name), Why: why, Cure: cure, Tells: func(v any) bool {
			numbers, ok := fields.WholeNumbers(v)
			return ok && tells(numbers)
		}})
	}
	hasZero := func(ns []int64) bool { return slices.Contains(ns, 0) }
	for _, name := range UsualPads() {
		add(name, func(ns []int64) bool { return len(ns) > 0 && ns[0] == 0 },
			"its ids have pads at the beginning, which would be text", "write the data without pads")
		if s.Mask+s.Labels == "" {
			add(name, hasZero, "its ids have pads, which would be trained on",
				fmt.Sprintf("write `mask: %s`, or the data without pads", beside(name)))
		}
	}
	if s.Mask+s.Labels == "" {
		add("labels", func(ns []int64) bool { return slices.Contains(ns, fields.UntrainedLabel) },
			"tokens that it labels with -100 would be trained on", fmt.Sprintf("write `labels: %s`", beside("labels")))
		for _, name := range UsualMasks() {
			add(name, hasZero, "tokens that it masks would be trained on",
				fmt.Sprintf("write `mask: %s`", beside(name)))
		}
	}
	if s.Starts == "" {
		const why = "its ids are several sequences, which would be one"
		unpack := fmt.Sprintf("write the data unpacked, or with a column of starts (`starts: %s`)", UsualStarts)
		add(UsualStarts, func(ns []int64) bool { return len(ns) > 1 }, why, fmt.Sprintf("write `starts: %s`",
			beside(UsualStarts)))
		add(UsualPositions, func(ns []int64) bool { return len(ns) > 1 && slices.Contains(ns[1:], 0) }, why, unpack)
		add(UsualLengths, func(ns []int64) bool { return len(ns) > 1 }, why, unpack)
		add(UsualBounds, func(ns []int64) bool { return len(ns) > 2 }, why, unpack)
	}
	return all
}

// besideTalks returns the fields beside conversations, pairs and preference pairs.
func besideTalks(s *config.Source, beside func(string) string) (all []sources.Unnamed) {
	if s.Messages+s.Prompt+s.Chosen == "" {
		return nil
	}
	for _, name := range UsualMedia() {
		all = append(all, sources.Unnamed{Path: beside(name), Tells: isFilled,
			Why:  "images, videos and sound are not read, and the text would be trained on alone",
			Cure: "leave such records out with a filter, or in the data"})
	}
	for _, name := range UsualTools() {
		cure := fmt.Sprintf("write `tools: %s`", beside(name))
		if s.HasPairs() {
			cure = "write the tools into the messages, because preference pairs take none"
		}
		if s.IsRendered() {
			all = append(all, sources.Unnamed{Path: beside(name), Tells: isFilled,
				Why: "calls of tools would be trained on without the tools", Cure: cure})
		}
	}
	return all
}

// besidePairs returns the fields beside answers, each of which has one verdict, and beside prompts.
func besidePairs(spec *sources.Spec, s *config.Source, beside func(string) string) (all []sources.Unnamed) {
	if s.Messages+s.Completion == "" {
		return nil
	}
	for _, name := range UsualVerdicts() {
		path := beside(name)
		all = append(all, sources.Unnamed{Path: path, Tells: func(v any) bool { _, is := v.(bool); return is },
			Why: "answers that it calls bad would be trained on",
			Cure: fmt.Sprintf("take the good ones with `filter: %q`, or give it to a loss that needs it with "+
				"`fields: [%s]`", path+" == true", path)})
	}
	if instruction, input := beside("instruction"), beside("input"); slices.Contains(spec.Maker.Fields(), instruction) {
		all = append(all, sources.Unnamed{Path: input, Tells: isFilled,
			Why:  "answers would be trained on without the input that they need",
			Cure: fmt.Sprintf("write `prompt: \"{%s}\\n\\n{%s}\"`", instruction, input)})
	}
	return all
}

// isFilled reports whether a value has some content. A list may be a JSON text.
func isFilled(v any) bool {
	switch v := v.(type) {
	case string:
		text := strings.TrimSpace(v)
		return text != "" && text != "[]" && text != "null"
	case []byte:
		return len(v) > 0
	case []any:
		return len(v) > 0
	}
	return true
}
