package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"millrace/sources/chat/jinja"
)

// ChatML is the template of that name.
const ChatML = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + " +
	"'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// mostTemplate bounds the files of templates, in bytes.
const mostTemplate = 8 << 20

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

// ReadModelTemplate reads the chat template of a model's directory, or of the directory of its tokenizer's file:
// chat_template.jinja, else the template in tokenizer_config.json that is the only one or has the name default.
func ReadModelTemplate(path string) (string, error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		path = filepath.Dir(path)
	}
	text, err := ReadTemplate(filepath.Join(path, "chat_template.jinja"))
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	name := filepath.Join(path, "tokenizer_config.json")
	raw, err := read(name)
	if err != nil {
		return "", err
	}
	var config struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	var named []struct{ Name, Template string }
	if json.Unmarshal(config.Template, &text) != nil && json.Unmarshal(config.Template, &named) == nil {
		for _, x := range named {
			if x.Name == "default" {
				text = x.Template
			}
		}
	}
	if text == "" {
		return "", fmt.Errorf("read %s: it has no chat_template", name)
	}
	_, err = jinja.Parse(text)
	return text, err
}
