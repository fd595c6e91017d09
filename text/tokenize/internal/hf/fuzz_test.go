package hf

import (
	"os"
	"strings"
	"testing"
)

// FuzzParse: a hostile file is an error or a tokenizer, never a panic.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"plain", "added", "llama", "gemma", "mistral", "unk", "unigram"} {
		content, err := os.ReadFile("../../testdata/hf/" + name + "/tokenizer.json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":1,"aa":2},"merges":["a a",["a","a"]]},` +
		`"pre_tokenizer":{"type":"ByteLevel"}}`))
	f.Add([]byte(`{"pre_tokenizer":{"type":"Sequence","pretokenizers":[null,null]},"model":{}}`))
	f.Add([]byte(`{"pre_tokenizer":{"type":"ByteLevel"},"model":{"vocab":{"a":2097151}}}`))
	f.Add([]byte(`{"normalizer":{"type":"Sequence","normalizers":[null]},"model":null}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		tokenizer, err := parse(content, &config{})
		if err == nil && tokenizer.Pipeline == nil && tokenizer.Vocabulary.Len() < 256 {
			t.Errorf("a vocabulary of %d ids lacks bytes", tokenizer.Vocabulary.Len())
		}
	})
}

// TestAnErrorIsTheSameEachTime: the vocabulary has no order, and the error names the first wrong key.
func TestAnErrorIsTheSameEachTime(t *testing.T) {
	content := []byte(`{"model":{"type":"BPE","vocab":{"a":1,"b":1,"c":1,"d":1,"e":1},"merges":[]},` +
		`"pre_tokenizer":{"type":"ByteLevel"}}`)
	for range 20 {
		if _, err := parse(content, &config{}); err == nil || !strings.Contains(err.Error(), `model.vocab["b"]`) {
			t.Fatalf("got %v", err)
		}
	}
}
