package look_test

import (
	"bytes"
	"strings"
	"testing"

	"millrace/app/look"
)

// user and answer are turns of conversations.
const (
	user   = `{"role": "user", "content": "q"}`
	answer = `{"role": "assistant", "content": "a"}`
	human  = `{"from": "human", "value": "q"}`
	gpt    = `{"from": "gpt", "value": "a"}`
)

// TestShapes: each shape of records has the keys that train on it as it means it. Each field that the source does not
// use has a comment. A shape that cannot be trained on is refused by name.
func TestShapes(t *testing.T) {
	const chatml = ", template: chatml}"
	for name, c := range map[string]struct {
		record  string
		want    []string // in the file
		refused string   // in the error; empty: the file is written
	}{
		"ids with a mask": {`{"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1], "loss_mask": [0, 1, 1]}`,
			[]string{"tokens: input_ids, mask: loss_mask}", "not used: attention_mask, list of numbers, as [1,1,1] " +
				"(1 everywhere)"}, ""},
		"ids with labels": {`{"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1], "labels": [-100, 2, 3]}`,
			[]string{"tokens: input_ids, labels: labels}"}, ""},
		"ids with labels of pads": {`{"input_ids": [1, 2, 0], "attention_mask": [1, 1, 0], "labels": [-100, 2, -100]}`,
			[]string{"labels: labels}", "`attention_mask` has zeros"}, ""},
		"shifted labels": {`{"input_ids": [1, 2, 3], "labels": [2, 3, 4]}`, nil, "shifted already"},
		"pads at the end": {`{"input_ids": [1, 2, 0], "attention_mask": [1, 1, 0]}`,
			[]string{"tokens: input_ids, mask: attention_mask}", "pads are not trained on"}, ""},
		"pads at the beginning": {`{"input_ids": [0, 1, 2], "attention_mask": [0, 1, 1]}`, nil,
			"pads at the beginning"},
		"packed ids": {`{"input_ids": [1, 2, 3, 4], "position_ids": [0, 1, 0, 1]}`, nil,
			"several documents"},
		"packed ids with starts": {`{"input_ids": [1, 2, 3, 4], "loss_mask": [0, 1, 1, 1], "seq_start_id": [0, 2]}`,
			[]string{"tokens: input_ids, mask: loss_mask, starts: seq_start_id}"}, ""},
		"messages": {`{"messages": [` + user + `, ` + answer + `], "source": "x"}`,
			[]string{"messages: messages" + chatml, "not used: source, text, as \"x\" (`fields: [source]` passes"}, ""},
		"messages with tools and system": {
			`{"system": "be brief", "tools": [{"type": "function"}], "messages": [` + user +
				`, ` + answer + `]}`, nil, "no chat template that reads tools: name your model's directory"},
		"messages with system": {`{"system": "be brief", "messages": [` + user + `, ` + answer + `]}`,
			[]string{"messages: messages" + chatml, "not used: system, text, as \"be brief\" (wanted"}, ""},
		"messages as a JSON text": {`{"messages": "[{\"role\": \"user\", \"content\": \"q\"}, ` +
			`{\"role\": \"assistant\", \"content\": \"a\"}]"}`, []string{"messages: messages" + chatml}, ""},
		"messages without answers": {`{"messages": [` + user + `]}`, nil,
			"no turn is the assistant's: the roles are user"},
		"messages of images": {`{"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", ` +
			`"text": "q"}]}, ` + answer + `]}`, nil, "parts of the type image"},
		"ShareGPT": {`{"conversations": [{"from": "system", "value": "s"}, ` + human + `, {"from": "function_call", ` +
			`"value": "{}"}, {"from": "observation", "value": "1"}, ` + gpt + `], "tools": "[]"}`,
			[]string{
				"messages: conversations, role: from, content: value, roles: {human: user, " +
					"function_call: assistant, " +
					"observation: tool, gpt: assistant}" + chatml,
				"not used: tools, text, as \"[]\" (empty in all records)"}, ""},
		"ShareGPT with roles of its own": {`{"conversations": [` + human + `, {"from": "llama", "value": "a"}]}`, nil,
			"roles: {llama: assistant}"},
		"a verdict beside messages": {`{"messages": [` + user + `, ` + answer + `], "label": false}` + "\n" +
			`{"messages": [` + user + `, ` + answer + `], "label": true}`,
			[]string{`messages: messages, filter: "label == true"` + chatml}, ""},
		"texts of a pair": {`{"prompt": "p", "completion": "c"}`, []string{
			"prompt: prompt, completion: completion}"}, ""},
		"input and target": {`{"input": "p", "target": "c"}`, []string{"prompt: input, completion: target}"}, ""},
		"inputs and targets": {`{"inputs": "p", "targets": "c", "task": "x"}`,
			[]string{"prompt: inputs, completion: targets}", "not used: task, text, as \"x\""}, ""},
		"question and answer": {`{"question": "p", "answer": "c", "context": "x"}`,
			[]string{"prompt: question, completion: answer}",
				"not used: context, text, as \"x\" (wanted, if the prompt " +
					"needs it: `prompt: \"{context}\\n\\n{question}\"`)"}, ""},
		"Alpaca": {`{"instruction": "i", "input": "", "output": "o", "system": "s", "history": [["a", "b"]]}`,
			[]string{`prompt: "{instruction}\n\n{input}\n\n", completion: output}`, "not used: history",
				"not used: system, text, as \"s\" (wanted: no key"}, ""},
		"KTO": {`{"prompt": "p", "completion": "c", "label": false}` + "\n" +
			`{"prompt": "p", "completion": "c", "label": true}`,
			[]string{`prompt: prompt, completion: completion, filter: "label == true"}`, "bad answers"}, ""},
		"preferences": {`{"prompt": "p", "chosen": "good", "rejected": "bad", "score": 1}`,
			[]string{"chosen: chosen, rejected: rejected, prompt: prompt}",
				"not used: score, number, as 1 (a filter"}, ""},
		"preferences with a question": {`{"question": "p", "chosen": "good", "rejected": "bad"}`,
			[]string{"chosen: chosen, rejected: rejected, prompt: question}"}, ""},
		"preferences without a prompt": {`{"chosen": "p good", "rejected": "p bad"}`,
			[]string{"chosen: chosen, rejected: rejected}"}, ""},
		"preferences of messages": {`{"prompt": [` + user + `], "chosen": [` + answer + `], "rejected": [` +
			answer + `]}`,
			[]string{"chosen: chosen, rejected: rejected, prompt: prompt" + chatml}, ""},
		"preferences of conversations": {`{"prompt": "q", "chosen": [` + user + `, ` + answer +
			`], "rejected": [` + user +
			`, {"role": "assistant", "content": "b"}]}`, []string{"chosen: chosen, rejected: rejected" + chatml,
			"not used: prompt"}, ""},
		"prompts alone": {`{"prompt": [` + user + `], "solution": "4"}`, nil, "prompts without answers"},
		"judged steps": {`{"prompt": "p", "completions": ["a", "b"], "labels": [true, false]}`, nil,
			"judge single steps"},
		"a text": {`{"text": "x", "n": 1, "none": null}`, []string{`format: jsonl}`, "not used: n, number, as 1",
			"not used: none (null in all records)"}, ""},
		"images beside a text": {`{"text": "x", "image": {"bytes": "abc", "path": "a.png"}}`, nil,
			"images, videos or sound in `image`"},
	} {
		t.Run(name, func(t *testing.T) {
			data(t, map[string]string{"data.jsonl": c.record})
			var out bytes.Buffer
			warnings, err := look.WriteMixture(t.Context(), &out, []string{"data.jsonl"})
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("want an error with %q, got %v\n%s", c.refused, err, &out)
				}
				return
			}
			if err != nil || len(warnings) > 0 {
				t.Errorf("%v %v", err, warnings)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("want %q in\n%s", want, &out)
				}
			}
		})
	}
}
