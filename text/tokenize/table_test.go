package tokenize

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPartsOfTokenizerJSON has a row for each part that tokenizers can serialise, made by testdata/hf/table.py: its ids
// are equal, or it is refused by name.
func TestPartsOfTokenizerJSON(t *testing.T) {
	paths := []string{"testdata/hf/table.json"}
	if more := os.Getenv("MILLRACE_TABLE"); more != "" {
		paths = append(paths, more)
	}
	for _, path := range paths {
		compareTable(t, path)
	}
}

// table has texts and tokenizers with the ids that they give, or a digest of them.
type table struct {
	Models map[string]json.RawMessage
	Texts  []string
	Rows   []struct {
		Model string
		Parts map[string]json.RawMessage
		IDs   [][]uint32
		Sum   string
	}
}

func compareTable(t *testing.T, path string) {
	var table table
	if err := json.Unmarshal([]byte(content(t, path)), &table); err != nil {
		t.Fatal(err)
	}
	read, refused := 0, map[string]int{}
	for _, row := range table.Rows {
		name, text := row.Model, `{"version": "1.0", "added_tokens": []`
		for _, key := range []string{"truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
			"post_processor", "decoder"} {
			if value, ok := row.Parts[key]; ok {
				name += fmt.Sprintf(" %.300s", value)
				text += fmt.Sprintf(`, "%s": %s`, key, value)
			}
		}
		text += fmt.Sprintf(`, "model": %s}`, table.Models[row.Model])
		e, err := Open(Spec{Path: directory(t, "tokenizer.json", text)})
		if err != nil {
			why := refusalOf(name)
			if why == "" || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "`tokens:`") {
				t.Errorf("%s: error %v, want ids, or a refusal with %q", name, err, why)
			}
			refused[why]++
			continue
		}
		read++
		enc := e.NewEncoder()
		lists := make([][]uint32, len(table.Texts))
		for i, text := range table.Texts {
			lists[i] = enc.Append(nil, []byte(text))
			if strings.HasPrefix(name, wholeBytes) && row.Parts["normalizer"] == nil && !decodesTo(e, lists[i], text) {
				t.Errorf("%s: the ids of %q decode to another text", name, text)
			}
			if row.Sum == "" && !slices.Equal(lists[i], row.IDs[i]) {
				t.Errorf("%s: %q: got %d, want %d", name, text, lists[i], row.IDs[i])
			}
		}
		if row.Sum != "" && fold(lists) != row.Sum {
			t.Errorf("%s: the ids differ", name)
		}
	}
	t.Logf("%s: %d tokenizers of %d texts read, %v refused", path, read, len(table.Texts), refused)
}

// wholeBytes begins the names of rows that keep all of a text.
const wholeBytes = `bytesBehind {"type":"ByteLevel","add_prefix_space":false,`

func decodesTo(e *Encoding, ids []uint32, text string) bool {
	got, err := e.Decode(nil, ids)
	return err == nil && string(got) == text
}

// refusalOf returns what the error of a row says that is not followed, or "" if it is followed.
func refusalOf(name string) string {
	isByteLevel := strings.HasPrefix(name, "bytes")
	isLast := strings.LastIndex(name, `"ByteLevel"`) > strings.LastIndex(name, `"Metaspace"`)
	switch {
	case strings.Contains(name, `"UnicodeScripts"`):
		return `it is "UnicodeScripts"`
	case strings.Contains(name, "{1,3}+"):
		return "pattern.Regex: parse the expression"
	case strings.HasPrefix(name, "bytesUnk") && !isLast:
		return "model.byte_fallback: it is true, and the vocabulary lacks"
	case isByteLevel && !isLast:
		return "characters without a token would be left out"
	}
	return ""
}

// fold returns the digest of ids that testdata/hf/table.py writes.
func fold(lists [][]uint32) string {
	h := uint64(0xcbf29ce484222325)
	add := func(x uint64) { h = (h ^ x) * 0x100000001b3 }
	for _, ids := range lists {
		add(uint64(len(ids)))
		for _, id := range ids {
			add(uint64(id))
		}
	}
	return fmt.Sprintf("%016x", h)
}
