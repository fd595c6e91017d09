package csv

import (
	"math/rand/v2"
	"slices"
	"testing"

	"millrace/sources/format/parts/rows"
)

// TestRuns: reading a record in runs finds the values and the end that reading it byte by byte finds.
func TestRuns(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := make([]byte, rng.IntN(40)+1)
		for i := range b {
			b[i] = "aaa\",\n\r"[rng.IntN(7)]
		}
		b[0] = 'a'
		var want []string
		var s state
		value, end := "", len(b)
		for i, c := range b {
			if (c == '\n' || c == '\r') && s != inQuotes {
				end = i
				break
			}
			switch s.take(c, ',') {
			case content:
				value += string(c)
			case nextValue:
				want, value = append(want, value), ""
			}
		}
		want = append(want, value)

		c := &cutter{separator: ','}
		if n, at, err := c.Cut(b); n != 0 || at != rows.Begins || err != nil {
			t.Fatalf("%q begins at %d, %v, %v", b, n, at, err)
		}
		// A record reaches over several windows.
		n, cut := 0, rng.IntN(len(b)+1)
		for _, some := range [][]byte{b[:cut], b[cut:]} {
			k, at, err := c.Cut(some)
			if n += k; err != nil {
				t.Fatal(err)
			}
			if at == rows.Ends {
				break
			}
		}
		p := &parser{table: &table{separator: ','}}
		p.split(b[:n])
		var got []string
		for _, v := range p.values {
			got = append(got, string(v))
		}
		if n != end || !slices.Equal(got, want) {
			t.Fatalf("%q, cut at %d: got %q to %d, want %q to %d", b, cut, got, n, want, end)
		}
	}
}
