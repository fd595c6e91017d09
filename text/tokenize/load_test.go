package tokenize

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pkoukk/tiktoken-go-loader/assets"

	"millrace/internal/needs"
)

func TestKnownEncodings(t *testing.T) {
	for _, want := range []struct {
		name, pattern string
		size          int
		eos           uint32
	}{
		{"gpt2", "r50k", 50257, 50256},
		{"r50k_base", "r50k", 50257, 50256},
		{"cl100k_base", "cl100k", 100277, 100257},
		{"o200k_base", "o200k", 200019, 199999},
	} {
		e := load(t, want.name)
		end := mark{want.eos, true}
		if e.Name() != want.name || e.Pattern() != want.pattern || e.VocabSize() != want.size || e.eos != end ||
			e.bos != end {
			t.Errorf("%s: name %s, pattern %s, size %d, bos %v, eos %v", want.name, e.Name(), e.Pattern(),
				e.VocabSize(), e.bos, e.eos)
		}
		if text, err := e.Decode(nil, []uint32{want.eos}); err != nil || string(text) != "<|endoftext|>" {
			t.Errorf("%s: %d decodes to %q: %v", want.name, want.eos, text, err)
		}
		if _, err := e.Decode(nil, []uint32{0, uint32(want.size)}); err == nil ||
			!strings.Contains(err.Error(), "position 1") {
			t.Errorf("%s: an id beyond the vocabulary decodes: %v", want.name, err)
		}
	}
	if load(t, "gpt2").Fingerprint() != load(t, "r50k_base").Fingerprint() {
		t.Error("gpt2 and r50k_base have different fingerprints")
	}
}

// The fingerprints are part of a run's identity, so they never change.
func TestFingerprintsAreThoseOfTheDefinitions(t *testing.T) {
	for _, d := range definitions() {
		if d.file == "" {
			continue
		}
		if sum := load(t, d.name).Fingerprint(); hex.EncodeToString(sum[:]) != d.fingerprint {
			t.Errorf("%s: fingerprint %x, the definition says %s", d.name, sum, d.fingerprint)
		}
	}
}

func TestDefinitions(t *testing.T) {
	ranks := map[string]string{}
	for _, d := range definitions() {
		if first, taken := ranks[d.ranks]; len(d.ranks) != 32 || taken && first+d.name != "r50k_basegpt2" {
			t.Errorf("%s: ranks %q, which %s has too", d.name, d.ranks, first)
		}
		ranks[d.ranks] = d.name
		for _, mark := range []string{d.bos, d.eos} {
			if _, ok := d.specials[mark]; !ok && mark != "" {
				t.Errorf("%s: %s is none of its special tokens", d.name, mark)
			}
		}
	}
	for _, want := range []struct {
		specials map[string]uint32
		count    int
		ids      map[string]uint32
	}{
		{llama3Specials(), 256, map[string]uint32{"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001,
			"<|eot_id|>":                   128009,
			"<|reserved_special_token_2|>": 128012, "<|reserved_special_token_245|>": 128255}},
		{llama4Specials(), 2048, map[string]uint32{"<|begin_of_text|>": 200000, "<|end_of_text|>": 200001,
			"<|eot|>":                200008,
			"<|finetune_right_pad|>": 200018, "<|image_start|>": 200080, "<|patch|>": 200092,
			"<|vision_reserved_special_token_1047|>": 201133, "<|reasoning_thinking_end|>": 201143,
			"<|reserved_special_token_903|>": 202047}},
		{qwenSpecials(), 208, map[string]uint32{"<|endoftext|>": 151643, "<|im_end|>": 151645,
			"<|extra_204|>": 151850}},
	} {
		if len(want.specials) != want.count {
			t.Errorf("%d special tokens, want %d", len(want.specials), want.count)
		}
		for text, id := range want.ids {
			if want.specials[text] != id {
				t.Errorf("%s is %d, want %d", text, want.specials[text], id)
			}
		}
	}
}

func TestLoadUnknownName(t *testing.T) {
	_, err := Load("gpt5")
	if err == nil || !strings.Contains(err.Error(), "cl100k_base") {
		t.Errorf("the error does not list the names: %v", err)
	}
}

// published writes the ranks that OpenAI publishes under a meaningless name.
func published(t testing.TB, name string) string {
	t.Helper()
	raw, err := assets.Assets.ReadFile(name + ".tiktoken")
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "tokenizer.model", string(raw))
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A published file is recognised by its content. Its name and the ends of its lines do not matter.
func TestOpenKnownRanks(t *testing.T) {
	for _, name := range []string{"r50k_base", "cl100k_base", "o200k_base"} {
		path := published(t, name)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := load(t, name)
		text := readGolden(t).randomText(5)
		for _, path := range []string{path, write(t, "ours-r50k.tiktoken",
			strings.ReplaceAll(string(raw), "\n", "\r\n"))} {
			got, err := Open(Spec{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			if got.Name() != name || got.Fingerprint() != want.Fingerprint() || got.VocabSize() != want.VocabSize() ||
				got.eos != want.eos {
				t.Errorf("%s: name %s, fingerprint %x, size %d, eos %v", path, got.Name(), got.Fingerprint(),
					got.VocabSize(), got.eos)
			}
			if !slices.Equal(got.NewEncoder().Append(nil, text), want.NewEncoder().Append(nil, text)) {
				t.Errorf("%s: ids differ from those of the embedded encoding", path)
			}
		}
	}
}

// p50k_base has r50k's pattern. Its end of text is in a gap of the ranks, and 24 tokens follow the gap.
func TestOpenP50k(t *testing.T) {
	e, err := Open(Spec{Path: published(t, "p50k_base"), NeedEOS: true})
	if err != nil {
		t.Fatal(err)
	}
	if e.Name() != "p50k_base" || e.Pattern() != "r50k" || e.VocabSize() != 50281 || e.eos != (mark{50256, true}) {
		t.Errorf("name %s, pattern %s, size %d, eos %v", e.Name(), e.Pattern(), e.VocabSize(), e.eos)
	}
	checkGolden(t, "p50k_base", e)
}

// The keys beside a known file replace the known facts and are part of the fingerprint.
func TestOpenOverrides(t *testing.T) {
	path := published(t, "cl100k_base")
	known := load(t, "cl100k_base")
	specials := map[string]uint32{"<|endoftext|>": 100257, "<|im_end|>": 100265}
	fingerprints := map[[16]byte]int{known.Fingerprint(): -1}
	for i, s := range []Spec{
		{Path: path, EOS: "<|fim_prefix|>"},
		{Path: path, BOS: "<|fim_prefix|>"},
		{Path: path, Specials: specials},
		{Path: path, Specials: specials, EOS: "<|im_end|>"},
		{Path: path, Pattern: "llama3"},
		{Path: path, Pattern: "qwen2"},
	} {
		e, err := Open(s)
		if err != nil {
			t.Fatal(err)
		}
		if first, taken := fingerprints[e.Fingerprint()]; taken {
			t.Errorf("specs %d and %d have one fingerprint", first, i)
		}
		fingerprints[e.Fingerprint()] = i
		if end, ok := e.EOS(); !ok || (end == 100257) != (s.EOS == "") {
			t.Errorf("spec %d: eos %d, %v", i, end, ok)
		}
	}
	same, err := Open(Spec{Path: path, Pattern: "cl100k", EOS: "<|endoftext|>", BOS: "<|endoftext|>"})
	if err != nil {
		t.Fatal(err)
	}
	if same.Fingerprint() != known.Fingerprint() {
		t.Error("explicit known facts change the fingerprint")
	}
	if load(t, "cl100k_base").Fingerprint() != known.Fingerprint() {
		t.Error("a spec changed the known encoding")
	}
}

// TestKnownFiles reads files that are not part of this repository. docs/tokenizers.md has their sources.
func TestKnownFiles(t *testing.T) {
	folder := os.Getenv("MILLRACE_RANKS")
	needs.Require(t, "MILLRACE_RANKS")
	for _, want := range []struct {
		file, name, pattern string
		size                int
		bos, eos            mark
	}{
		{"llama3.model", "llama3", "llama3", 128256, mark{128000, true}, mark{128001, true}},
		{"llama4.model", "llama4", "o200k", 202048, mark{200000, true}, mark{200001, true}},
		{"qwen.tiktoken", "qwen", "qwen2", 151851, mark{}, mark{151643, true}},
	} {
		e, err := Open(Spec{Path: filepath.Join(folder, want.file), NeedEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != want.name || e.Pattern() != want.pattern || e.VocabSize() != want.size || e.bos != want.bos ||
			e.eos != want.eos {
			t.Errorf("%s: %s, pattern %s, size %d, bos %v, eos %v", want.file, e.Name(), e.Pattern(), e.VocabSize(),
				e.bos, e.eos)
		}
		checkGolden(t, want.name, e)
	}
}

// ranksFile writes a rank file of the 256 single bytes and more tokens.
func ranksFile(t *testing.T, name string, more ...string) string {
	t.Helper()
	var lines strings.Builder
	rank := 0
	add := func(token string) {
		lines.WriteString(base64.StdEncoding.EncodeToString([]byte(token)) + " " + strconv.Itoa(rank) + "\n")
		rank++
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	for _, token := range more {
		add(token)
	}
	return write(t, name, lines.String())
}

func TestOpenOwnRanks(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          []uint32
	}{
		{"cl100k", "12 12", []uint32{256, ' ', 256}},               // digits without their space
		{"r50k", "12 12", []uint32{256, 257}},                      // with it
		{"qwen2", "12 12", []uint32{'1', '2', ' ', '1', '2'}},      // one by one
		{"llama3", "12 12", []uint32{256, ' ', 256}},               //
		{"o200k", "aA12", []uint32{'a', 'A', 256}},                 // case divides
		{"cl100k", "aA12 aAaA", []uint32{258, 256, ' ', 258, 258}}, // and not in cl100k
		{"cl100k", "a xyz", []uint32{'a', ' ', 'x', 'y', 'z'}},     // no merge makes it
		{"cl100k", "xyz", []uint32{259}},                           // but a whole piece is it
		{"klingon", "neither the name of a pattern", nil},
		{`\d{2}|\D`, "leave out text that begins with '0'", nil},
		{`\d{2}|\D|\d`, "x12 123", []uint32{'x', 256, ' ', 256, '3'}},
	} {
		// Earlier releases took this name for a hint.
		path := ranksFile(t, "own-o200k.tiktoken", "12", " 12", "aA", "xyz")
		e, err := Open(
			Spec{
				Path:     path,
				Pattern:  c.pattern,
				Specials: map[string]uint32{"<|end|>": 262, "<|a|>": 261},
				EOS:      "<|end|>",
				NeedEOS:  true,
			},
		)
		if c.want == nil {
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v", c.pattern, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := e.NewEncoder().Append(nil, []byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s, %q: ids %v, want %v", c.pattern, c.text, got, c.want)
		}
		if e.Name() != "own-o200k" || e.eos != (mark{262, true}) || e.bos != (mark{}) || e.VocabSize() != 263 {
			t.Errorf("%s: name %s, bos %v, eos %v, size %d", c.pattern, e.Name(), e.bos, e.eos, e.VocabSize())
		}
	}
}

// An error names the missing key.
func TestOpenErrors(t *testing.T) {
	own := ranksFile(t, "own-r50k.tiktoken", "12")
	piece := func(text string) string {
		inner := "\x0a" + string(rune(len(text))) + text + "\x15\x00\x00\x00\x00\x18\x02"
		return "\x0a" + string(rune(len(inner))) + inner
	}
	specials := map[string]uint32{"<|end|>": 257}
	for _, c := range []struct {
		spec Spec
		key  string
		says string // all of these, divided by &
	}{
		{Spec{Path: own}, "path", "257 ranks & pattern & specials"},
		{Spec{Path: own, NeedEOS: true}, "path", "pattern and eos & <|endoftext|>\": 257}, eos:"},
		{Spec{Path: own, Pattern: "cl100k", NeedEOS: true, NeedBOS: true}, "path", "bos and eos"},
		{Spec{Path: own, Pattern: "cl100k", EOS: "<|end|>"}, "eos", "there are none & specials: {\"<|end|>\": …}"},
		{Spec{Path: own, Pattern: "cl100k", Specials: specials, EOS: "</s>"}, "eos", "\"</s>\" & (<|end|>)"},
		{Spec{Path: own, Pattern: "cl100k", Specials: map[string]uint32{"<|end|>": 256}}, "specials",
			"256 & \"12\" & end at 256"},
		{Spec{Path: own, Pattern: "cl100k", Specials: map[string]uint32{"<|a|>": 300, "<|b|>": 300}}, "specials",
			"300 & <|a|> & <|b|>"},
		{Spec{Path: own, Pattern: "cl100k", Specials: map[string]uint32{"<|a|>": 1 << 21}}, "specials", "2097152"},
		{Spec{Path: write(t, "x.tiktoken", `{"version": "1.0", "truncation": null, "added_tokens": []}`)}, "path",
			"model"},
		{Spec{Path: write(t, "x.tiktoken", `{"config": {"default_num_special_tokens": 9}, "vocab": []}`)}, "path",
			"Tekken & config.pattern"},
		{Spec{Path: write(t, "x.tiktoken", ` {"!": 0, "a": 1}`)}, "path", "JSON"},
		{Spec{Path: write(t, "x.tiktoken", piece("<unk>")+piece("<s>"))}, "path",
			"SentencePiece & second unknown piece"},
		{Spec{Path: write(t, "x.tiktoken", "#version: 0.2\na b\n")}, "path", "merges.txt"},
		{Spec{Path: write(t, "x.tiktoken", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n")}, "path",
			"Git LFS & git lfs pull"},
		{Spec{Path: write(t, "x.tiktoken", " \n")}, "path", "empty"},
		{Spec{Path: t.TempDir()}, "path", "directory"},
		{Spec{Path: filepath.Join(t.TempDir(), "Qwen/Qwen3-8B")}, "path", "no such file & Hugging Face"},
		{Spec{Path: write(t, "a.tiktoken", "YQ== 0\nYQ==\n")}, "path", "line 2"},
		{Spec{Path: write(t, "a.tiktoken", "YQ== 0\n??? 1\n")}, "path", "base64"},
		{Spec{Path: write(t, "a.tiktoken", "YQ== 0\nYg== 0\n")}, "path", "twice"},
		{Spec{Path: write(t, "a.tiktoken", "YQ== -1\n")}, "path", "-1"},
		{Spec{Path: write(t, "a.tiktoken", "YQ== 99999999\n")}, "path", "99999999"},
		{Spec{Path: write(t, "a.tiktoken", "YQ== 0\n")}, "path", "single byte"},
		{Spec{Path: ranksFile(t, "a.tiktoken", "xy", "xy")}, "path", "256 and 257"},
		{Spec{Path: published(t, "cl100k_base"), Specials: specials}, "specials", "257"},
		{Spec{Path: published(t, "cl100k_base"), EOS: "<|im_end|>"}, "eos", "<|endofprompt|>"},
	} {
		_, err := Open(c.spec)
		var wrong *Error
		if !errors.As(err, &wrong) || wrong.Key != c.key || !strings.Contains(wrong.Reason, c.spec.Path) {
			t.Errorf("%s: key %q wanted, the file named: %v", c.says, c.key, err)
			continue
		}
		for says := range strings.SplitSeq(c.says, " & ") {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("the error does not say %q: %v", says, err)
			}
		}
	}
	if _, err := Open(Spec{Path: own, Pattern: "cl100k"}); err != nil {
		t.Errorf("a file without special tokens, of which none is needed: %v", err)
	}
}
