package look

import (
	"fmt"
	"slices"
	"strings"

	"millrace/app/setup"
)

// wanted returns the likely use of a field, by its name or its values; empty: unknown.
func (d *File) wanted(x *Field, c *choice) string {
	numbers := slices.ContainsFunc(x.Kinds, func(kind string) bool { return kind == "number" })
	switch name := strings.ToLower(x.Name); {
	case x.Present == 0:
		return "null in all records"
	case slices.Contains(setup.UsualTools(), name):
		if x.filled == 0 {
			return "empty in all records"
		}
		return "wanted, if the model is to call tools: `messages` takes `tools: " + plain(x.Name) + "`"
	case slices.Contains([]string{"system", "system_prompt"}, name):
		return "wanted: no key puts it before the rest; write it into the prompt, or as a first message"
	case name == "history" && x.filled > 0:
		return "wanted: no key puts earlier turns before the prompt; write the records as `messages`"
	case slices.Contains([]string{"context", "passage", "input", "documents"}, name) && c.has("prompt"):
		return fmt.Sprintf("wanted, if the prompt needs it: `prompt: \"{%s}\\n\\n{%s}\"`", x.Name, c.fields["prompt"])
	case name == "chat_template_kwargs":
		return "wanted: variables of the template are set for the source, as `template: {variables: {…}}`"
	case slices.Contains(setup.UsualMasks(), name) || name == "labels" || slices.Contains(setup.UsualPads(), name):
		if x.masks == x.Present && x.padded == 0 && name != "labels" {
			return "1 everywhere"
		}
		return "wanted, if it says which tokens are trained on"
	case slices.Contains([]string{"lang", "language", "quality", "score", "split", "subset"}, name) ||
		numbers && strings.Contains(name, "score"):
		return "a filter may use it: `filter: '" + x.Name + " …'`"
	case slices.Contains([]string{"id", "url", "source", "meta", "metadata"}, name):
		return "`fields: [" + x.Name + "]` passes it to the trainer"
	}
	return ""
}

// unused describes the fields that the documents are not made of, one line each.
func (d *File) unused(c *choice) (lines []string) {
	for i := range d.Fields {
		x := &d.Fields[i]
		if slices.Contains(c.used, x.Name) {
			continue
		}
		line := "not used: " + x.Name
		if kind := strings.Join(x.Kinds, "; "); kind != "" {
			line += ", " + kind
		}
		if x.Sample != "" {
			line += ", as " + x.Sample
		}
		if use := d.wanted(x, c); use != "" {
			line += " (" + use + ")"
		}
		lines = append(lines, line)
	}
	return lines
}
