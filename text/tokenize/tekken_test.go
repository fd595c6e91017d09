package tokenize

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// testdata/tekken/make.py wrote the cases with mistral-common. MILLRACE_TEKKEN names a folder with more of them.
func TestTekkenGivesIDsOfItsReference(t *testing.T) {
	for _, folder := range []string{"testdata/tekken", os.Getenv("MILLRACE_TEKKEN")} {
		paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		if len(paths) < 2 && folder != "" {
			t.Errorf("%s: %d files, want at least 2", folder, len(paths))
		}
		for _, path := range paths {
			if folder != "" {
				compareTekken(t, path)
			}
		}
	}
}

func compareTekken(t *testing.T, path string) {
	content, err := os.ReadFile(path + ".cases")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Text string
		IDs  []uint32
	}
	if err := json.Unmarshal(content, &cases); err != nil {
		t.Fatal(err)
	}
	e, err := Open(Spec{Path: path, NeedBOS: true, NeedEOS: true})
	if err != nil {
		t.Fatal(err)
	}
	bos, _ := e.BOS()
	eos, _ := e.EOS()
	if bos != 1 || eos != 2 {
		t.Errorf("%s: bos %d, eos %d, want 1 and 2", path, bos, eos)
	}
	enc := e.NewEncoder()
	for _, c := range cases {
		got := enc.Append(nil, []byte(c.Text))
		if !slices.Equal(got, c.IDs) {
			t.Errorf("%s: %q: got %d, want %d", path, c.Text, got, c.IDs)
		}
		if text, err := e.Decode(nil, got); err != nil || string(text) != c.Text {
			t.Errorf("%s: %q: decoded %q, %v", path, c.Text, text, err)
		}
	}
}

func TestTekkenFileIsRefusedByPlace(t *testing.T) {
	content, err := os.ReadFile("testdata/tekken/v13.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"default_num_special_tokens":10`, `"default_num_special_tokens":-1`, "config"},
		{`"default_vocab_size":`, `"default_vocab_size":9`, "config"},
		{`"rank":3,"token_bytes"`, `"rank":4,"token_bytes"`, "vocab[3]"},
		{`"token_bytes":"AA=="`, `"token_bytes":""`, "vocab[0]"},
		{`"token_bytes":"AA=="`, `"token_bytes":"AQ=="`, "ranks 10 and 11"},
		{`"rank":3,"token_str":"[TOOL]"`, `"rank":2,"token_str":"[TOOL]"`, "special_tokens[3]"},
		{`"token_str":"[TOOL]"`, `"token_str":"<SPECIAL_7>"`, "special_tokens"},
		{`"special_tokens"`, `"others"`, "special_tokens"},
		{`"pattern":"`, `"pattern":"(?<=a)`, "(?<"},
		{`"pattern":"`, `"pattern":"\\d|`, ""},
	} {
		if !strings.Contains(string(content), c.old) {
			t.Fatalf("the file has no %s", c.old)
		}
		path := filepath.Join(t.TempDir(), "tekken.json")
		if err := os.WriteFile(path, []byte(strings.Replace(string(content), c.old, c.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(Spec{Path: path})
		if c.want == "" {
			if err != nil {
				t.Error(err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %s: error %v, want %s", c.new, err, c.want)
		}
	}
}
