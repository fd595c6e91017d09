package dryrun

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFieldsThatTheMixtureDoesNotName: a mixture that passes over a field which says how documents are to be trained on
// is refused, with the field and a cure. One that names the field in any way is not, and neither is one whose values
// say nothing.
func TestFieldsThatTheMixtureDoesNotName(t *testing.T) {
	const (
		pair  = "prompt: prompt, completion: completion"
		talk  = "messages: messages, template: chatml"
		ids   = "tokens: input_ids"
		first = `"prompt": "a", "completion": " b c"`
		said  = `"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]`
		three = `"input_ids": [5, 6, 7]`
	)
	for name, x := range map[string]struct{ keys, record, field, cure string }{
		"a bad answer":        {pair, first + `, "label": false`, "label", "filter: \"label == true\""},
		"a good answer":       {pair, first + `, "label": true`, "label", "fields: [label]"},
		"with a filter":       {pair + `, filter: "label == true"`, first + `, "label": true`, "", ""},
		"passed":              {pair + `, fields: [label]`, first + `, "label": false`, "", ""},
		"left out on purpose": {pair + `, unused: [label]`, first + `, "label": false`, "", ""},
		"a label of a class":  {pair, first + `, "label": "news"`, "", ""},
		"a judged talk":       {talk, said + `, "desirable": false`, "desirable", "filter:"},
		"tools":               {talk, said + `, "tools": [{"name": "f"}]`, "tools", "`tools: tools`"},
		"tools as text": {talk, said + `, "functions": "[{\"name\": \"f\"}]"`, "functions",
			"`tools: functions`"},
		"no tools":             {talk, said + `, "tools": []`, "", ""},
		"no tools, null":       {talk, said + `, "tools": null`, "", ""},
		"no tools as text":     {talk, said + `, "tools": "[]"`, "", ""},
		"images":               {talk, said + `, "images": ["a.png"]`, "images", "filter"},
		"no images":            {talk, said + `, "images": []`, "", ""},
		"tools of plain texts": {pair, first + `, "tools": [{"name": "f"}]`, "", ""},
		"nested": {"messages: x.messages, template: chatml", `"x": {` + said + `, "tools": [1]}`, "x.tools",
			"`tools: x.tools`"},
		"an input": {"prompt: instruction, completion: output", `"instruction": "a", "input": "i", "output": "o"`,
			"input", "`prompt: \"{instruction}"},
		"an empty input": {"prompt: instruction, completion: output",
			`"instruction": "a", "input": "", "output": "o"`, "", ""},
		"an input that is named": {`prompt: "{instruction} {input}", completion: output`,
			`"instruction": "a", "input": "i", "output": "o"`, "", ""},
		"pads":              {ids, three + `, "attention_mask": [1, 1, 0]`, "attention_mask", "`mask: attention_mask`"},
		"no pads":           {ids, three + `, "attention_mask": [1, 1, 1]`, "", ""},
		"pads at the begin": {ids, three + `, "attention_mask": [0, 1, 1]`, "attention_mask", "without pads"},
		"pads that are named": {ids + ", mask: attention_mask", three + `, "attention_mask": [1, 1, 0]`, "",
			""},
		"labels":        {ids, three + `, "labels": [-100, 6, 7]`, "labels", "`labels: labels`"},
		"labels of all": {ids, three + `, "labels": [5, 6, 7]`, "", ""},
		"a mask":        {ids, three + `, "completion_mask": [0, 1, 1]`, "completion_mask", "`mask: completion_mask`"},
		"a mask of all": {ids, three + `, "completion_mask": [1, 1, 1]`, "", ""},
		"a mask and pads": {ids + ", mask: loss_mask",
			three + `, "loss_mask": [0, 1, 0], "attention_mask": [1, 1, 0]`, "", ""},
		"places that turn": {ids, three + `, "position_ids": [0, 1, 0]`, "position_ids", "unpacked"},
		"places":           {ids, three + `, "position_ids": [0, 1, 2]`, "", ""},
		"lengths":          {ids, three + `, "seq_lengths": [1, 2]`, "seq_lengths", "unpacked"},
		"starts":           {ids, three + `, "seq_start_id": [0, 1]`, "seq_start_id", "`starts: seq_start_id`"},
		"one start":        {ids, three + `, "seq_start_id": [0]`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			text := strings.Repeat("{"+x.record+"}\n", 40)
			if err := os.WriteFile(filepath.Join(dir, "a.jsonl"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := parse(t, dir, "index_dir: "+dir+"/index\nmixture: {weights: {a: 1}}\nsources:\n  a: {path: a.jsonl, "+
				x.keys+"}\nstop: {steps: 1}\n")
			for range 2 { // a refused file is not remembered as good
				o, err := Open(t.Context(), c, Options{})
				if o != nil {
					o.Close()
				}
				if x.field == "" {
					if err != nil {
						t.Fatal(err)
					}
					continue
				}
				if err == nil {
					t.Fatal("it is taken")
				}
				for _, want := range []string{"source a", "a.jsonl", `the field "` + x.field + `"`, x.cure,
					"`unused: [" + x.field + "]`"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want %s", err, want)
					}
				}
			}
		})
	}
}
