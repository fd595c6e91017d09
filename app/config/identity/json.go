package identity

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/crypto/blake2b"

	"millrace"
)

// The compact form goes into every state that a trainer saves, so it has a budget. Short digests replace long values
// and still show a change. If the form exceeds the budget even so, the entries of a group (weights, schedule, sources)
// become one digest, group by group. The fingerprint is always of the full values.
const (
	maxCompact = 5 << 10 // bytes of JSON
	maxValue   = 48      // bytes of a value that is written in full
	shortMark  = "#"     // begins a short digest; no value begins with it
)

// groups are the entries that may be folded into one.
var groups = [...]string{"mixture.weights", "mixture.groups", "mixture.schedule", "mixture.sizes", "sources", "stages"}

// compact is the JSON form: values by name, and sources by value, since most share theirs.
type compact struct {
	Fingerprint string                       `json:"fingerprint"`
	Values      [][]string                   `json:"values"`            // name, value and an optional note
	Sources     map[string]map[string]string `json:"sources,omitempty"` // value: source: weight
}

// MarshalJSON returns the compact form, at most 5 KiB for the most sources that a run may have.
func (id Identity) MarshalJSON() ([]byte, error) {
	full := id.Fingerprint()
	b, err := json.Marshal(newCompact(shorten(id), full))
	if err != nil || len(b) <= maxCompact {
		return b, err
	}
	folded := shorten(id)
	for _, g := range [...]string{"mixture.schedule", "mixture.sizes", "mixture.groups", "sources", "stages",
		"mixture.weights"} {
		folded = fold(folded, g)
		if b, err = json.Marshal(newCompact(folded, full)); err != nil || len(b) <= maxCompact {
			return b, err
		}
	}
	return b, nil
}

func newCompact(id Identity, full millrace.Digest) compact {
	c := compact{Fingerprint: full.String(), Sources: map[string]map[string]string{}}
	weights := map[string]string{}
	for _, e := range id.Entries {
		if source, ok := strings.CutPrefix(e.Name, "sources."); ok {
			if c.Sources[e.Value] == nil {
				c.Sources[e.Value] = map[string]string{}
			}
			c.Sources[e.Value][source] = weights[source]
			delete(weights, source)
			continue
		}
		if source, ok := strings.CutPrefix(e.Name, "mixture.weights."); ok {
			weights[source] = e.Value
			continue
		}
		row := []string{e.Name, e.Value}
		if e.Note != "" {
			row = append(row, short(e.Note))
		}
		c.Values = append(c.Values, row)
	}
	for _, e := range id.Entries { // weights of folded sources
		if source, ok := strings.CutPrefix(e.Name, "mixture.weights."); ok && weights[source] != "" {
			c.Values = append(c.Values, []string{e.Name, e.Value})
		}
	}
	return c
}

// UnmarshalJSON reads the compact form.
func (id *Identity) UnmarshalJSON(b []byte) error {
	var c compact
	if err := json.Unmarshal(b, &c); err != nil {
		return errors.New("read identity: it has not the form that a saved state gives it")
	}
	digest, err := millrace.ParseDigest(c.Fingerprint)
	if err != nil {
		return fmt.Errorf("read identity: %w", err)
	}
	*id = Identity{digest: digest}
	for _, row := range c.Values {
		if len(row) != 2 && len(row) != 3 {
			return fmt.Errorf("read identity: want a name, a value and perhaps a note, not %q", row)
		}
		e := Entry{Name: row[0], Value: row[1]}
		if len(row) == 3 {
			e.Note = row[2]
		}
		id.Entries = append(id.Entries, e)
	}
	id.Entries = append(id.Entries, c.sources()...)
	return nil
}

// sources returns the entries that are grouped by value, in the order that Identity gives them.
func (c *compact) sources() []Entry {
	values, weights := map[string]string{}, map[string]string{}
	for value, members := range c.Sources {
		for source, weight := range members {
			values[source] = value
			if weight != "" {
				weights[source] = weight
			}
		}
	}
	var list []Entry
	for _, source := range slices.Sorted(maps.Keys(weights)) {
		list = append(list, Entry{Name: "mixture.weights." + source, Value: weights[source]})
	}
	for _, source := range slices.Sorted(maps.Keys(values)) {
		list = append(list, Entry{Name: "sources." + source, Value: values[source]})
	}
	return list
}

// alike shortens and folds two identities until both have the same detail.
func alike(a, b Identity) (Identity, Identity) {
	a.digest, b.digest = a.Fingerprint(), b.Fingerprint()
	for _, g := range groups {
		if isFolded(a, g) != isFolded(b, g) {
			a, b = fold(shorten(a), g), fold(shorten(b), g)
		}
	}
	return matchShort(a, b), matchShort(b, a)
}

// matchShort shortens the values of a that are short in b.
func matchShort(a, b Identity) Identity {
	wanted := map[string]bool{}
	for _, e := range b.Entries {
		wanted[e.Name] = isShort(e.Value)
	}
	out := Identity{digest: a.digest}
	for _, e := range a.Entries {
		if wanted[e.Name] && !isShort(e.Value) {
			e.Value = shortDigest(e.Value)
		}
		out.Entries = append(out.Entries, e)
	}
	return out
}

// shorten replaces long values by short digests.
func shorten(id Identity) Identity {
	out := Identity{digest: id.digest}
	for _, e := range id.Entries {
		e.Value = short(e.Value)
		out.Entries = append(out.Entries, e)
	}
	return out
}

// fold replaces the entries of a group by one that holds their number and a short digest, order aside.
func fold(id Identity, group string) Identity {
	out := Identity{digest: id.digest}
	members := map[string]string{}
	for _, e := range id.Entries {
		if inGroup(e.Name, group) {
			members[e.Name] = e.Value
		} else {
			out.Entries = append(out.Entries, e)
		}
	}
	if len(members) == 0 {
		return id
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(members)) {
		fmt.Fprintf(&all, "%q=%q\n", name, members[name])
	}
	out.Entries = append(
		out.Entries,
		Entry{Name: group, Value: shortDigest(all.String()), Note: fmt.Sprintf("%d entries", len(members))},
	)
	return out
}

func inGroup(name, group string) bool {
	rest, ok := strings.CutPrefix(name, group)
	return ok && rest != "" && (rest[0] == '.' || rest[0] == '[')
}

func isFolded(id Identity, group string) bool {
	for _, e := range id.Entries {
		if e.Name == group {
			return true
		}
	}
	return false
}

func isShort(value string) bool { return strings.HasPrefix(value, shortMark) }

// short returns a value that fits, or its short digest.
func short(value string) string {
	if len(value) <= maxValue {
		return value
	}
	return shortDigest(value)
}

func shortDigest(value string) string {
	sum := blake2b.Sum256([]byte(value))
	return shortMark + hex.EncodeToString(sum[:6])
}
