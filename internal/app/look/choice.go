package look

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// choice is the way in which a source's documents are made, by its first file.
type choice struct {
	keys []string // of the source, as `text: body`
	note string   // for people; empty if there is nothing to say
}

// usual returns the names under which texts, ids and masks usually stand, the most telling first.
func usualTexts() []string {
	return []string{"text", "content", "raw_content", "body", "document", "article", "code", "markdown", "story", "txt"}
}
func usualIDs() []string { return []string{"input_ids", "tokens", "token_ids", "ids"} }
func usualMasks() []string {
	return []string{"loss_mask", "completion_mask", "assistant_masks", "mask"}
}

// usualStarts is the name of the column of starts in packed files of Megatron-Bridge.
const usualStarts = "seq_start_id"

// usualPairs are the names of a prompt and its completion.
func usualPairs() [][2]string {
	return [][2]string{{"prompt", "completion"}, {"prompt", "response"}, {"instruction", "output"},
		{"instruction", "response"}, {"question", "answer"}, {"input", "output"}}
}

// choose chooses the fields of a document.
func (d *File) choose() choice {
	if d.Tokens != nil || len(d.Fields) == 0 {
		return choice{}
	}
	for _, way := range []func() (choice, bool){d.preference, d.chat, d.pair, d.ids, d.text} {
		if c, ok := way(); ok {
			return c
		}
	}
	return choice{keys: []string{"text: text"},
		note: "no field holds a text in most records; write the field of the text: " + d.fieldNames()}
}

// fieldNames lists the fields.
func (d *File) fieldNames() string {
	var names []string
	for _, x := range d.Fields {
		names = append(names, x.Name)
	}
	return strings.Join(names, ", ")
}

// field returns a field by its name, nil if there is none.
func (d *File) field(name string) *Field {
	i := slices.IndexFunc(d.Fields, func(x Field) bool { return x.Name == name })
	if i < 0 {
		return nil
	}
	return &d.Fields[i]
}

// most reports whether n is more than half of the records that were looked at.
func (d *File) most(n int) bool { return 2*n > d.Looked }

// tokenizersTemplate is the key for messages that the tokenizer's chat template renders.
const tokenizersTemplate = "template: tokenizer"

// chat recognises conversations: lists of objects with a role and a content.
func (d *File) chat() (choice, bool) {
	for _, x := range d.Fields {
		for _, kind := range x.Kinds {
			inside, ok := strings.CutPrefix(kind, "list of objects of ")
			if !ok {
				continue
			}
			has := strings.Split(inside, ", ")
			switch {
			case slices.Contains(has, "role") && slices.Contains(has, "content"):
				return choice{keys: []string{"messages: " + plain(x.Name), tokenizersTemplate}}, true
			case slices.Contains(has, "from") && slices.Contains(has, "value"):
				return choice{keys: []string{"messages: " + plain(x.Name), "role: from",
					"content: value", "roles: {human: user, gpt: assistant}", tokenizersTemplate}}, true
			}
		}
	}
	return choice{}, false
}

// preference recognises preference pairs.
func (d *File) preference() (choice, bool) {
	if d.field("chosen") == nil || d.field("rejected") == nil {
		return choice{}, false
	}
	c := choice{keys: []string{"chosen: chosen", "rejected: rejected"}}
	if d.field("prompt") != nil {
		c.keys = append(c.keys, "prompt: prompt")
	}
	if !d.most(d.field("chosen").texts) {
		c.keys = append(c.keys, tokenizersTemplate)
	}
	return c, true
}

// pair recognises prompts and completions. An instruction may have a field with its input, as in Alpaca.
func (d *File) pair() (choice, bool) {
	for _, p := range usualPairs() {
		prompt, completion := d.field(p[0]), d.field(p[1])
		if prompt == nil || completion == nil || !d.most(prompt.texts) || !d.most(completion.texts) {
			continue
		}
		c := choice{keys: []string{"prompt: " + p[0], "completion: " + p[1]}}
		if input := d.field("input"); p[0] == "instruction" && input != nil && d.most(input.texts) {
			c.keys[0] = `prompt: "{instruction}\n\n{input}\n\n"`
			c.note = "the text between the fields is for you to choose"
		}
		return c, true
	}
	return choice{}, false
}

// ids recognises columns of token ids, and the mask and the starts beside them.
func (d *File) ids() (choice, bool) {
	for _, name := range usualIDs() {
		x := d.field(name)
		if x == nil || x.ids < x.Present || !d.most(x.ids) {
			continue
		}
		c := choice{keys: []string{"tokens: " + name}}
		for _, mask := range usualMasks() {
			if m := d.field(mask); m != nil && m.masks == m.Present && d.most(m.masks) {
				c.keys = append(c.keys, "mask: "+mask)
				break
			}
		}
		if s := d.field(usualStarts); s != nil && s.ids == s.Present && d.most(s.ids) {
			c.keys = append(c.keys, "starts: "+usualStarts)
		}
		return c, true
	}
	return choice{}, false
}

// text chooses the field of the text: a usual name, else the field with the most text.
func (d *File) text() (choice, bool) {
	best := -1
	for _, name := range usualTexts() {
		if x := d.field(name); x != nil && d.most(x.texts) {
			best = slices.IndexFunc(d.Fields, func(f Field) bool { return f.Name == name })
			break
		}
	}
	c := choice{}
	for i := range d.Fields {
		if x := &d.Fields[i]; best < 0 && d.most(x.texts) || best >= 0 && c.note != "" &&
			d.most(x.texts) && x.bytes > d.Fields[best].bytes {
			best, c.note = i, "the field with the most text; check that it is the right one"
		}
	}
	if best < 0 {
		return c, false
	}
	x := &d.Fields[best]
	if x.Name != "text" {
		c.keys = append(c.keys, "text: "+plain(x.Name))
	}
	if gaps := d.Looked - len(d.Bad) - x.texts; gaps > 0 {
		c.keys = append(c.keys, "missing: skip")
		c.note += fmt.Sprintf("; %d of the first %d records have no %s", gaps, d.Looked, x.Name)
		c.note = strings.TrimPrefix(c.note, "; ")
	}
	return c, true
}

// plain returns a name as YAML has it.
func plain(name string) string {
	for _, r := range name {
		if !(r == '_' || r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return strconv.Quote(name)
		}
	}
	if _, err := strconv.ParseFloat(name, 64); err == nil {
		return strconv.Quote(name)
	}
	return name
}
