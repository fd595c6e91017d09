package identity

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// of returns an identity of names and values in turns.
func of(pairs ...string) (id Identity) {
	for i := 0; i < len(pairs); i += 2 {
		id.Entries = append(id.Entries, Entry{Name: pairs[i], Value: pairs[i+1]})
	}
	return id
}

// throughJSON returns an identity as a state has it.
func throughJSON(t *testing.T, id Identity) (out Identity) {
	t.Helper()
	b, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFingerprint: names and values decide it, with their borders and in their order. Notes do not.
func TestFingerprint(t *testing.T) {
	id := of("ab", "c", "d", "")
	noted := of("ab", "c", "d", "")
	noted.Entries[0].Note = "for people"
	if id.Fingerprint() != noted.Fingerprint() {
		t.Error("a note changes the fingerprint")
	}
	if got := throughJSON(t, id).Fingerprint(); got != id.Fingerprint() {
		t.Errorf("the fingerprint is %s through JSON, and was %s", got, id.Fingerprint())
	}
	for _, other := range []Identity{
		of("a", "bc", "d", ""), of("d", "", "ab", "c"), of("ab", "c"), of("ab", "c", "", "d"),
	} {
		if other.Fingerprint() == id.Fingerprint() {
			t.Errorf("%v has the fingerprint of %v", other.Entries, id.Entries)
		}
	}
}

// TestDiff names each entry that changed, came or went, also if one side was read from a state that shortens values.
func TestDiff(t *testing.T) {
	long := strings.Repeat("x", maxValue)
	for _, c := range []struct {
		old, now Identity
		want     []string
	}{
		{of("seed", "1"), of("seed", "1"), nil},
		{of("seed", "1"), of("seed", "2"), []string{"seed: 1 -> 2"}},
		{of("a", "1"), of("b", "1"), []string{"b: added (1)", "a: removed (it was 1)"}},
		{of("text", long), of("text", long[1:]), []string{"text: " + long + " -> " + long[1:]}},
		{of("text", long+"1"), of("text", long+"1"), nil},
	} {
		if got := Diff(c.old, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%v to %v: %q, want %q", c.old.Entries, c.now.Entries, got, c.want)
		}
		if got := Diff(throughJSON(t, c.old), c.now); !slices.Equal(got, c.want) {
			t.Errorf("%v to %v through JSON: %q, want %q", c.old.Entries, c.now.Entries, got, c.want)
		}
	}
	old := throughJSON(t, of("text", long+"1", "seed", "1"))
	if got := Diff(old, of("text", long+"2", "seed", "1")); !slices.Equal(got, []string{"text: changed"}) {
		t.Errorf("a value that the state has shortened: %q", got)
	}
}

// TestNewEntries: an identity from before an entry agrees with its value, and another one of today does not.
func TestNewEntries(t *testing.T) {
	now := of("seed", "1", "rule", "new")
	now.Entries[1].IsNew = true
	if got := Diff(throughJSON(t, of("seed", "1")), now); got != nil {
		t.Errorf("a state from before the entry: %q", got)
	}
	if got := Diff(of("seed", "1", "rule", "old"), now); !slices.Equal(got, []string{"rule: old -> new"}) {
		t.Errorf("a state with another value: %q", got)
	}
}

// TestFolded: an identity of many sources stays within the budget of a state. Its groups still show a change.
func TestFolded(t *testing.T) {
	many := func(last string) (id Identity) {
		for i := range 2000 {
			name := fmt.Sprintf("%s%d", strings.Repeat("n", 30), i)
			id.Entries = append(id.Entries, Entry{Name: "mixture.weights." + name, Value: fmt.Sprint(i + 1)},
				Entry{Name: "sources." + name, Value: fmt.Sprint("jsonl text=", i%7)})
		}
		id.Entries[len(id.Entries)-1].Value += last
		return id
	}
	b, err := json.Marshal(many(""))
	if err != nil || len(b) > maxCompact {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	state := throughJSON(t, many(""))
	if got := Diff(state, many("")); got != nil {
		t.Errorf("the same: %q", got)
	}
	if got := Diff(state, many("!")); len(got) != 1 || !strings.HasPrefix(got[0], "sources: 2000 entries") {
		t.Errorf("another source: %q", got)
	}
}

// TestForeignJSON: a value that no state has is an error.
func TestForeignJSON(t *testing.T) {
	for _, text := range []string{`[]`, `{"fingerprint":"x"}`, `{}`,
		`{"fingerprint":"` + of("a", "b").Fingerprint().String() + `","values":[["a"]]}`} {
		var id Identity
		if err := json.Unmarshal([]byte(text), &id); err == nil {
			t.Errorf("%s is read as %v", text, id.Entries)
		}
	}
}
