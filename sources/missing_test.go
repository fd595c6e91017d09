package sources_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"millrace/sources"
	"millrace/sources/format/jsonl"
	"millrace/sources/format/parts/fields"
	"millrace/sources/read/filter"
)

// gaps returns records in turn: whole, with a null text, without a text, with an empty text, and no JSON.
func gaps(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, []string{
			"{\"id\": %d, \"meta\": {\"title\": \"T\"}, \"text\": \"x y z\"}\n",
			"{\"id\": %d, \"meta\": {\"title\": \"T\"}, \"text\": null}\n",
			"{\"id\": %d, \"meta\": {\"title\": \"T\"}}\n",
			"{\"id\": %d, \"meta\": {\"title\": \"T\"}, \"text\": \"\"}\n",
			"{\"id\": %d,\n",
		}[i%5], i)
	}
	return b.Bytes()
}

// TestMissingFields: records without a field are quarantined or skipped, and a filter is asked before. Skipped records
// keep their ordinals and are counted apart, when they are read and when their lengths are kept.
func TestMissingFields(t *testing.T) {
	const good, skipped, refused = "", "skipped", "refused"
	absent := `field "text" is absent; the record has id, meta`
	null := `field "text" is null; the record has id, meta, text`
	const broken = "invalid JSON"
	for _, name := range []string{"a.jsonl", "a.jsonl.gz"} {
		dir := t.TempDir()
		put(t, dir, name, pack(t, name, gaps(300)))
		for _, c := range []struct {
			template string
			skip     bool
			filters  *filter.Set
			want     [5]string // of the kinds of records
		}{
			{"", false, nil, [5]string{good, null, absent, good, broken}},
			{"", true, nil, [5]string{good, skipped, skipped, skipped, broken}},
			{"", false, set(t, "text != nil"), [5]string{good, refused, refused, good, broken}},
			{"", false, set(t, "id >= 0"), [5]string{good, null, absent, good, broken}},
			{"", false, set(t, "tokens > 1"), [5]string{good, null, absent, refused, broken}},
			{"", true, set(t, "text != nil"), [5]string{good, refused, refused, skipped, broken}},
			{"{meta.title}: {text}", false, nil, [5]string{good, null, absent, good, broken}},
			{"{meta.title}: {text}", true, nil, [5]string{good, skipped, skipped, skipped, broken}},
			{"{meta.title}: {text}", true, set(t, "text != nil"), [5]string{good, refused, refused, skipped, broken}},
			{"{meta}", true, nil, [5]string{`field "meta" is an object`, `field "meta" is an object`,
				`field "meta" is an object`, `field "meta" is an object`, broken}},
		} {
			spec := sources.Spec{Name: "web", Format: jsonl.Format{}, Base: dir, Patterns: []string{"*"}, Seed: 3,
				Field: sources.Field{Text: "text"}, Epochs: 1, Tokenizer: gpt2(t), AddEOS: true, IndexDir: t.TempDir(),
				SkipMissing: c.skip, Filters: c.filters}
			if c.template != "" {
				template, err := fields.ParseTemplate(c.template)
				if err != nil {
					t.Fatal(err)
				}
				spec.Field.Text = ""
				spec.Maker = fields.NewTemplateMaker(template, sources.NewEncoder(spec.Tokenizer, false, true), c.skip)
			}
			for pass := range 2 {
				offers, st := offersOf(t, spec)
				if len(offers) != 300 {
					t.Fatalf("%d offers, want 300", len(offers))
				}
				var counts sources.Stats
				for id, o := range offers {
					want := c.want[id.Record%5]
					got := good
					switch {
					case o.Rejected:
						got = o.Quarantine.Reason
					case o.Refused&filter.Skipped != 0:
						got, counts.Skipped = skipped, counts.Skipped+1
					case o.Refused != 0:
						got, counts.Refused = refused, counts.Refused+1
					}
					if !strings.HasPrefix(got, want) || want == good && got != good || got == skipped &&
						(o.Lengths.Tokens != 0 || o.Refused&filter.Own == 0) {
						t.Fatalf("%s %q, skip %v, filters %q, pass %d: record %d is %q with %d tokens, want %q", name,
							c.template, c.skip, c.filters.Texts(), pass, id.Record, got, o.Lengths.Tokens, want)
					}
				}
				if pass > 0 && (st.Known != 300 || st.Skipped != counts.Skipped || st.Refused != counts.Refused) {
					t.Fatalf(
						"%s %q, skip %v: the kept lengths count %+v, want %d skipped, %d refused",
						name,
						c.template,
						c.skip,
						st,
						counts.Skipped,
						counts.Refused,
					)
				}
			}
		}
	}
}
