package look_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/app/config"
	"millrace/app/look"
)

// data writes files of JSON lines into a new working directory. Each file repeats one record.
func data(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for name, line := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.Repeat(line+"\n", 30)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDescribe: the description has every field of the records with kinds, lengths and a value.
func TestDescribe(t *testing.T) {
	data(t, map[string]string{"a.jsonl": `{"text": "héllo", "n": 1, "tags": ["a", "b"], "meta": {"x": 1}, ` +
		`"none": null}` + "\n" +
		`{"text": "", "n": 2.5, "odd..name": 1}` + "\n{"})
	d, err := look.Describe(t.Context(), "a.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if d.Format != "jsonl" || d.Records == nil || *d.Records != 90 || d.Looked != 90 || !d.Random || len(d.Bad) != 5 {
		t.Errorf("got %+v", d)
	}
	got := map[string]string{}
	for _, x := range d.Fields {
		got[x.Name] = fmt.Sprintf("%d %v %v %s", x.Present, x.Kinds, x.Length, x.Sample)
	}
	want := map[string]string{
		"text": `60 [text] 0…6 "héllo"`, "n": "60 [number] <nil> 1", "tags": `30 [list of texts] 2 ["a","b"]`,
		"meta": `30 [object of x] <nil> {"x":1}`, "none": "0 [] <nil> ",
	}
	if len(got) != len(want) {
		t.Errorf("fields are %v", got)
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: got %s, want %s", name, got[name], want[name])
		}
	}
	var out bytes.Buffer
	if err := d.Print(&out); err != nil || !strings.Contains(out.String(), "90 records, random access") ||
		!strings.Contains(out.String(), "record 2 cannot be decoded: invalid JSON") {
		t.Errorf("%v\n%s", err, &out)
	}
	if b, err := json.Marshal(d); err != nil || !strings.Contains(string(b), `"length":{"least":2,"most":2}`) {
		t.Errorf("%s %v", b, err)
	}
}

// TestConstants: the keys of folders are fields beside those of the records. No document is made of one alone.
func TestConstants(t *testing.T) {
	data(t, map[string]string{"d/lang=the%20longest%20text/date=2024/a.jsonl": `{"id": "a"}`,
		"d/lang=x/date=__HIVE_DEFAULT_PARTITION__/a.jsonl": `{"id": "a", "lang": "own"}`})
	for pattern, want := range map[string]string{
		"d":        `id 30 [text] "a", lang 30 [text] "the longest text", date 30 [text] "2024"`,
		"d/lang=x": `id 30 [text] "a", lang 30 [text] "own", date 0 [] `,
	} {
		d, err := look.Describe(t.Context(), pattern)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range d.Fields {
			got = append(got, fmt.Sprint(x.Name, " ", x.Present, " ", x.Kinds, " ", x.Sample))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: got %q, want %q", pattern, strings.Join(got, ", "), want)
		}
	}
	var out bytes.Buffer
	if _, err := look.WriteMixture(t.Context(), &out, []string{"d"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"text: id}", "# not used: lang, text, as \"the longest text\" (a filter may use it"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, &out)
		}
	}
}

// TestWriteMixture: the program accepts each file that it writes, and the fields are those of the records.
func TestWriteMixture(t *testing.T) {
	data(t, map[string]string{
		"web/a.jsonl":    `{"text": "x"}`,
		"web/b.jsonl":    `{"text": "x"}`,
		"code.jsonl":     `{"path": "a/b", "content": "int x;", "license": "a much longer text than the content"}`,
		"gaps.jsonl":     `{"body": "x"}` + "\n" + `{"body": "x"}` + "\n" + `{"body": null}`,
		"odd.jsonl":      `{"id": "1", "my words": "the longest text of the record", "lang": "en"}`,
		"ids.jsonl":      `{"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1], "loss_mask": [0, 1, 1]}`,
		"numbers.jsonl":  `{"a": 1}`,
		"2024-web.jsonl": `{"text": "x"}`,
	})
	for _, c := range []struct {
		paths []string
		want  []string
	}{
		{[]string{"web"}, []string{`web: {path: "web", format: jsonl}`, "# 2 files, 840 B, 30 records in the first"}},
		{[]string{"web/*.jsonl", "2024-web.jsonl"}, []string{`web: {path: "web/*.jsonl", format: jsonl}`,
			`web-2: {path: "2024-web.jsonl", format: jsonl}`, "web: 0.67", "web-2: 0.33"}},
		{[]string{"code.jsonl"}, []string{"text: content}"}},
		{[]string{"gaps.jsonl"}, []string{"text: body, missing: skip}", "30 of the first 90 records have no body"}},
		{[]string{"odd.jsonl"}, []string{`text: "my words"}`, "the field with the most text"}},
		{[]string{"ids.jsonl"}, []string{"tokens: input_ids, mask: loss_mask}"}},
		{[]string{"code.jsonl", "numbers.jsonl"}, []string{"no field holds a text", "    # numbers: ",
			`  # numbers: {path: "numbers.jsonl"`}},
	} {
		var out bytes.Buffer
		if _, err := look.WriteMixture(t.Context(), &out, c.paths); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v: want %q in\n%s", c.paths, want, &out)
			}
		}
		base, err := filepath.Abs(".")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.Parse("mixture.yaml", out.Bytes(), base); err != nil {
			t.Errorf("%v: %v\n%s", c.paths, err, &out)
		}
		if strings.Contains(out.String(), "tokenizer:") != (c.paths[0] != "ids.jsonl") {
			t.Errorf("%v: the tokenizer of\n%s", c.paths, &out)
		}
	}
	for _, paths := range [][]string{{"nothing.jsonl"}, {"web/*.xyz"}} {
		if _, err := look.WriteMixture(t.Context(), &bytes.Buffer{}, paths); err == nil {
			t.Errorf("%v: no error", paths)
		}
	}
}

// TestModelDirectoryIsTheTokenizer: a directory with a tokenizer's file is no data, whatever the file's format.
func TestModelDirectoryIsTheTokenizer(t *testing.T) {
	const testdata = "../../text/tokenize/testdata/"
	model, err := os.ReadFile(testdata + "directories/bpe/tokenizer.model")
	if err != nil {
		t.Fatal(err)
	}
	tekken, err := os.ReadFile(testdata + "tekken/v13.json")
	if err != nil {
		t.Fatal(err)
	}
	data(t, map[string]string{"web/a.jsonl": `{"text": "x"}`})
	for name, content := range map[string]string{
		"llama/tokenizer.model": string(model), "mistral/tekken.json": string(tekken), "own/own.tiktoken": "YQ== 0",
		"kimi/tiktoken.model": "YQ== 0",
	} {
		dir := filepath.Dir(name)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(name, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		want := `tokenizer: {path: "` + dir + `"}`
		if strings.HasPrefix(content, "YQ") {
			want = "# " + dir + " is not read: open tokenizer " + dir + ": " + filepath.Base(name) + ": "
		}
		var out bytes.Buffer
		if _, err := look.WriteMixture(t.Context(), &out, []string{"web", dir}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: want %q in\n%s", name, want, &out)
		}
	}
}

// TestFormatsWithNames: the fields of these formats are recognised, and the program accepts the file.
func TestFormatsWithNames(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "a.tar")
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, name := range []string{"0.txt", "0.json", "0.pkl", "1.txt"} {
		err := w.WriteHeader(&tar.Header{Name: name, Size: 2, Mode: 0o600})
		if _, failed := w.Write([]byte("{}")); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(archive, packed.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"../../sources/format/mds/testdata/zstd":       "120 records; fields: n, text",
		"../../sources/format/litdata/testdata/sample": "fields: text, ids",
		"../../sources/format/litdata/testdata/single": "fields: text",
		archive: "2 records; fields: txt, json",
	} {
		var out bytes.Buffer
		if _, err := look.WriteMixture(t.Context(), &out, []string{path}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: want %q in\n%s", path, want, &out)
		}
		if _, err := config.Parse("mixture.yaml", out.Bytes(), "."); err != nil {
			t.Errorf("%s: %v\n%s", path, err, &out)
		}
	}
}

// TestConversations: chats, and prompts with completions, are recognised; the program accepts the file.
func TestConversations(t *testing.T) {
	data(t, map[string]string{
		"chat.jsonl":   `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}`,
		"share.jsonl":  `{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}`,
		"inst.jsonl":   `{"instruction": "do", "output": "done", "text": "x"}`,
		"alpaca.jsonl": `{"instruction": "do", "input": "", "output": "done"}`,
		"dpo.jsonl":    `{"prompt": "p", "chosen": "good", "rejected": "bad"}`,
		"talks.jsonl": `{"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], ` +
			`"rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}]}`,
		"notes/a.txt": "a text",
	})
	for path, want := range map[string]string{
		"chat.jsonl": "messages: messages, template: chatml}",
		"share.jsonl": "messages: conversations, role: from, content: value, roles: {human: user, gpt: assistant}, " +
			"template: chatml}",
		"inst.jsonl":   "prompt: instruction, completion: output",
		"alpaca.jsonl": `prompt: "{instruction}\n\n{input}\n\n", completion: output`,
		"dpo.jsonl":    "chosen: chosen, rejected: rejected, prompt: prompt}",
		"talks.jsonl":  "chosen: chosen, rejected: rejected, template: chatml}",
		"notes":        "tokenizer: {name: gpt2}",
	} {
		var out bytes.Buffer
		if _, err := look.WriteMixture(t.Context(), &out, []string{path}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: want %q in\n%s", path, want, &out)
		}
		base, err := filepath.Abs(".")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.Parse("mixture.yaml", out.Bytes(), base); err != nil {
			t.Errorf("%s: %v\n%s", path, err, &out)
		}
	}
}
