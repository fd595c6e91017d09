package tokenize

import (
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pkoukk/tiktoken-go-loader/assets"
)

func TestKnownEncodings(t *testing.T) {
	for _, want := range []struct {
		name string
		size int
		eot  uint32
	}{{"gpt2", 50257, 50256}, {"r50k_base", 50257, 50256}, {"cl100k_base", 100277, 100257}, {"o200k_base", 200019, 199999}} {
		e := load(t, want.name)
		if e.Name() != want.name || e.VocabSize() != want.size || e.EOT() != want.eot {
			t.Errorf("%s: name %s, size %d, end of text %d", want.name, e.Name(), e.VocabSize(), e.EOT())
		}
		if text, err := e.Decode(nil, []uint32{want.eot}); err != nil || string(text) != "<|endoftext|>" {
			t.Errorf("%s: %d decodes to %q: %v", want.name, want.eot, text, err)
		}
		if _, err := e.Decode(nil, []uint32{0, uint32(want.size)}); err == nil || !strings.Contains(err.Error(), "position 1") {
			t.Errorf("%s: an id beyond the vocabulary decodes: %v", want.name, err)
		}
	}
	if load(t, "gpt2").Fingerprint() != load(t, "r50k_base").Fingerprint() {
		t.Error("gpt2 and r50k_base have different fingerprints")
	}
}

// The fingerprints are part of a run's identity: they must never change.
func TestFingerprintsAreThoseOfTheDefinitions(t *testing.T) {
	for _, d := range definitions() {
		if sum := load(t, d.name).Fingerprint(); hex.EncodeToString(sum[:]) != d.fingerprint {
			t.Errorf("%s: fingerprint %x, the definition says %s", d.name, sum, d.fingerprint)
		}
	}
}

func TestLoadUnknownName(t *testing.T) {
	_, err := Load("gpt5")
	if err == nil || !strings.Contains(err.Error(), "cl100k_base") {
		t.Errorf("the error does not list the names: %v", err)
	}
}

// The published files are the embedded encodings, whatever they are called.
func TestLoadFileOfKnownRanks(t *testing.T) {
	for _, name := range []string{"r50k_base", "cl100k_base"} {
		raw, err := assets.Assets.ReadFile(name + ".tiktoken")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "mine.tiktoken")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := LoadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := load(t, name)
		if got.Name() != name || got.Fingerprint() != want.Fingerprint() || got.VocabSize() != want.VocabSize() || got.EOT() != want.EOT() {
			t.Errorf("%s: name %s, fingerprint %x, size %d, end of text %d", name, got.Name(), got.Fingerprint(), got.VocabSize(), got.EOT())
		}
		text := readGolden(t).randomText(5)
		if !slices.Equal(got.NewEncoder().Append(nil, text), want.NewEncoder().Append(nil, text)) {
			t.Errorf("%s: ids differ from those of the embedded encoding", name)
		}
	}
}

// ranksFile writes a .tiktoken file of the 256 single bytes and more tokens.
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
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadFileOfOwnRanks(t *testing.T) {
	for _, c := range []struct {
		file, text string
		want       []uint32
	}{
		{"own.tiktoken", "12 12", []uint32{256, ' ', 256}},               // cl100k: digits without their space
		{"own-r50k.tiktoken", "12 12", []uint32{256, 257}},               // r50k: with it
		{"own-o200k.tiktoken", "aA12", []uint32{'a', 'A', 256}},          // o200k: case divides
		{"own.tiktoken", "aA12 aAaA", []uint32{258, 256, ' ', 258, 258}}, // and not in cl100k
		{"own.tiktoken", "never reached: xyz", []uint32{}},               // filled in below
		{"own.tiktoken", "xyz", []uint32{259}},                           // no merge makes it, but a whole piece is it
	} {
		e, err := LoadFile(ranksFile(t, c.file, "12", " 12", "aA", "xyz"))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.want) == 0 {
			for _, b := range []byte(c.text) {
				c.want = append(c.want, uint32(b))
			}
			c.want = append(c.want[:len(c.want)-4], ' ', 'x', 'y', 'z')
		}
		if got := e.NewEncoder().Append(nil, []byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s, %q: ids %v, want %v", c.file, c.text, got, c.want)
		}
		if e.EOT() != 260 || e.VocabSize() != 261 {
			t.Errorf("%s: end of text %d, size %d", c.file, e.EOT(), e.VocabSize())
		}
	}
}

func TestLoadFileErrors(t *testing.T) {
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ path, says string }{
		{write("tokenizer.json", "{}"), "yet"},
		{write("sp.model", "\x0a"), "yet"},
		{filepath.Join(t.TempDir(), "none.tiktoken"), "no such file"},
		{write("a.tiktoken", "YQ== 0\nYQ==\n"), "line 2"},
		{write("a.tiktoken", "YQ== 0\n??? 1\n"), "base64"},
		{write("a.tiktoken", "YQ== 0\nYg== 0\n"), "twice"},
		{write("a.tiktoken", "YQ== -1\n"), "-1"},
		{write("a.tiktoken", "YQ== 99999999\n"), "99999999"},
		{write("a.tiktoken", "YQ== 0\n"), "single byte"},
		{ranksFile(t, "a.tiktoken", "xy", "xy"), "256 and 257"},
	} {
		if _, err := LoadFile(c.path); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("the error does not name the file and say %q: %v", c.says, err)
		}
	}
}
