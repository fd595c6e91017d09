// Package identity holds the settings that decide the segments of a run. It compares two runs by them and writes them
// into the states that trainers save.
package identity

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/crypto/blake2b"

	"millrace"
)

// Identity is the list of settings that decide the segments of a run, in a fixed order. A state belongs to one
// identity, and a run with another identity refuses it. Settings that may differ at a resume are not part of it:
// topology, memory, layout, the place of files. The content of files is not part of it either: a source's manifest has
// its own fingerprint.
type Identity struct {
	Entries []Entry

	digest millrace.Digest // read from JSON; zero if the entries are complete
}

// Entry is one setting and its value, with the default filled in.
type Entry struct {
	Name  string
	Value string
	Note  string // the value's name for messages; it is not compared and not in the fingerprint
	// IsNew: identities of earlier programs lack the entry, and agree with this value. Their runs and states keep the
	// rule that they began with.
	IsNew bool
}

// Value returns the value of a key with the default filled in, or nothing.
func (id Identity) Value(name string) string {
	for _, e := range id.Entries {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// Fingerprint returns the digest of all names and values: equal for equal identities, also for one read back from JSON.
func (id Identity) Fingerprint() millrace.Digest {
	if !id.digest.IsZero() {
		return id.digest
	}
	h, _ := blake2b.New(len(millrace.Digest{}), nil) // fails only for other sizes and long keys
	var size [8]byte
	for _, e := range id.Entries {
		for _, s := range [2]string{e.Name, e.Value} {
			binary.LittleEndian.PutUint64(size[:], uint64(len(s)))
			h.Write(size[:])
			h.Write([]byte(s))
		}
	}
	var d millrace.Digest
	h.Sum(d[:0])
	return d
}

// Diff names the differences between two identities, one line a key. It returns nothing if their fingerprints are
// equal.
func Diff(old, now Identity) []string {
	if now = now.knownTo(old); old.Fingerprint() == now.Fingerprint() {
		return nil
	}
	old, now = alike(old, now)
	before := make(map[string]Entry, len(old.Entries))
	for _, e := range old.Entries {
		before[e.Name] = e
	}
	var lines []string
	for _, e := range now.Entries {
		was, ok := before[e.Name]
		delete(before, e.Name)
		switch {
		case !ok:
			lines = append(lines, e.Name+": added ("+e.shown()+")")
		case was.Value != e.Value && isShort(was.Value) && was.Note == "":
			lines = append(lines, e.Name+": changed")
		case was.Value != e.Value:
			lines = append(lines, e.Name+": "+was.shown()+" -> "+e.shown())
		}
	}
	for _, e := range old.Entries {
		if _, gone := before[e.Name]; gone {
			lines = append(lines, e.Name+": removed (it was "+e.shown()+")")
		}
	}
	if len(lines) == 0 { // the shortened values are equal by chance or by an edit
		lines = append(lines, fmt.Sprintf("fingerprint: %s -> %s", old.Fingerprint(), now.Fingerprint()))
	}
	return lines
}

// knownTo returns the identity without the new entries that another identity lacks.
func (id Identity) knownTo(old Identity) Identity {
	out := Identity{digest: id.digest}
	for _, e := range id.Entries {
		if e.IsNew && old.Value(e.Name) == "" {
			out.digest = millrace.Digest{} // of the entries that are left
			continue
		}
		out.Entries = append(out.Entries, e)
	}
	return out
}

func (e Entry) shown() string {
	if e.Note != "" {
		return e.Note + " (" + e.Value + ")"
	}
	return e.Value
}
