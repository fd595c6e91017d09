package order

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"millrace"
)

// TestStripePositions: positions count the stripe's ordinals without gaps, and every ordinal belongs to one stripe.
func TestStripePositions(t *testing.T) {
	for of := uint32(1); of <= 5; of++ {
		next := make([]uint64, of)
		for n := millrace.Ordinal(0); n < 1000; n++ {
			owners := 0
			for i := range of {
				s := Stripe{i, of}
				if got := s.Position(n); got != next[i] {
					t.Fatalf("stripe %d/%d: position of %d is %d, want %d", i, of, n, got, next[i])
				}
				if !s.Has(n) {
					continue
				}
				owners++
				if got := s.Ordinal(next[i]); got != n {
					t.Fatalf("stripe %d/%d: ordinal at position %d is %d, want %d", i, of, next[i], got, n)
				}
				next[i]++
			}
			if owners != 1 {
				t.Fatalf("ordinal %d has %d stripes of %d", n, owners, of)
			}
		}
		if s := (Stripe{0, of}); s.Ordinal(math.MaxUint64) < 1<<60 || s.Position(math.MaxUint64) < 1<<60 {
			t.Fatalf("stripe 0/%d: ends overflow", of)
		}
	}
}

// TestGlobalOrder: in every epoch each record comes exactly once, and epochs differ.
func TestGlobalOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.Uint64Range(0, 40), 1, 8).Draw(t, "counts")
		g := NewGlobal(Seed{Run: rapid.Uint64().Draw(t, "seed"), Source: "s", Epochs: 3}, counts)
		total := g.Total(0)
		if total == 0 {
			return
		}
		if g.End() != millrace.Ordinal(3*total) {
			t.Fatalf("end %d, want %d", g.End(), 3*total)
		}
		w := g.Lookup()
		var epochs [3][]millrace.SampleID
		for n := range g.End() {
			e, at := w.At(n)
			id := at.SampleID
			if uint64(e) != uint64(n)/total {
				t.Fatalf("ordinal %d is of epoch %d", n, e)
			}
			epochs[e] = append(epochs[e], id)
			fresh := g.Lookup()
			if _, again := fresh.At(n); again != at {
				t.Fatalf("ordinal %d is %v, and %v when looked up alone", n, id, again)
			}
		}
		if total > 20 && slices.Equal(epochs[0], epochs[1]) {
			t.Fatal("two epochs have one order")
		}
		for e, ids := range epochs {
			seen := make(map[millrace.SampleID]bool)
			for _, id := range ids {
				if id.Record >= counts[id.Shard] || seen[id] {
					t.Fatalf("epoch %d: %v is doubled or not there (counts %v)", e, id, counts)
				}
				seen[id] = true
			}
			if uint64(len(seen)) != total {
				t.Fatalf("epoch %d: %d of %d records", e, len(seen), total)
			}
		}
	})
}

// TestOrderGolden pins the orders: a change of keys or permutations would change the stream of every run.
func TestOrderGolden(t *testing.T) {
	o := Seed{Run: 1234, Source: "web"}
	w := NewGlobal(o, []uint64{3, 0, 5}).Lookup()
	var global []string
	for n := range millrace.Ordinal(16) {
		_, at := w.At(n)
		global = append(global, at.String())
	}
	b := NewBlocks(o, false, 4)
	p, _ := b.Permutation(millrace.SeekPoint{Epoch: 1, Shard: 2, Block: 3}, 6)
	var shards, block []uint64
	for i := range uint64(6) {
		block = append(block, p.At(i))
		if i < 4 {
			shard, _ := b.ShardAt(1, uint32(i))
			shards = append(shards, uint64(shard))
		}
	}
	got := fmt.Sprint(global, shards, block)
	const want = "[0#1 0#2 2#2 2#4 2#0 2#3 2#1 0#0 2#4 2#2 2#3 0#2 0#0 0#1 2#0 2#1] [1 2 0 3] [4 2 1 0 3 5]"
	if got != want {
		t.Fatalf("orders\n%s, want\n%s", got, want)
	}
}

// TestBlockTable: a table survives encoding, and missing bytes are noticed.
func TestBlockTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		for range rapid.IntRange(0, 20).Draw(t, "blocks") {
			table = append(table,
				BlockSize{rapid.Uint64Range(1, 1<<40).Draw(t, "records"), rapid.Uint64().Draw(t, "raw")})
		}
		enc := table.Encode()
		got, err := DecodeTable(enc)
		if err != nil || !slices.Equal(got, table) {
			t.Fatalf("%v, %v, want %v", got, err, table)
		}
		if len(enc) > 0 {
			if got, err := DecodeTable(enc[:len(enc)-1]); err == nil && len(got) == len(table) {
				t.Fatal("a table cut short was read whole")
			}
		}
	})
}

// TestOrdinalsIsTheInverse: Ordinals finds every record in every epoch, also if the bound lies inside an epoch.
func TestOrdinalsIsTheInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.Uint64Range(0, 20), 1, 6).Draw(t, "counts")
		seed := rapid.Uint64().Draw(t, "seed")
		m := &millrace.Manifest{
			Source:  "s",
			Shuffle: rapid.SampledFrom([]millrace.Shuffle{millrace.Global, millrace.InFileOrder}).Draw(t, "shuffle"),
		}
		var inOrder []millrace.SampleID
		for i, n := range counts {
			m.Shards = append(m.Shards, millrace.Shard{Name: strings.Repeat("a#1", i+1), Count: n, Counted: true})
			for r := range n {
				inOrder = append(inOrder, millrace.SampleID{Shard: uint32(i), Record: r})
			}
		}
		if len(inOrder) == 0 {
			return
		}
		below := millrace.Ordinal(rapid.IntRange(0, 3*len(inOrder)).Draw(t, "below"))
		want := map[millrace.SampleID][]millrace.Ordinal{}
		w := NewGlobal(Seed{Run: seed, Source: "s"}, counts).Lookup()
		for n := range below {
			id := inOrder[int(n)%len(inOrder)]
			if m.Shuffle == millrace.Global {
				_, at := w.At(n)
				id = at.SampleID
			}
			want[id] = append(want[id], n)
		}
		for _, id := range inOrder {
			if got, known := Ordinals(m, seed, id, below); !known || !slices.Equal(got, want[id]) {
				t.Fatalf("%v is at %v (known: %v), want %v", id, got, known, want[id])
			}
			if back, ok := m.Sample(m.SampleName(id)); !ok || back != id {
				t.Fatalf("%s is %v", m.SampleName(id), back)
			}
		}
	})
	blocks := &millrace.Manifest{Shuffle: millrace.Blocks, Shards: []millrace.Shard{{Count: 3, Counted: true}}}
	uncounted := &millrace.Manifest{
		Shuffle: millrace.InFileOrder,
		Shards:  []millrace.Shard{{Count: 3, Counted: true}, {}},
	}
	for _, m := range []*millrace.Manifest{blocks, uncounted} {
		if got, known := Ordinals(m, 1, millrace.SampleID{}, 100); known {
			t.Errorf("%s: %v", m.Shuffle, got)
		}
	}
	for _, name := range []string{"", "#", "#0", "a", "a#", "a#x", "a#-1", "a#01", "b#0"} {
		if id, ok := (&millrace.Manifest{Shards: []millrace.Shard{{Name: "a"}}}).Sample(name); ok {
			t.Errorf("%q is %v", name, id)
		}
	}
	counted := &millrace.Manifest{Shuffle: millrace.Global, Shards: []millrace.Shard{{Count: 3, Counted: true}}}
	if got, known := Ordinals(counted, 1, millrace.SampleID{Record: 3}, 100); !known || len(got) > 0 {
		t.Errorf("a record beyond the last is at %v", got)
	}
}
