package dryrun

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/sources"
)

// hostile writes records of which some are bad, some lack a field, and some cannot be read by a filter.
func hostile(t *testing.T, dir string) {
	t.Helper()
	var b strings.Builder
	for i := range 400 {
		record := map[string]any{"text": strings.Repeat("word ", i%90), "part": i % 5, "odd": i%2 == 1,
			"prompt": fmt.Sprint(i), "completion": strings.Repeat(" yes", i%7)}
		switch i % 50 {
		case 3:
			record["part"] = "not a number"
		case 9:
			delete(record, "text")
		case 14:
			delete(record, "part")
		case 21:
			delete(record, "completion")
		}
		line, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if i%50 == 33 {
			line = line[:len(line)-2]
		}
		b.Write(append(line, '\n'))
	}
	for _, name := range []string{"a.jsonl", "b.jsonl"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLengthsOfSourcesThatDifferInTheirFiltersNeedOneReading compares with the lengths of each source by itself.
func TestLengthsOfSourcesThatDifferInTheirFiltersNeedOneReading(t *testing.T) {
	for name, c := range map[string]struct {
		keys     string // of each source
		filters  []string
		readings int
	}{
		"text":    {"", []string{"part == 0", "part > 0", "part != 3 && tokens > 40", "(part ?? 1) == 1"}, 1},
		"lengths": {"", []string{"tokens < 30", "bytes > 100", "true"}, 1},
		"skipped": {", missing: skip", []string{"part == 0", "part != 0", "(part ?? 7) == 7"}, 1},
		"passed":  {", fields: [odd]", []string{"part == 0", "part > 1"}, 1},
		"pairs": {", prompt: prompt, completion: completion",
			[]string{"part == 0", "part > 1", "tokens > 9"}, 2},
		"other fields": {"", []string{"part == 0", "odd", "not odd", "part < 4"}, 2},
		"one without":  {"", []string{"part == 0", "", "part == 1"}, 2},
		// nothing counts the records before
		"in blocks": {"", []string{"part == 0", "part == 1"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			hostile(t, dir)
			mixture := func(index string) string {
				list, weights := "", ""
				for i, f := range c.filters {
					if f != "" {
						f = fmt.Sprintf(", filter: %q", f)
					}
					list += fmt.Sprintf("  s%d: {path: \"*.jsonl\"%s%s}\n", i, c.keys, f)
					weights += fmt.Sprintf("s%d: 1, ", i)
				}
				if name == "in blocks" {
					list += "shuffle: blocks\n"
				}
				return "index_dir: " + filepath.Join(dir, index) + "\nmixture: {weights: {" + weights + "}}\n" +
					"quarantine: {budget: 1}\nsources:\n" + list
			}
			told := map[string]bool{}
			all := factsOf(t, dir, mixture("together"), "", told)
			if len(told) != c.readings {
				t.Errorf("%d readings, of %v, want %d", len(told), slices.Sorted(maps.Keys(told)), c.readings)
			}
			for i := range c.filters {
				name := fmt.Sprintf("s%d", i)
				alone := factsOf(t, dir, mixture("alone-"+name), name, map[string]bool{})
				if all[name] != alone[name] || alone[name].Known != alone[name].Records {
					t.Errorf("%s: together %+v, alone %+v", name, all[name], alone[name])
				}
			}
		})
	}
}

// factsOf returns the facts about the sources of a mixture, or of one of them, once all lengths are known. It notes
// the sources that were read.
func factsOf(t *testing.T, dir, mixture, only string, told map[string]bool) map[string]sources.Stats {
	t.Helper()
	o, err := Open(t.Context(), parse(t, dir, mixture), Options{OnePass: true, Whole: true, Only: only})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.Lengths(t.Context(), func(source string, _, _ int64) { told[source] = true }); err != nil {
		t.Fatal(err)
	}
	out := map[string]sources.Stats{}
	for _, s := range o.Sources {
		if out[s.Name()], err = s.Stats(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
