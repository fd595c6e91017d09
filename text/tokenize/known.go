package tokenize

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"millrace/text/tokenize/internal/pretokenize"
	"millrace/text/tokenize/internal/split"
)

// definition is a vocabulary with the facts that its rank file does not have.
type definition struct {
	name     string
	ranks    string // BLAKE2b-128 over all ranks, in hexadecimal; see digestRanks
	file     string // the embedded vocabulary, if there is one
	pattern  split.Pattern
	stages   pretokenize.Stages // divide text in place of pattern; nil: none
	prefixed bool               // a text, or each part of before, gets a space before it unless it has one
	before   pretokenize.Stages // divide text before pattern or stages do; nil: none
	nfc      bool               // text is brought into normal form C first
	specials map[string]uint32
	bos, eos string // keys of specials; empty: there is none
	// fingerprint, in hexadecimal, is [Encoding.Fingerprint] of an encoding of the first releases. Saved states have
	// it. The fingerprint of a later encoding is computed from the whole definition.
	fingerprint string
}

const endOfText = "<|endoftext|>"

// definitions are the known vocabularies. docs/tokenizers.md lists them with their sources. A rank file is recognised
// by its ranks; its name does not matter. gpt2 is r50k_base under the name of its model.
func definitions() []definition {
	r50k := definition{name: "r50k_base", ranks: "73d6f49a21787e04b7f6cfcdae4a3527", file: "r50k_base",
		pattern: split.R50k, specials: map[string]uint32{endOfText: 50256}, bos: endOfText, eos: endOfText,
		fingerprint: "12e81e9cde16561db2988bc8ee189616"}
	gpt2 := r50k
	gpt2.name = "gpt2"
	return []definition{
		r50k,
		gpt2,
		{name: "cl100k_base", ranks: "6932c4506440b0b4caa4eb0dd5178a56", file: "cl100k_base", pattern: split.Cl100k,
			specials: map[string]uint32{endOfText: 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259,
				"<|fim_suffix|>": 100260, "<|endofprompt|>": 100276},
			bos: endOfText, eos: endOfText, fingerprint: "d72c8a2757cea8eda96403b7d67a7fab"},
		{name: "o200k_base", ranks: "218c0ecb96bf7f49dc15df4aa34c89eb", file: "o200k_base", pattern: split.O200k,
			specials: map[string]uint32{endOfText: 199999, "<|endofprompt|>": 200018},
			bos:      endOfText, eos: endOfText, fingerprint: "39aa891d5436038f73639e28824cdde6"},
		{name: "p50k_base", ranks: "0f7ae1d828c3553791a005af34886554", pattern: split.R50k,
			specials: map[string]uint32{endOfText: 50256}, bos: endOfText, eos: endOfText},
		{name: "llama3", ranks: "1937e5d07287f1dbfeafba4508d352cf", pattern: split.Llama3, specials: llama3Specials(),
			bos: "<|begin_of_text|>", eos: "<|end_of_text|>"},
		{name: "llama4", ranks: "6abad02aefbff3b6bfc236f81a83d098", pattern: split.O200k, specials: llama4Specials(),
			bos: "<|begin_of_text|>", eos: "<|end_of_text|>"},
		{name: "qwen", ranks: "2bed21d99bfe5dcab921fca2372eeef7", pattern: split.Qwen2, nfc: true,
			specials: qwenSpecials(), eos: endOfText},
	}
}

// specialList gives ids to special tokens, one after the other.
type specialList struct {
	ids  map[string]uint32
	next uint32
}

func specialsFrom(first uint32) *specialList {
	return &specialList{ids: map[string]uint32{}, next: first}
}

func (l *specialList) add(texts ...string) {
	for _, text := range texts {
		l.ids[text] = l.next
		l.next++
	}
}

// number adds tokens with consecutive numbers in their texts, from first on, up to the id before end.
func (l *specialList) number(before string, first int, end uint32) {
	for n := first; l.next < end; n++ {
		l.add(before + strconv.Itoa(n) + "|>")
	}
}

// llama3Specials returns the special tokens of llama3/tokenizer.py in llama-models: 256 from id 128000 on.
func llama3Specials() map[string]uint32 {
	l := specialsFrom(128000)
	l.add("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
		"<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
		"<|eot_id|>", "<|python_tag|>", "<|image|>")
	l.number("<|reserved_special_token_", 2, 128256)
	return l.ids
}

// llama4Specials returns the special tokens of llama4/tokenizer.py in llama-models: 2,048 from id 200000 on.
func llama4Specials() map[string]uint32 {
	l := specialsFrom(200000)
	l.add("<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
		"<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>")
	l.number("<|text_post_train_reserved_special_token_", 0, 200016)
	l.add("<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>")
	l.number("<|text_post_train_reserved_special_token_", 8, 200080)
	l.add("<|image_start|>", "<|image_end|>")
	l.number("<|vision_reserved_special_token_", 0, 200084)
	l.add("<|tile_x_separator|>", "<|tile_y_separator|>")
	l.number("<|vision_reserved_special_token_", 2, 200090)
	l.add("<|image|>", "<|vision_reserved_special_token_6|>", "<|patch|>")
	l.number("<|vision_reserved_special_token_", 7, 201134)
	l.number("<|reasoning_reserved_special_token_", 0, 201142)
	l.add("<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>")
	l.number("<|reserved_special_token_", 0, 202048)
	return l.ids
}

// qwenSpecials returns the special tokens of qwen_tokenizer.py in dashscope: 208 from id 151643 on.
func qwenSpecials() map[string]uint32 {
	l := specialsFrom(151643)
	l.add(endOfText, "<|im_start|>", "<|im_end|>")
	l.number("<|extra_", 0, 151851)
	return l.ids
}

// setPattern sets the pattern by its name or its regular expression.
func (d *definition) setPattern(text string) error {
	var ok bool
	d.stages = nil
	if d.pattern, ok = split.Parse(text); ok {
		return nil
	}
	if !strings.ContainsAny(text, `\[(|`) {
		return &Error{Key: "pattern",
			Reason: fmt.Sprintf("%q is neither the name of a pattern nor a regular expression", text),
			Cure:   fmt.Sprintf("write one of %s, or the publisher's expression", strings.Join(split.Names(), ", "))}
	}
	stage, err := pretokenize.Tiktoken(text)
	if err != nil {
		return &Error{Key: "pattern", Reason: err.Error(),
			Cure: "write the publisher's expression (docs/tokenizers.md has the parts that can be followed)"}
	}
	d.stages = pretokenize.Stages{stage}
	return nil
}

// isAsKnown reports whether a definition gives the same ids as the known one.
func (d *definition) isAsKnown(known *definition) bool {
	return d.stages == nil && d.pattern == known.pattern && d.nfc == known.nfc &&
		d.bos == known.bos && d.eos == known.eos && maps.Equal(d.specials, known.specials)
}
