package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/app/config"
	"millrace/app/setup"
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
	if none, err := Load(first); err != nil || Facts(none) != "" {
		t.Fatalf("nothing was measured, and the facts are %q (%v)", Facts(none), err)
	}
	if err := Save(first, []Source{{Source: "long", Work: 0.25, Resident: 4096, Tokens: 9}}); err != nil {
		t.Fatal(err)
	}
	if err := Save(other, []Source{{Source: "short", Work: 7, Tokens: 9}}); err != nil {
		t.Fatal(err)
	}
	profiles, err := Load(first)
	if err != nil {
		t.Fatal(err)
	}
	if own, err := Load(other); err != nil || Facts(own) == "" || Facts(own) == Facts(profiles) {
		t.Fatalf("the other host has measured %v (%v)", own, err)
	}
	of := profiles["train"]
	if of[0].Nanoseconds != 250_000_000 || of[0].Resident != 4096 {
		t.Fatalf("the profile is %+v", of[0])
	}
	adopted, err := ReadFacts(other, Facts(profiles))
	if err != nil || Facts(adopted) != Facts(profiles) || adopted["train"][0] != of[0] ||
		adopted["train"][1] != (setup.Profile{}) {
		t.Errorf("the other host has %+v (%v)", adopted, err)
	}
	if adopted, err = ReadFacts(other, ""); err != nil || Facts(adopted) != "" {
		t.Errorf("the first host has no profile, and the other one has %q (%v)", Facts(adopted), err)
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
