package config

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace/app/config/identity"
)

// TestFingerprintsStay: the fingerprints of files before and after some edits are those of saved states. Entries that
// earlier programs lack do not count.
func TestFingerprintsStay(t *testing.T) {
	const want = "28efc8490a79a380"
	sum := sha256.New()
	for _, key := range []string{
		"bucket_rows", "carry", "limits.sample_bytes", "long_documents", "mixture.floor", "mixture.groups.*.weight",
		"mixture.schedule[].ramp", "mixture.weights.from", "rampup_batch_size.start", "shuffle", "sources.*.filter",
		"sources.*.messages", "stages[].packing", "stop.epochs", "tokenizer.add_bos", "window",
	} {
		before, after, _ := strings.Cut(edits[key], "=>")
		for _, c := range []*Config{parseEdit(t, before), parseEdit(t, after)} {
			for _, of := range []Facts{{}, {Vocabulary: "v", Sizes: make([]uint64, len(c.Sources))}} {
				id := c.Identity(of)
				id.Entries = slices.DeleteFunc(id.Entries, func(e identity.Entry) bool { return e.IsNew })
				fmt.Fprintf(sum, "%s %s\n", key, id.Fingerprint())
			}
		}
	}
	if got := fmt.Sprintf("%x", sum.Sum(nil)[:8]); got != want {
		t.Errorf("the fingerprints have the digest %s, want %s", got, want)
	}
}

// TestANewKeyEntersTheIdentity: the rule of a key without a fixed place decides whether it has an entry. Its default
// agrees with identities that lack it.
func TestANewKeyEntersTheIdentity(t *testing.T) {
	file := struct {
		Seed   uint64 `yaml:"seed" resume:"seed"`
		Spread uint32 `yaml:"spread" jsonschema:"default=3" resume:"steps"`
		Room   uint32 `yaml:"room" resume:"none"`
		Inside struct {
			Deep string `yaml:"deep"`
		} `yaml:"inside" resume:"steps"`
	}{Spread: 3, Room: 5}
	file.Inside.Deep = "x"
	got := fmt.Sprint(newEntries(placedKeys(), "", reflect.ValueOf(&file).Elem(), ""))
	if want := "[{spread 3  true} {inside.deep x  false}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
