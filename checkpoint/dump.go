package checkpoint

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/zeebo/xxh3"
)

// The kinds of a dump's lines, and the first argument of DumpOptions.Describe.
const (
	dumpFormat     = "format"
	dumpSnapshot   = "snapshot"
	dumpRecord     = "record"
	dumpEntry      = "entry"
	dumpPlan       = "plan"
	dumpIndexEntry = "indexEntry"
)

// DumpOptions is the form of a dump.
type DumpOptions struct {
	// JSON asks for one JSON object a line instead of text.
	JSON bool
	// Describe, if set, turns a body into a few words. Its first argument is "snapshot", "record", "entry", "plan" or
	// "indexEntry". kind is a record's Kind, else 0. key is that of an entry, a plan or an index entry, else zero. For
	// an entry, body is the digest.
	Describe func(what string, kind uint8, key StepKey, body []byte) string
}

// dumpLine is one value in the store. `millrace checkpoint dump --json` prints these names, so they must stay as they
// are.
type dumpLine struct {
	What    string  `json:"what"`
	Key     string  `json:"key,omitempty"`   // stream/attempt/step of an entry or plan
	Index   *uint64 `json:"index,omitempty"` // journal index
	Step    *int64  `json:"step,omitempty"`
	Kind    *uint8  `json:"kind,omitempty"`
	Size    int     `json:"size"`             // bytes of the body
	Digest  string  `json:"digest,omitempty"` // xxh3 of the body; of an entry, the digest itself
	Says    string  `json:"says,omitempty"`
	Damaged string  `json:"damaged,omitempty"`
}

// dump prints everything in a database. It returns ErrCorrupt at the end if a value is damaged.
func (db *database) dump(w io.Writer, o DumpOptions) error {
	d := &dumper{w: w, o: o}
	sections := []struct {
		tag  byte
		line func(key, value []byte) (dumpLine, error)
	}{
		{tagFormat, d.format}, {tagSnapshot, d.snapshot}, {tagRecord, d.record}, {tagEntry, d.entry},
		{tagPlan, d.bare(dumpPlan)}, {tagIndexEntry, d.bare(dumpIndexEntry)},
	}
	for _, section := range sections {
		c := db.scanTag(section.tag)
		for c.next() {
			value := c.value()
			if c.err != nil {
				break
			}
			line, err := section.line(c.key(), value)
			if err != nil {
				line.Damaged, line.Size = err.Error(), len(value)
				d.damaged++
			}
			if err := d.print(line); err != nil {
				return errors.Join(fmt.Errorf("dump %s: %w", db.dir, err), c.close())
			}
		}
		if err := c.close(); err != nil {
			return err
		}
	}
	if d.damaged > 0 {
		return corrupt(db.dir, "the store", fmt.Sprintf("%d damaged values", d.damaged))
	}
	return nil
}

type dumper struct {
	w       io.Writer
	o       DumpOptions
	damaged int
}

func (d *dumper) says(what string, kind uint8, key StepKey, body []byte) string {
	if d.o.Describe == nil {
		return ""
	}
	return d.o.Describe(what, kind, key, body)
}

func bodyDigest(body []byte) string {
	sum := xxh3.Hash128(body).Bytes()
	return hex.EncodeToString(sum[:])
}

func (d *dumper) format(key, value []byte) (dumpLine, error) {
	version, by, err := decodeFormat(key, value)
	return dumpLine{
		What: dumpFormat,
		Size: len(value),
		Says: fmt.Sprintf("version %d, created by %s", version, by),
	}, err
}

func (d *dumper) snapshot(key, value []byte) (dumpLine, error) {
	index, _ := parseIndexKey(key)
	l := dumpLine{What: dumpSnapshot, Index: &index}
	s, err := decodeSnapshot(key, value)
	if err != nil {
		return l, err
	}
	l.Step, l.Size, l.Digest, l.Says = &s.Step, len(
		s.Body,
	), bodyDigest(
		s.Body,
	), d.says(
		dumpSnapshot,
		0,
		StepKey{},
		s.Body,
	)
	return l, nil
}

func (d *dumper) record(key, value []byte) (dumpLine, error) {
	index, _ := parseIndexKey(key)
	l := dumpLine{What: dumpRecord, Index: &index}
	r, err := decodeRecord(key, value)
	if err != nil {
		return l, err
	}
	l.Step, l.Kind, l.Size, l.Digest = &r.Step, &r.Kind, len(r.Body), bodyDigest(r.Body)
	l.Says = d.says(dumpRecord, r.Kind, StepKey{}, r.Body)
	return l, nil
}

func (d *dumper) entry(key, value []byte) (dumpLine, error) {
	l := dumpLine{What: dumpEntry, Key: describeStepKey(key)}
	e, err := decodeEntry(key, value)
	if err != nil {
		return l, err
	}
	l.Index, l.Size, l.Digest = &e.Index, int(e.PlanSize), hex.EncodeToString(e.Digest)
	l.Says = d.says(dumpEntry, 0, e.Key, e.Digest)
	return l, nil
}

// bare returns the line of a value that holds only its body.
func (d *dumper) bare(what string) func(key, value []byte) (dumpLine, error) {
	return func(key, value []byte) (dumpLine, error) {
		l := dumpLine{What: what, Key: describeStepKey(key)}
		body, err := decodeBare(key, value)
		if err != nil {
			return l, err
		}
		k, _ := parseStepKey(key)
		l.Size, l.Digest, l.Says = len(body), bodyDigest(body), d.says(what, 0, k, body)
		return l, nil
	}
}

func (d *dumper) print(l dumpLine) error {
	if !d.o.JSON {
		_, err := io.WriteString(d.w, l.text()+"\n")
		return err
	}
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = d.w.Write(append(b, '\n'))
	return err
}

func (l dumpLine) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s", l.What)
	if l.Key != "" {
		b.WriteString(" " + l.Key)
	}
	if l.Index != nil {
		fmt.Fprintf(&b, " index=%d", *l.Index)
	}
	if l.Step != nil && *l.Step != NoStep {
		fmt.Fprintf(&b, " step=%d", *l.Step)
	}
	if l.Kind != nil {
		fmt.Fprintf(&b, " kind=%d", *l.Kind)
	}
	fmt.Fprintf(&b, " size=%d", l.Size)
	if l.Digest != "" {
		b.WriteString(" digest=" + l.Digest)
	}
	if l.Says != "" {
		b.WriteString("  " + l.Says)
	}
	if l.Damaged != "" {
		b.WriteString("  DAMAGED: " + l.Damaged)
	}
	return b.String()
}
