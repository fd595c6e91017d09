package tokenize

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/needs"
	"millrace/text/tokenize/internal/oracletest"
)

// openSPM opens a small SentencePiece model with the rest of a spec.
func openSPM(t *testing.T, name string, s Spec) (*Encoding, error) {
	t.Helper()
	s.Path = filepath.Join(t.TempDir(), name+".model")
	if err := os.WriteFile(s.Path, oracletest.File(t, name+".model"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Open(s)
}

func TestEncodesSentencePieceModels(t *testing.T) {
	for _, name := range []string{"bpe_llama", "bpe_nfkc", "bpe_suffix", "bpe_crossing", "bpe_unused", "unigram_nfkc"} {
		e, err := openSPM(t, name, Spec{NeedBOS: true, NeedEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		bos, _ := e.BOS()
		if eos, _ := e.EOS(); bos != 1 || eos != 2 {
			t.Errorf("bos %d, eos %d", bos, eos)
		}
		var cases []oracletest.Case
		oracletest.JSON(t, name+".json", &cases)
		enc := e.NewEncoder()
		for range 2 { // the second time from remembered pieces
			for _, c := range cases {
				got := enc.Append([]uint32{0}, []byte(c.Text))
				if !slices.Equal(got[1:], c.IDs) {
					t.Errorf("%s: %q became %v, not %v", name, c.Text, got[1:], c.IDs)
				}
			}
		}
	}
}

func TestDecodesSentencePieces(t *testing.T) {
	e, err := openSPM(t, "bpe_llama", Spec{})
	if err != nil {
		t.Fatal(err)
	}
	const text = "The quick  brown\nfox 漢字 𝒜\t"
	got, err := e.Decode(nil, append([]uint32{1}, e.NewEncoder().Append(nil, []byte(text))...))
	if want := "<s> " + text; err != nil || string(got) != want {
		t.Errorf("%q, %v; not %q", got, err, want)
	}
	if _, err := e.Decode(nil, []uint32{uint32(e.VocabSize())}); err == nil {
		t.Error("an id behind the last one has a text")
	}
}

func TestSpecialsOfSentencePieceModels(t *testing.T) {
	plain, err := openSPM(t, "bpe_llama", Spec{})
	if err != nil {
		t.Fatal(err)
	}
	size := uint32(plain.VocabSize())
	e, err := openSPM(t, "bpe_llama", Spec{Specials: map[string]uint32{"<s>": 1, "<end>": size}, EOS: "<end>"})
	if err != nil {
		t.Fatal(err)
	}
	if eos, ok := e.EOS(); !ok || eos != size || e.VocabSize() != int(size)+1 {
		t.Errorf("eos is %d (%v) of %d ids", eos, ok, e.VocabSize())
	}
	if e.Fingerprint() == plain.Fingerprint() {
		t.Error("special tokens do not change the fingerprint")
	}
	for key, s := range map[string]Spec{
		"specials": {Specials: map[string]uint32{"<end>": 300}},
		"pattern":  {Pattern: "gpt2"},
		"eos":      {EOS: "<end>"},
		"add_eos":  {Specials: map[string]uint32{"<s>": 1}, NeedEOS: true},
	} {
		_, err := openSPM(t, "bpe_llama", s)
		if wrong, ok := err.(*Error); !ok || wrong.Key != key {
			t.Errorf("the error of %+v is %v, not one of %s", s, err, key)
		}
	}
}

func TestLongRunOfSentencePiece(t *testing.T) {
	for _, name := range []string{"bpe_llama", "unigram_nfkc"} {
		e, err := openSPM(t, name, Spec{})
		if err != nil {
			t.Fatal(err)
		}
		n := 1 << 20
		ids := e.NewEncoder().Append(nil, bytes.Repeat([]byte("a"), n))
		text, err := e.Decode(nil, ids)
		if err != nil || string(text) != " "+strings.Repeat("a", n) {
			t.Errorf("%s spells %d letters as %d bytes: %v", name, n, len(text), err)
		}
	}
}

// TestEncodesPublicModels runs over the models NAME.model of the folder MILLRACE_TOKENIZERS, each with texts and the
// ids of the library in NAME.json.
func TestEncodesPublicModels(t *testing.T) {
	folder := os.Getenv("MILLRACE_TOKENIZERS")
	needs.Require(t, "MILLRACE_TOKENIZERS")
	paths, err := filepath.Glob(filepath.Join(folder, "*.model"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no models in %s: %v", folder, err)
	}
	for _, path := range paths {
		e, err := Open(Spec{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(strings.TrimSuffix(path, ".model") + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var cases []oracletest.Case
		if err := json.Unmarshal(file, &cases); err != nil {
			t.Fatal(err)
		}
		enc, wrong := e.NewEncoder(), 0
		for _, c := range cases {
			if got := enc.Append(nil, []byte(c.Text)); !slices.Equal(got, c.IDs) {
				if wrong++; wrong < 5 {
					t.Errorf("%s: %.200q became other ids than the library's", path, c.Text)
				}
			}
		}
		t.Logf("%s: %d texts, %d wrong", path, len(cases), wrong)
	}
}
