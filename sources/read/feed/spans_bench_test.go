package feed

import (
	"context"
	"testing"

	"millrace"
	"millrace/sources/read/budget"
	"millrace/sources/read/order"
)

// BenchmarkFeedTinySpans reads an endless source with one or two records in each span, with more and with less memory
// than they need. The time for a record must not grow with the number of spans: compare -benchtime 20000x and 100000x.
func BenchmarkFeedTinySpans(b *testing.B) {
	for name, limit := range map[string]int64{"room": 64 << 20, "tight": 64 << 10} {
		b.Run(name, func(b *testing.B) {
			c := corpus{}
			var lines []string
			for range 1000 {
				lines = append(lines, "a record of some length")
			}
			c.add("a.jsonl", lines...)
			s := fixture{shuffle: millrace.Blocks, limit: 30}.open(b, c.write(b))
			f := New(s, Position{}, order.Stripe{}, Config{Budget: budget.New(limit), Parallel: 2})
			defer running(b, f)()
			b.ResetTimer()
			want := millrace.Ordinal(b.N)
			f.Want(want)
			for seen := millrace.Ordinal(0); seen < want; {
				batch, err := f.Next(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				seen += millrace.Ordinal(len(batch.Offers))
			}
		})
	}
}
