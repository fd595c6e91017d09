package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"millrace/app/config"
)

const checkedIn = "../../../mixture.schema.json"

func TestCheckedInSchemaIsCurrent(t *testing.T) {
	want, err := generate(configDir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(checkedIn)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("mixture.schema.json is not what the Go types say: run `go generate ./app/config/genschema`")
	}
}

// TestEveryKeyIsDescribed: the schema is also the documentation of the file.
func TestEveryKeyIsDescribed(t *testing.T) {
	b, err := generate(configDir)
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	keys := 0
	var visit func(at string, v any)
	visit = func(at string, v any) {
		m, _ := v.(map[string]any)
		properties, _ := m["properties"].(map[string]any)
		for key, p := range properties {
			keys++
			if text, _ := p.(map[string]any)["description"].(string); len(text) < 10 {
				t.Errorf("%s.%s has no description", at, key)
			}
			visit(at+"."+key, p)
		}
		for _, inner := range []string{"items", "additionalProperties"} {
			if sub, ok := m[inner].(map[string]any); ok {
				visit(at+"[]", sub)
			}
		}
	}
	visit("", doc)
	if keys < 60 {
		t.Errorf("only %d keys found", keys)
	}
}

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	b, err := generate(configDir)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mixture.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mixture.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON reads YAML as an editor does.
func asJSON(content []byte) (any, error) {
	b, err := yaml.YAMLToJSON(content)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(b))
}

func TestValidFilesFitTheSchema(t *testing.T) {
	s := compile(t)
	for _, dir := range []string{"../testdata/valid", "../../../examples"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil || len(files) < 3 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, f := range files {
			content, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			doc, err := asJSON(content)
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			if err := s.Validate(doc); err != nil {
				t.Errorf("%s: %v", f, err)
			}
			if _, err := config.Parse(f, content, ""); err != nil {
				t.Errorf("%v", err)
			}
		}
	}
}

// TestSchemaRefusesOnlyWhatParseRefuses tries the mistakes that Parse is tested with. An editor never underlines a
// valid file, and the schema finds a known number of mistakes.
func TestSchemaRefusesOnlyWhatParseRefuses(t *testing.T) {
	s := compile(t)
	found := 0
	for _, input := range mistakes(t) {
		doc, err := asJSON([]byte(input))
		if err != nil {
			continue // no YAML to begin with
		}
		invalid := s.Validate(doc) != nil
		_, refused := config.Parse("m.yaml", []byte(input), "")
		if invalid && refused == nil {
			t.Errorf("the schema refuses a valid file: %v\n%s", s.Validate(doc), input)
		}
		if invalid {
			found++
		}
	}
	if found < 95 {
		t.Errorf("the schema finds %d mistakes, and found more before", found)
	}
	t.Logf("the schema finds %d mistakes", found)
}

// mistakes returns the files of ../testdata/mistakes: the edits on top of a valid file, doubled keys left out.
func mistakes(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../testdata/mistakes/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	const valid = `{"version": 1, "sequence_length": 2048, "global_batch_size": 512, "tokenizer": {"name": "gpt2"},
		"sources": {"web": {"path": "web/*.jsonl"}, "code": {"path": "code/*.parquet"}},
		"mixture": {"weights": {"web": 0.6, "code": 0.4}}}`
	var inputs []string
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range strings.Split(string(content), "\n\n") {
			head, _, _ := strings.Cut(c, "\n----")
			command, edit, _ := strings.Cut(head, "\n")
			var keys map[string]any
			if command != "change" && !strings.HasPrefix(command, "topology") {
				continue
			}
			if yaml.Unmarshal([]byte(edit), &keys) != nil {
				continue
			}
			var all map[string]any
			if err := json.Unmarshal([]byte(valid), &all); err != nil {
				t.Fatal(err)
			}
			for k := range keys {
				delete(all, k)
			}
			rest, err := yaml.Marshal(all)
			if err != nil {
				t.Fatal(err)
			}
			inputs = append(inputs, string(rest)+edit+"\n")
		}
	}
	if len(inputs) < 100 {
		t.Fatalf("only %d cases read", len(inputs))
	}
	return inputs
}
