package chat

import (
	"fmt"
	"slices"
	"strings"

	"millrace"
	"millrace/sources/format/parts/fields"
	"millrace/sources/values"
	"millrace/text/chat/jinja"
)

// talk is a conversation as templates read it.
type talk struct {
	messages []any  // jinja.Object
	left     []bool // for each message: its record says that it is not trained on
	tools    any    // a list, nil if there are none
}

func (t talk) until(n int) talk { return talk{t.messages[:n], t.left[:n], t.tools} }
func (t talk) since(n int) talk { return talk{t.messages[n:], t.left[n:], t.tools} }

// with returns the conversation with the messages of another one behind its own.
func (t talk) with(other talk) talk {
	return talk{slices.Concat(t.messages, other.messages), slices.Concat(t.left, other.left), t.tools}
}

// talkOf returns the messages of a field: a list of them, one, or the JSON text of these. Another text is a message of
// this role.
func (m *conversationMaker) talkOf(name string, v any, role string) (t talk, err error) {
	if err := missing(name, v); err != nil {
		return t, err
	}
	if text, ok := v.(string); ok {
		if v, ok = m.decoded(text); !ok {
			v = jinja.Object{Keys: []string{m.Role, m.Content}, Values: []any{role, text}}
			return t, t.add(m, name, 0, v)
		}
	}
	list, ok := v.([]any)
	if isObject(v) {
		list, ok = []any{v}, true
	}
	if !ok {
		return t, millrace.Errorf(millrace.ErrBadSample,
			"field %q is %s, not a text, a message or a list of messages", name, fields.KindOf(v))
	}
	for i := range list {
		if err := t.add(m, name, i, list[i]); err != nil {
			return t, err
		}
	}
	return t, nil
}

// decoded returns the messages of a JSON text. ok is false for every other text.
func (m *conversationMaker) decoded(text string) (v any, ok bool) {
	if start := strings.TrimSpace(text); start == "" || start[0] != '[' && start[0] != '{' {
		return nil, false
	}
	v, err := values.FromJSON([]byte(text))
	if err != nil {
		return nil, false
	}
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	for _, message := range list {
		if _, has := jinja.ObjectOf(message).Get(m.Role); !has {
			return nil, false
		}
	}
	return v, true
}

// add appends a message of a field. number is its place in the field's list.
func (t *talk) add(m *conversationMaker, name string, number int, v any) error {
	o := jinja.ObjectOf(v)
	role := ""
	for i, key := range o.Keys {
		switch key {
		case m.Role:
			role, _ = o.Values[i].(string)
			if to, ok := m.Roles[role]; ok {
				role = to
			}
			o.Keys[i], o.Values[i] = "role", role
		case m.Content:
			o.Keys[i] = "content"
		case "role", "content": // the source names another key of this meaning
			o.Values[i] = nil
		}
	}
	if role == "" {
		return millrace.Errorf(millrace.ErrBadSample, "message %d of field %q has no text in %q", number, name, m.Role)
	}
	o = withValues(o)
	left, err := isLeftOut(o)
	if err == nil {
		err = refuseMedia(o)
	}
	if err != nil {
		return millrace.Errorf(millrace.ErrBadSample, "message %d of field %q %w", number, name, err)
	}
	t.messages, t.left = append(t.messages, aliased(o)), append(t.left, left)
	return nil
}

// withValues returns a message without the keys that are null, as transformers gives it to templates.
func withValues(o jinja.Object) (out jinja.Object) {
	for i, v := range o.Values {
		if v != nil {
			out.Keys, out.Values = append(out.Keys, o.Keys[i]), append(out.Values, v)
		}
	}
	return out
}

// aliased returns a message whose reasoning has the names that templates ask for. As in transformers, the first of
// these keys that has a value is given as reasoning_content, and as thinking if that has none.
func aliased(o jinja.Object) jinja.Object {
	for _, key := range []string{"reasoning_content", "thinking", "reasoning"} {
		v, ok := o.Get(key)
		if !ok {
			continue
		}
		if _, has := o.Get("thinking"); !has {
			o.Keys, o.Values = slices.Insert(o.Keys, 0, "thinking"), slices.Insert(o.Values, 0, v)
		}
		if at := slices.Index(o.Keys, "reasoning_content"); at >= 0 {
			o.Values[at] = v
		} else {
			o.Keys, o.Values = append(o.Keys, "reasoning_content"), append(o.Values, v)
		}
		break
	}
	return o
}

// isLeftOut reports whether a message says that it is not trained on: by weight, as OpenAI's, or by train, as
// axolotl's. Other values than 0, 1 and a boolean are refused: a token has no part of a weight.
func isLeftOut(o jinja.Object) (left bool, err error) {
	for _, key := range []string{"weight", "train"} {
		switch v, ok := o.Get(key); {
		case !ok, v == 1, v == 1.0, v == true:
		case v == 0, v == 0.0, v == false:
			left = true
		default:
			return false, fmt.Errorf("has the %s %v: a turn is trained on (1, true) or not (0, false), and no part "+
				"of a weight is read; round it, or leave the key out", key, v)
		}
	}
	return left, nil
}

// refuseMedia returns an error for a message with a part that is no text, such as an image. Its template would write a
// placeholder without an image behind it.
func refuseMedia(o jinja.Object) error {
	for i, key := range o.Keys {
		list, isList := o.Values[i].([]any)
		switch {
		case key == "content" && isObject(o.Values[i]):
			list = []any{o.Values[i]}
		case key == "content" && isList:
		case isMediumKey(key) && (isObject(o.Values[i]) || len(list) > 0):
			return fmt.Errorf("has %s: %s", key, millrace.UnreadMedia)
		default:
			continue
		}
		for n, v := range list {
			if name := mediumOf(jinja.ObjectOf(v)); name != "" {
				return fmt.Errorf("has %s in part %d of its content: %s", name, n, millrace.UnreadMedia)
			}
		}
	}
	return nil
}

func isObject(v any) bool {
	_, ok := v.(jinja.Object)
	return ok
}

// mediumOf returns the type or the key that makes a part of a message something else than text, "" if there is none.
func mediumOf(part jinja.Object) string {
	for i, key := range part.Keys {
		text, isText := part.Values[i].(string)
		switch {
		case key == "type" && isText && slices.ContainsFunc(words(text), isMedium):
			return text
		case isMediumKey(key) && part.Values[i] != nil && (!isText || text != ""):
			return key
		}
	}
	return ""
}

// isMediumKey reports whether a key is that of an image, a video, a sound or a file: image, image_url, input_audio.
func isMediumKey(key string) bool {
	all, beside := words(key), []string{"input", "output", "url", "path", "bytes", "base64", "data"}
	return slices.ContainsFunc(all, isMedium) && !slices.ContainsFunc(all, func(word string) bool {
		return !isMedium(word) && !slices.Contains(beside, word)
	})
}

func isMedium(word string) bool {
	return slices.Contains([]string{"image", "img", "picture", "video", "audio", "sound", "file", "pixel"},
		strings.TrimSuffix(word, "s"))
}

func words(name string) []string {
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '_' || r == '-' })
}
