package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/app/config"
)

// corpus returns a configuration with two sources.
func corpus(t *testing.T, dir string) *config.Config {
	t.Helper()
	c, err := config.Parse("m.yaml", []byte("version: 1\ntokenizer: {name: gpt2}\nsequence_length: 256\n"+
		"global_batch_size: 8\nindex_dir: .\nsources:\n  long: {path: long.jsonl}\n  short: {path: short.jsonl}\n"+
		"mixture: {weights: {long: 1, short: 1}}\n"), dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAllHostsHaveTheProfilesOfTheFirst(t *testing.T) {
	first, other := corpus(t, t.TempDir()), corpus(t, t.TempDir())
	if err := Load(first); err != nil || Facts(first) != "" {
		t.Fatalf("nothing was measured, and the facts are %q (%v)", Facts(first), err)
	}
	if err := Save(first, []Source{{Source: "long", Work: 0.25, Resident: 4096, Tokens: 9}}); err != nil {
		t.Fatal(err)
	}
	if err := Save(other, []Source{{Source: "short", Work: 7, Tokens: 9}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*config.Config{first, other} {
		if err := Load(c); err != nil {
			t.Fatal(err)
		}
	}
	if p := first.Sources[0].Profile; p.Nanoseconds != 250_000_000 || p.Resident != 4096 {
		t.Fatalf("the profile is %+v", p)
	}
	if err := Adopt(other, Facts(first)); err != nil || Facts(other) != Facts(first) ||
		other.Sources[0].Profile != first.Sources[0].Profile || other.Sources[1].Profile != (config.Profile{}) {
		t.Errorf("the other host has %+v (%v)", other.Sources, err)
	}
	if err := Adopt(other, ""); err != nil || Facts(other) != "" {
		t.Errorf("the first host has no profile, and the other one has %q (%v)", Facts(other), err)
	}
}

func TestADamagedFileNamesTheCure(t *testing.T) {
	c := corpus(t, t.TempDir())
	if err := os.WriteFile(filepath.Join(c.IndexPath(), file), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(c); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("a damaged file gives %v", err)
	}
}
