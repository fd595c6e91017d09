package dryrun

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"millrace"
	"millrace/app/config"
)

// TestGlobalBytes: the estimate is within a tenth of a count over a random order, from sparse spans to whole passes.
func TestGlobalBytes(t *testing.T) {
	const record, records = 4 << 10, 1 << 16
	for _, c := range []struct{ grain, span int }{
		{64 << 10, 1 << 20}, {64 << 10, 32 << 20}, {1 << 20, 32 << 20}, {8 << 20, 4 << 20}, {8 << 20, 300 << 20},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		order, unpacked := rng.Perm(records), 0
		for at := 0; at < records; at += c.span / record {
			touched := map[int]bool{}
			for _, r := range order[at:min(at+c.span/record, records)] {
				from := r*record + rng.IntN(record) // records are not aligned with grains
				for g := from / c.grain; g <= (from+record-1)/c.grain; g++ {
					touched[g] = true
				}
			}
			unpacked += len(touched) * c.grain
		}
		want := float64(unpacked) / (record * records)
		got := globalBytes(float64(c.grain), record, record*records, float64(c.span))
		if math.Abs(got-want) > want/10 {
			t.Errorf(
				"grains of %d, spans of %d: got %.2f bytes for each byte, counted %.2f",
				c.grain,
				c.span,
				got,
				want,
			)
		}
	}
	if got := globalBytes(0, record, record*records, 1<<20); got != 1 {
		t.Errorf("records that are read alone: got %v", got)
	}
}

// TestReadingRecommends: a token cache is recommended for several passes, and for grains that cost more than
// tokenising.
func TestReadingRecommends(t *testing.T) {
	one, two := 1.0, 2.0
	for _, c := range []struct {
		name   string
		passes *float64
		cache  bool
		want   string
	}{
		{"one pass", &one, false, "shuffle: global"},
		{"two passes", &two, false, "token cache"},
		{"endless", nil, false, "token cache"},
		{"with a cache", &one, true, "token cache"},
	} {
		k, src := readingCheck(t, c.cache)
		got, err := k.reading(t.Context(), 0, &SourceReport{Name: src, Tokens: 1 << 20, Records: 1000, Passes: c.passes,
			Shuffle: string(millrace.Global)})
		if err != nil {
			t.Fatal(err)
		}
		if got.Recommended != c.want || len(got.Choices) != 3 || (got.Choices[0].Choice == choiceCache) != c.cache {
			t.Errorf("%s: got %+v, want %s", c.name, got, c.want)
		}
	}
}

// readingCheck returns a check of one small source.
func readingCheck(t *testing.T, cached bool) (k *check, source string) {
	t.Helper()
	dir := t.TempDir()
	put(t, dir+"/web.jsonl", `{"text": "one"}`+"\n")
	text := "version: 1\nsequence_length: 8\nglobal_batch_size: 8\ntokenizer: {name: gpt2}\n" +
		"mixture: {weights: {web: 1}}\nsources: {web: {path: web.jsonl}}\n"
	if cached {
		text += "cache: {tokens: 1GiB, dir: tokens}\n"
	}
	put(t, dir+"/mixture.yaml", text)
	c, err := config.Load(dir + "/mixture.yaml")
	if err != nil {
		t.Fatal(err)
	}
	opened, err := Open(t.Context(), c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	return &check{c: c, o: CheckOptions{Part: orAlone(nil, c, 1)}, opened: opened, report: &Report{}}, "web"
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
