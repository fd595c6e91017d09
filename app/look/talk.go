package look

import (
	"slices"
	"strings"

	"millrace/sources/values"
)

// talk describes the messages in a field.
type talk struct {
	records       int // with a list of messages
	role, content string
	roles         []string // of the turns, in the order of their first appearance
	firsts        []string // of the first turns
	media         []string // types of parts of a content that are no text, sorted
}

// messageKeys are the keys of a message's role and content in the data that people have.
func messageKeys() [][2]string {
	return [][2]string{{"role", "content"}, {"from", "value"}, {"from", "content"}, {"role", "value"}, {"role", "text"},
		{"speaker", "text"}}
}

// add looks at a value of the field.
func (t *talk) add(v any) {
	turns := turnsOf(v)
	if len(turns) == 0 {
		return
	}
	role, content := "", ""
	for _, keys := range messageKeys() {
		if _, ok := turns[0][keys[0]].(string); ok && hasKey(turns, keys[1]) {
			role, content = keys[0], keys[1]
			break
		}
	}
	if role == "" {
		return
	}
	if t.records++; t.role == "" {
		t.role, t.content = role, content
	}
	for i, turn := range turns {
		name, _ := turn[role].(string)
		t.roles = insert(t.roles, name)
		if i == 0 {
			t.firsts = insert(t.firsts, name)
		}
		parts, _ := turn[content].([]any)
		for _, p := range parts {
			part, _ := objectOf(p)
			if kind, _ := part["type"].(string); kind != "" && kind != "text" {
				t.media = insert(t.media, kind)
			}
		}
	}
	slices.Sort(t.media)
}

// turnsOf returns the messages of a value: a list of objects, or its JSON text.
func turnsOf(v any) (turns []map[string]any) {
	if text, ok := v.(string); ok {
		if !strings.HasPrefix(strings.TrimSpace(text), "[{") {
			return nil
		}
		v, _ = values.FromJSON([]byte(text))
	}
	list, _ := v.([]any)
	for _, x := range list {
		turn, ok := objectOf(x)
		if !ok {
			return nil
		}
		turns = append(turns, turn)
	}
	return turns
}

// hasKey reports whether some of the turns has a key.
func hasKey(turns []map[string]any, key string) bool {
	return slices.ContainsFunc(turns, func(turn map[string]any) bool { _, ok := turn[key]; return ok })
}

// objectOf returns the values of an object by their keys.
func objectOf(v any) (map[string]any, bool) {
	object, ok := v.(values.Object)
	out := make(map[string]any, len(object.Keys))
	for i, key := range object.Keys {
		out[key] = object.Values[i]
	}
	return out, ok
}

func insert(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// knownRoles are the roles of chat templates by those of data. Roles of the same name are not among them.
func knownRoles() map[string]string {
	return map[string]string{"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant",
		"bard": "assistant", "model": "assistant", "bot": "assistant", "function_call": "assistant",
		"observation": "tool", "function_response": "tool", "Human": "user", "Assistant": "assistant", "User": "user",
		"System": "system"}
}

// templateRoles are the roles that chat templates know.
func templateRoles() []string {
	return []string{"system", "developer", "user", "assistant", "tool", "ipython", "function", "environment"}
}

// known returns the role of chat templates for a role of data.
func known(role string) string {
	if to := knownRoles()[role]; to != "" {
		return to
	}
	return role
}

func (t *talk) isAnswered() bool {
	return slices.ContainsFunc(t.roles, func(role string) bool { return known(role) == "assistant" })
}

// beginsWithUser reports whether no list of messages begins with an answer.
func (t *talk) beginsWithUser() bool {
	return len(t.firsts) > 0 && !slices.ContainsFunc(t.firsts, func(role string) bool {
		return known(role) == "assistant"
	})
}

// mapRoles adds the keys of messages whose keys or roles are not those of chat templates.
func mapRoles(d *File, c *choice) {
	var t *talk
	answered := false
	for _, key := range []string{"messages", "completion", "chosen"} {
		if x := d.field(c.fields[key]); x != nil && x.talk.records > 0 {
			t, answered = &x.talk, answered || x.talk.isAnswered()
		}
	}
	if t == nil {
		return
	}
	roles := slices.Clone(t.roles)
	for _, key := range []string{"prompt", "rejected"} {
		if x := d.field(c.fields[key]); x != nil {
			for _, role := range x.talk.roles {
				roles = insert(roles, role)
			}
		}
	}
	if !answered {
		c.refusal = "no turn is the assistant's: the roles are " + strings.Join(roles, ", ") +
			"; write the one that answers into `roles`, as `roles: {" + plain(roles[len(roles)-1]) + ": assistant}`"
		return
	}
	if t.role != "role" {
		c.keys = append(c.keys, "role: "+t.role)
	}
	if t.content != "content" {
		c.keys = append(c.keys, "content: "+t.content)
	}
	var mapped, unknown []string
	for _, role := range roles {
		switch to := known(role); {
		case to != role:
			mapped = append(mapped, plain(role)+": "+to)
		case !slices.Contains(templateRoles(), role):
			unknown = append(unknown, role)
		}
	}
	if len(mapped) > 0 {
		c.keys = append(c.keys, "roles: {"+strings.Join(mapped, ", ")+"}")
	}
	if slices.Contains(roles, "function_call") {
		c.say("turns of function_call are the assistant's, with the text that they have")
	}
	if len(unknown) > 0 {
		c.say("the roles " + strings.Join(unknown, ", ") + " are passed to the template as they are; `roles` maps them")
	}
}
