package config

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"millrace"
	"millrace/sources/format/registry"
)

// base is a valid file of which each case of testdata/mistakes replaces some top-level keys.
const base = `version: 1
sequence_length: 2048
global_batch_size: 512
tokenizer: {name: gpt2}
sources:
  web: {path: web/*.jsonl}
  code: {path: code/*.parquet}
mixture:
  weights: {web: 0.6, code: 0.4}
`

// topKey is the key of a line that begins at column 1.
var topKey = regexp.MustCompile(`(?m)^[a-z_]+:`)

// change returns base without the top-level keys that the edit has, followed by the edit.
func change(edit string) string {
	var b strings.Builder
	gone := map[string]bool{}
	for _, k := range topKey.FindAllString(edit, -1) {
		gone[k] = true
	}
	keep := true
	for line := range strings.Lines(base) {
		if k := topKey.FindString(line); k != "" {
			keep = !gone[k]
		}
		if keep {
			b.WriteString(line)
		}
	}
	return b.String() + edit
}

// TestMistakes compares the errors of every mistake word for word. `change` edits the base above, `file` is a whole
// file, `without` removes keys of the base, `topology` asks for a number of ranks.
func TestMistakes(t *testing.T) {
	first := regexp.MustCompile(`^mixture\.yaml:[1-9][0-9]*:[1-9][0-9]*: .`)
	datadriven.Walk(t, "testdata/mistakes", func(t *testing.T, path string) {
		defer func() {
			if t.Failed() {
				t.Log("if the new texts are right, write them: go test ./app/config -run TestMistakes -args -rewrite")
			}
		}()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			c, err := parseCase(d)
			if err == nil && d.Cmd == "topology" {
				var ranks int
				d.ScanArgs(t, "ranks", &ranks)
				_, err = c.Topology(ranks)
			}
			if err == nil {
				return "valid\n"
			}
			if !errors.Is(err, millrace.ErrInvalid) {
				t.Errorf("%s: error does not wrap ErrInvalid: %v", d.Pos, err)
			}
			if !first.MatchString(err.Error()) {
				t.Errorf("%s: no position on the first line: %v", d.Pos, err)
			}
			return withoutFormats(err.Error()) + "\n"
		})
	})
}

// withoutFormats replaces the lists of all formats, which change with each new format.
func withoutFormats(text string) string {
	words := registry.Name("").Words()
	last := len(words) - 1
	return strings.NewReplacer(
		strings.Join(words[:last], ", ")+" or "+words[last], "(the formats)",
		strings.Join(words[:last], "`, `")+"` or `"+words[last], "(the formats)").Replace(text)
}

func parseCase(d *datadriven.TestData) (*Config, error) {
	input := d.Input + "\n"
	switch d.Cmd {
	case "file":
		input = strings.NewReplacer(`\t`, "\t", `\x00`, "\x00", `\xff`, "\xff", `\r`, "\r").Replace(input)
	case "without":
		keys := strings.Join(strings.Fields(d.Input), ": x\n") + ": x\n"
		input = strings.TrimSuffix(change(keys), keys)
	default:
		input = change(input)
	}
	return Parse("mixture.yaml", []byte(input), "")
}
