package measure

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/app/config"
	"millrace/app/profile"
	"millrace/app/setup"
)

// corpus returns the configuration of a directory with a source of text and one of long lines that are filtered.
func corpus(t *testing.T) *config.Config {
	t.Helper()
	dir := t.TempDir()
	for name, words := range map[string]int{"long": 2000, "short": 20} {
		var b strings.Builder
		for i := range 200 {
			fmt.Fprintf(&b, `{"text": "%d%s"}`+"\n", i, strings.Repeat(" word", words))
		}
		if err := os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return parse(t, dir, "global")
}

func parse(t *testing.T, dir, shuffle string) *config.Config {
	t.Helper()
	c, err := config.Parse("m.yaml", []byte("version: 1\ntokenizer: {name: gpt2}\nsequence_length: 256\n"+
		"global_batch_size: 8\nshuffle: "+shuffle+"\nindex_dir: index\n"+
		"sources:\n  long: {path: long.jsonl}\n  short: {path: short.jsonl}\n"+
		"mixture: {weights: {long: 1, short: 1}}\n"),
		dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := setup.CheckIndexDir(c); err != nil {
		t.Fatal(err)
	}
	if _, err := setup.Tokenizer(c); err != nil {
		t.Fatal(err)
	}
	return c
}

func silent(string, int64, int64) {}

func TestSourcesAreMeasuredAndTheFiguresAreKept(t *testing.T) {
	c := corpus(t)
	if found, err := profile.Read(c); err != nil || len(found) != 2 || found[0] != (profile.Source{}) {
		t.Fatalf("before a measurement: %v, %v", found, err)
	}
	found, err := Sources(t.Context(), c, Options{Each: 200 * time.Millisecond, Progress: silent})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range found {
		if s.Source != c.Sources[i].Name || s.Tokens == 0 || s.Work <= 0 || s.Reading > s.Work || s.Bytes < 1 ||
			s.Bytes > 50 || s.Resident < 0 || s.Resident > 64<<20 {
			t.Errorf("the cost of source %s is %+v", c.Sources[i].Name, s)
		}
	}
	if err := profile.Save(c, found); err != nil {
		t.Fatal(err)
	}
	if kept, err := profile.Read(c); err != nil || !slices.Equal(kept, found) {
		t.Fatalf("kept are %v (%v), want %v", kept, err, found)
	}
	if kept, err := profile.Read(parse(t, c.Base, "blocks")); err != nil || kept[0] != (profile.Source{}) {
		t.Errorf("another order of reading costs something else: %v, %v", kept, err)
	}
}

func TestAStopEndsAMeasurement(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Sources(ctx, corpus(t), Options{Each: time.Hour, Progress: silent}); err == nil {
		t.Error("no error after a stop")
	}
}
