package chat_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/text/chat"
)

// training compares the masks of a template without {% generation %} blocks with those of TRL's training version of it,
// which has such blocks.
type training struct {
	Equal     int      // conversations with the same ids and the same mask
	Otherwise int      // conversations that the two versions write otherwise
	TRL       []string // texts that TRL alone trains on
	Ours      []string // texts that are trained on here alone
}

// trainings has the differences of all templates of which TRL ships a training version. They are of three kinds. What
// TRL alone trains on is never what a model says: it is the prompt for a generation or its end, or white space behind
// the token at which a generation stops. TRL's versions of GLM and the Qwen 3 models write other text: the token of the
// next role behind a turn, and empty reasoning in earlier turns. DiffusionGemma stops at <|tool_response> to have its
// call answered, and its prompt for a generation behind an answer is empty, so here both texts are the model's.
func trainings() map[string]training {
	newLine := []string{"\n"}
	thinking := []string{"\n", "<think>", "<think>\n"}
	return map[string]training{
		"cohere":                 {Equal: 18},
		"cohere2":                {Equal: 20},
		"deepseek_r1_distill":    {Otherwise: 2, TRL: []string{"<｜Assistant｜>", "<｜tool▁outputs▁end｜>"}},
		"deepseekv3":             {Otherwise: 1, TRL: []string{"<｜Assistant｜>"}},
		"diffusion_gemma":        {TRL: newLine, Ours: []string{"<|tool_response>", "<|turn>model\n"}},
		"gemma":                  {TRL: newLine},
		"gemma3":                 {TRL: newLine},
		"glm4moe":                {Otherwise: 27, TRL: []string{"<|user|>"}},
		"gptoss":                 {TRL: []string{"<|start|>assistant"}},
		"idefics3":               {Equal: 21},
		"lfm2":                   {TRL: newLine},
		"lfm2_v2":                {TRL: newLine},
		"llama3":                 {Equal: 29},
		"llava_next":             {Equal: 1},
		"muse_glimmer":           {TRL: []string{"<|start|>assistant"}},
		"nemotron_3_5_lightning": {TRL: thinking},
		"nemotron_3_nano":        {TRL: thinking},
		"nemotron_3_super":       {TRL: thinking},
		"nemotron_3_ultra":       {TRL: thinking},
		"phi3":                   {Equal: 9, TRL: newLine},
		"phi3_5":                 {Equal: 9, TRL: newLine},
		"qwen2_5":                {TRL: newLine},
		"qwen2_5_vl":             {TRL: newLine},
		"qwen3":                  {Otherwise: 19, TRL: newLine},
		"qwen3_5_nothink":        {Otherwise: 13, TRL: []string{"\n", "<think>\n", "<think>\n\n</think>\n\n"}},
		"qwen3_5_think":          {Otherwise: 13, TRL: []string{"\n", "<think>\n"}},
		"qwen3_6":                {Otherwise: 13, TRL: []string{"\n", "<think>\n"}},
		"qwen3_8":                {TRL: []string{"\n", "<think>\n"}},
		"qwen3_instruct_2507":    {TRL: newLine},
		"qwen3_vl":               {TRL: newLine},
		"smolvlm":                {Equal: 21},
	}
}

// TestTurnsAsTRLTrains: with every template of which TRL ships a training version, the turns that are found without
// {% generation %} blocks are those of TRL, but for the differences of the table.
func TestTurnsAsTRLTrains(t *testing.T) {
	ref := readReference(t)
	encoding := referenceTokenizer(t)
	got := map[string]training{}
	for name := range ref.Templates {
		short := strings.TrimPrefix(name, "trl/")
		if _, ok := ref.Templates[name+"_training"]; ok {
			got[short] = compareTraining(t, &ref, encoding, name)
		}
	}
	want := trainings()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if g, w := fmt.Sprintf("%#v", got[name]), fmt.Sprintf("%#v", want[name]); g != w {
			t.Errorf("%s:\ngot  %s\nwant %s", name, g, w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d templates have a training version, the table has %d", len(got), len(want))
	}
}

// compareTraining compares a template with its training version over all conversations that both render.
func compareTraining(t *testing.T, ref *reference, encoding chat.Tokenizer, name string) (out training) {
	t.Helper()
	var makers [2]sources.Maker
	for i, template := range []string{name, name + "_training"} {
		m, err := chat.NewConversationMaker(encoding, ref.talk(template, chat.Assistant))
		if err != nil {
			t.Fatalf("%s: %v", template, err)
		}
		makers[i] = m
	}
	for _, c := range ref.Cases {
		if c.Template != name {
			continue
		}
		messages, tools := ref.chat(c.Chat)
		var ids [2][]uint32
		var errs [2]error
		for i, m := range makers {
			ids[i], _, errs[i] = m.Document(nil, &sources.Record{}, []any{string(messages), tools}, nil)
		}
		ours, theirs := ids[0], ids[1]
		switch isSame := func(a, b uint32) bool { return (a^b)&^tokenid.Untrained == 0 }; {
		case errs[0] != nil || errs[1] != nil: // as transformers refuses them
		case slices.Equal(ours, theirs):
			out.Equal++
		case !slices.EqualFunc(ours, theirs, isSame):
			out.Otherwise++
		default:
			out.note(t, encoding, ours, theirs)
		}
	}
	slices.Sort(out.TRL)
	slices.Sort(out.Ours)
	return out
}

// note notes each text that only one of two masks of the same ids trains on.
func (o *training) note(t *testing.T, encoding chat.Tokenizer, ours, theirs []uint32) {
	t.Helper()
	for i := 0; i < len(ours); i++ {
		from := i
		for i < len(ours) && ours[i] != theirs[i] && ours[i]>>31 == ours[from]>>31 {
			i++
		}
		if i == from {
			continue
		}
		text, to := read(t, encoding, clean(ours[from:i])), &o.Ours
		if ours[from]&tokenid.Untrained != 0 {
			to = &o.TRL
		}
		if i--; !slices.Contains(*to, text) {
			*to = append(*to, text)
		}
	}
}

// clean returns ids without marks.
func clean(ids []uint32) []uint32 {
	out := slices.Clone(ids)
	for i := range out {
		out[i] &^= tokenid.Untrained
	}
	return out
}
