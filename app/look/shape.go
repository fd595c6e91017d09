package look

import (
	"fmt"
	"slices"
	"strings"

	"millrace/app/setup"
)

// shape is a kind of records that people have: the fields that show it, and the keys of a source that reads it.
type shape struct {
	name  string
	needs []part // each must be there
	takes []part // each is taken if it is there
	// chat says that a chat template renders the messages.
	chat bool
	// refusal says why no source can train on such records faithfully; empty if one can.
	refusal string
}

// part is a field of a shape.
type part struct {
	key   string   // of the source that names the field; empty: the field only shows the shape
	names []string // the usual names of the field, the most telling first; none: any
	is    func(d *File, x *Field) bool
}

// shapes returns the shapes of records, the most telling first.
func shapes() []shape {
	all := []shape{
		{name: "steps with a verdict on each", needs: []part{
			{names: []string{"completions", "steps"}, is: isList}, {names: []string{"labels"}, is: isVerdicts}},
			refusal: "their labels judge single steps of an answer, and no key trains on judged steps"},
		{name: "preference pairs of messages", chat: true, needs: []part{
			{key: "chosen", names: []string{"chosen"}, is: isTalk},
			{key: "rejected", names: []string{"rejected"}, is: isTalk}},
			takes: []part{{key: "prompt", names: usualPrompts(), is: isUnanswered}}},
		{name: "preference pairs", needs: []part{
			{key: "chosen", names: []string{"chosen"}, is: isText},
			{key: "rejected", names: []string{"rejected"}, is: isText}},
			takes: []part{{key: "prompt", names: usualPrompts(), is: isText}}},
	}
	for _, p := range usualPairs() {
		all = append(all, shape{name: "prompts and completions of messages", chat: true, needs: []part{
			{key: "prompt", names: p[:1], is: isTalk}, {key: "completion", names: p[1:], is: isTalk}},
			takes: []part{usualTools()}})
	}
	all = append(all,
		shape{name: "conversations", chat: true,
			needs: []part{{key: "messages", names: usualTalks(), is: isTalk}}, takes: []part{usualTools()}},
		shape{name: "prompts of messages", needs: []part{{names: usualPrompts(), is: isUnansweredTalk}},
			refusal: "they have prompts without answers, so there is nothing to train on"},
		shape{name: "conversations", chat: true, needs: []part{{key: "messages", is: isTalk}},
			takes: []part{usualTools()}})
	for _, p := range usualPairs() {
		all = append(all, shape{name: "prompts and completions", needs: []part{
			{key: "prompt", names: p[:1], is: isText}, {key: "completion", names: p[1:], is: isText}}})
	}
	return append(all, shape{name: "token ids", needs: []part{{key: "tokens", names: usualIDs(), is: isIDs}},
		takes: []part{{key: "labels", names: []string{"labels"}, is: isLabels},
			{key: "mask", names: setup.UsualMasks(), is: isMask},
			{key: "starts", names: []string{setup.UsualStarts}, is: isIDs}}})
}

// The usual names of fields, the most telling first.
func usualTexts() []string {
	return []string{"text", "content", "raw_content", "body", "document", "article", "code", "markdown", "story", "txt"}
}
func usualIDs() []string     { return []string{"input_ids", "tokens", "token_ids", "ids"} }
func usualPrompts() []string { return []string{"prompt", "question", "instruction", "query", "input"} }
func usualTalks() []string {
	return []string{"messages", "conversations", "conversation", "dialogue", "dialog", "chat", "turns"}
}
func usualTools() part { return part{key: "tools", names: setup.UsualTools(), is: isTools} }

// usualPairs are the names of a prompt and its completion.
func usualPairs() [][]string {
	return [][]string{{"prompt", "completion"}, {"prompt", "response"}, {"instruction", "output"},
		{"instruction", "response"}, {"question", "answer"}, {"question", "response"}, {"query", "response"},
		{"query", "answer"}, {"input", "output"}, {"input", "target"}, {"inputs", "targets"}, {"prompt", "answer"},
		{"problem", "solution"}}
}

func isText(d *File, x *Field) bool { return d.most(x.texts) }
func isList(d *File, x *Field) bool { return d.most(x.lists) }
func isIDs(d *File, x *Field) bool  { return d.most(x.ids) && x.ids == x.Present }
func isMask(d *File, x *Field) bool { return d.most(x.masks) && x.masks == x.Present }
func isTalk(d *File, x *Field) bool { return d.most(x.talk.records) }

func isVerdicts(d *File, x *Field) bool { return d.most(x.verdicts) && x.verdicts == x.Present }

// isLabels recognises labels of the ids beside them: the id itself, or -100.
func isLabels(d *File, x *Field) bool { return d.most(x.lists) && d.labels == x.Present }

// isTools recognises lists of tools, and their JSON texts. Not every record needs some.
func isTools(_ *File, x *Field) bool { return x.lists+x.texts == x.Present && x.filled > 0 }

func isUnansweredTalk(d *File, x *Field) bool { return isTalk(d, x) && !x.talk.isAnswered() }

// isUnanswered recognises the prompt of preference pairs. Answers that begin with the user's turn contain it already.
func isUnanswered(d *File, x *Field) bool {
	chosen := d.field("chosen")
	return (d.most(x.texts) || isTalk(d, x)) && chosen != nil && !chosen.talk.beginsWithUser()
}

// find returns the field of a part, nil if there is none.
func (d *File) find(p part) *Field {
	for _, name := range p.names {
		if x := d.field(name); x != nil && p.is(d, x) {
			return x
		}
	}
	if i := slices.IndexFunc(d.Fields, func(x Field) bool { return p.is(d, &x) }); len(p.names) == 0 && i >= 0 {
		return &d.Fields[i]
	}
	return nil
}

// choice returns the keys of a source whose records have the shape; ok is false if they do not.
func (s *shape) choice(d *File) (c choice, ok bool) {
	for _, p := range s.needs {
		x := d.find(p)
		if x == nil {
			return choice{}, false
		}
		c.take(p.key, x)
	}
	if c.refusal = s.refusal; c.refusal != "" {
		return c, true
	}
	for _, p := range s.takes {
		if x := d.find(p); x != nil && !c.has(p.key) && !(p.key == "mask" && c.has("labels")) {
			c.take(p.key, x)
		}
	}
	for _, rule := range []func(d *File, c *choice){joinInput, mapRoles, leaveBad, checkMedia, checkIDs} {
		if rule(d, &c); c.refusal != "" {
			return c, true
		}
	}
	if s.chat {
		c.keys = append(c.keys, tokenizersTemplate)
	}
	d.fillGaps(&c)
	return c, true
}

// joinInput adds the field with the input of an instruction to the prompt, as Alpaca has it.
func joinInput(d *File, c *choice) {
	input := d.field("input")
	i := slices.Index(c.keys, "prompt: instruction")
	if i < 0 || input == nil || !d.most(input.texts) || !c.has("completion") {
		return
	}
	c.keys[i] = `prompt: "{instruction}\n\n{input}\n\n"`
	c.used = append(c.used, "input")
	c.say("the text between the fields is for you to choose")
}

// leaveBad leaves out records that are marked as bad answers, as data for KTO has them. Their answers must never be
// targets.
func leaveBad(d *File, c *choice) {
	if !c.has("completion") && !c.has("messages") {
		return
	}
	for _, name := range setup.UsualVerdicts() {
		x := d.field(name)
		if x == nil || x.bools == 0 || x.bools != x.Present {
			continue
		}
		c.take("", x)
		c.keys = append(c.keys, fmt.Sprintf("filter: %q", plain(name)+" == true"))
		c.say("records with `" + name + ": false` are bad answers, and are left out; a loss that needs them, as that " +
			"of KTO, must get `fields: [" + name + "]` in place of the filter, and turn their sign itself")
		return
	}
}

// checkMedia refuses records with images, videos or sound.
func checkMedia(d *File, c *choice) {
	var unused []string
	for i := range d.Fields {
		x := &d.Fields[i]
		if slices.Contains(setup.UsualMedia(), x.Name) && x.filled > 0 && !slices.Contains(c.used, x.Name) {
			unused = append(unused, plain(x.Name))
			c.refusal = "they have images, videos or sound in `" + x.Name + "`, which no source reads; the line " +
				"below trains on the rest alone"
		}
		if len(x.talk.media) > 0 && slices.Contains(c.used, x.Name) {
			c.refusal = "their messages have parts of the type " + strings.Join(x.talk.media, ", ") +
				", which no source reads"
		}
	}
	if len(unused) > 0 && !c.has("text") {
		c.keys = append(c.keys, "unused: ["+strings.Join(unused, ", ")+"]")
	}
}

// checkIDs checks the columns beside ids that say which of them count.
func checkIDs(d *File, c *choice) {
	if !c.has("tokens") {
		return
	}
	if x := d.field("labels"); x != nil && x.filled > 0 && !c.has("labels") {
		c.refusal = "their `labels` are neither the ids beside them nor -100: they are shifted already, or of " +
			"another kind; `labels` takes labels that a model shifts"
		return
	}
	for _, name := range []string{setup.UsualPositions, setup.UsualLengths, setup.UsualBounds} {
		x := d.field(name)
		if x != nil && x.filled > 0 && (name != setup.UsualPositions || x.restarts) && !c.has("starts") {
			c.refusal = "they hold several documents each, with their places in `" + name + "`; write the data " +
				"unpacked, or with a column of starts (`starts: " + setup.UsualStarts + "`)"
			return
		}
	}
	for _, name := range setup.UsualPads() {
		x := d.field(name)
		switch {
		case x == nil || x.masks == 0 || x.padded == 0:
		case x.padded > x.right:
			c.refusal = "their ids have pads at the beginning (`" + name + "` is 0); write the data without pads"
			return
		case c.has("labels") || c.has("mask"):
			c.say("`" + name + "` has zeros: the ids have pads, which take room in each step; write the data " +
				"without them")
		default:
			c.take("mask", x)
			c.say("`" + name + "` has zeros: pads are not trained on, but take room in each step; write the data " +
				"without them")
		}
	}
}

// fillGaps leaves records out that lack a field of their document, if there are some.
func (d *File) fillGaps(c *choice) {
	for _, name := range c.used {
		x := d.field(name)
		gaps := d.Looked - len(d.Bad) - x.Present
		if gaps <= 0 || c.isOptional(name) {
			continue
		}
		if !c.has("missing") {
			c.keys = append(c.keys, "missing: skip")
		}
		c.say(fmt.Sprintf("%d of the first %d records have no %s", gaps, d.Looked, name))
	}
}
