package chat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/text/chat/jinja"
)

// ChatML is the template of that name.
const ChatML = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + " +
	"'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// mostTemplate bounds the files of templates, in bytes.
const mostTemplate = 8 << 20

// The names of a model's templates that are chosen without being named.
const (
	defaultName = "default"
	toolName    = "tool_use" // for conversations with tools
)

// Choice is the template of a source's conversations.
type Choice struct {
	Plain     string
	WithTools string // of conversations with tools; empty: the same
}

// ReadsTools reports whether the template of conversations with tools reads them. The error is that of the template.
func (c Choice) ReadsTools() (bool, error) {
	t, err := jinja.Parse(cmp.Or(c.WithTools, c.Plain))
	if err != nil {
		return false, err
	}
	return t.Reads("tools"), nil
}

// ReadTemplate reads a template's file and tries whether it is understood.
func ReadTemplate(path string) (string, error) {
	text, err := read(path)
	if err != nil {
		return "", err
	}
	_, err = jinja.Parse(string(text))
	return string(text), err
}

func read(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > mostTemplate {
		return nil, fmt.Errorf("read %s: it has %d bytes, and at most %d are read", path, info.Size(), mostTemplate)
	}
	return os.ReadFile(path)
}

// ReadModelTemplate reads the chat templates of a model's directory, or of the directory of its tokenizer's file, and
// chooses as transformers does. The template with the name is chosen. Without a name, it is the only one or the default
// one, and the one named tool_use for conversations with tools.
func ReadModelTemplate(path, name string) (Choice, error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		path = filepath.Dir(path)
	}
	all, err := readModel(path)
	if err != nil {
		return Choice{}, err
	}
	var chosen Choice
	var ok bool
	if name != "" {
		chosen.Plain, ok = all[name]
	} else {
		chosen.Plain, ok = all[defaultName]
		chosen.WithTools = all[toolName]
	}
	if !ok {
		if name == "" {
			name = defaultName
		}
		return Choice{}, fmt.Errorf("read the chat templates of %s: none is named %q (there are: %s); write "+
			"`template: {name: …}` with one of these", path, name,
			strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	for _, text := range []string{chosen.Plain, chosen.WithTools} {
		if _, err := jinja.Parse(text); err != nil {
			return Choice{}, err
		}
	}
	return chosen, nil
}

// readModel returns a model's templates by their names. Files of their own come first, as in transformers: then those
// in tokenizer_config.json do not count. chat_template.json is the file of older processors.
func readModel(dir string) (map[string]string, error) {
	all, err := readFiles(dir)
	if err != nil || len(all) > 0 {
		return all, err
	}
	names := []string{"tokenizer_config.json", "chat_template.json"}
	for i, name := range names {
		all, err = readKey(filepath.Join(dir, name))
		if len(all) > 0 || err != nil && !(i == 0 && errors.Is(err, fs.ErrNotExist)) {
			break
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("read %s: it has no chat template: no chat_template.jinja, no %s with a chat_template", dir,
			strings.Join(names, " or "))
	}
	return nil, err
}

// readFiles returns the templates in files of their own.
func readFiles(dir string) (map[string]string, error) {
	all := map[string]string{}
	further, err := filepath.Glob(filepath.Join(dir, "additional_chat_templates", "*.jinja"))
	if err != nil {
		return nil, err
	}
	for _, path := range append(further, filepath.Join(dir, "chat_template.jinja")) {
		name := defaultName
		if base := filepath.Base(path); base != "chat_template.jinja" || filepath.Dir(path) != filepath.Clean(dir) {
			name = strings.TrimSuffix(base, ".jinja")
		}
		text, err := read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			all[name] = string(text)
		}
	}
	return all, nil
}

// readKey returns the templates in the key chat_template of a JSON file: one, a list of named ones, or an object of
// them.
func readKey(path string) (map[string]string, error) {
	raw, err := read(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(file.Template) == 0 || string(file.Template) == "null" {
		return nil, nil
	}
	var text string
	if json.Unmarshal(file.Template, &text) == nil {
		return map[string]string{defaultName: text}, nil
	}
	all := map[string]string{}
	var named []struct{ Name, Template string }
	if json.Unmarshal(file.Template, &named) == nil {
		for _, x := range named {
			all[x.Name] = x.Template
		}
		return all, nil
	}
	if err := json.Unmarshal(file.Template, &all); err != nil {
		return nil, fmt.Errorf("read %s: chat_template is no text, and no list of named ones: %w", path, err)
	}
	return all, nil
}
