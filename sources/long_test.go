package sources_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"millrace/sources"
	"millrace/sources/format/jsonl"
	"millrace/sources/read/filter"
	"millrace/text/chat"
)

// TestLongDocumentsAreNoted: offers of documents that are too long have their note, whatever the treatment: when the
// documents are made, and when their lengths are known from before. Filters decide as without it.
func TestLongDocumentsAreNoted(t *testing.T) {
	const records, most = 200, 6
	var b bytes.Buffer
	for i := range records {
		fmt.Fprintf(&b, "{\"id\": %d, \"p\": \"x\", \"c\": %q}\n", i, strings.Repeat(" y", i%10+1))
	}
	for _, name := range []string{"a.jsonl", "a.jsonl.gz"} {
		dir := t.TempDir()
		put(t, dir, name, pack(t, name, b.Bytes()))
		for _, long := range []chat.TooLong{
			{Tokens: most}, {Tokens: most, Truncate: true}, {Tokens: most, Drop: true},
		} {
			for _, filters := range []*filter.Set{nil, set(t, "id >= 100")} {
				encoding := gpt2(t)
				maker, err := chat.NewPairMaker(encoding, chat.Pair{Prompt: "p", Completion: "c", TooLong: long})
				if err != nil {
					t.Fatal(err)
				}
				spec := sources.Spec{Name: "web", Format: jsonl.Format{}, Base: dir, Patterns: []string{"*"}, Seed: 3,
					Epochs: 1, Tokenizer: encoding, IndexDir: t.TempDir(), Filters: filters, Maker: maker}
				for pass := range 2 {
					offers, st := offersOf(t, spec)
					if len(offers) != records || pass > 0 && st.TooLong != records/2 {
						t.Fatalf("%d offers, %d too long", len(offers), st.TooLong)
					}
					for id, o := range offers {
						tokens := uint32(2 + id.Record%10)
						noted := tokens > most
						switch {
						case noted && long.Truncate:
							tokens = most
						case noted && long.Drop:
							tokens = 0
						}
						refused := filters != nil && id.Record < 100
						isNoted, isRefused := o.Refused&filter.TooLong != 0, o.Refused&filter.Own != 0
						if o.Rejected || o.Lengths.Tokens != tokens || isNoted != noted || isRefused != refused {
							t.Fatalf("%s %+v, pass %d: record %d is offered as %+v", name, long, pass, id.Record, o)
						}
					}
				}
			}
		}
	}
}
